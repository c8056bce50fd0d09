"""routes.yml: as YAML, and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import routes
from triton_repo_builder.ship.targets.routes import Backend, Routes

STABLE = Backend(http="http://bert:8000", grpc="h2c://bert:8001")
CANARY = Backend(http="http://bert-canary:8000", grpc="h2c://bert-canary:8001")
PLAIN = Routes(stable=(STABLE,), body_limit=1 << 20, ready="/v2/models/bert/ready")
SPLIT = replace(PLAIN, canary=(CANARY,), weight=10)


def document(wanted: Routes) -> Any:
    return yaml.safe_load(routes.text(wanted))


def test_weights_of_both_protocols() -> None:
    services = document(SPLIT)["http"]["services"]
    for kind in ("", "-grpc"):
        sides = services[f"v2{kind}"]["weighted"]["services"]
        assert [(side["name"], side["weight"]) for side in sides] == [
            (f"stable{kind}", 90),
            (f"canary{kind}", 10),
        ]
    assert services["canary-grpc"]["loadBalancer"]["servers"] == [{"url": CANARY.grpc}]
    health = services["canary-grpc"]["loadBalancer"]["healthCheck"]
    assert (health["port"], health["scheme"], health["path"]) == (8000, "http", PLAIN.ready)
    alone = document(PLAIN)["http"]["services"]
    assert [side["weight"] for side in alone["v2"]["weighted"]["services"]] == [100]
    assert "canary" not in alone


def test_limits_and_entry_points() -> None:
    http = document(PLAIN)["http"]
    assert http["middlewares"]["body-limit"]["buffering"]["maxRequestBodyBytes"] == 1 << 20
    assert http["routers"]["v2"]["entryPoints"] == ["http"]
    assert "body-limit" in http["routers"]["v2"]["middlewares"]
    assert "body-limit" not in http["routers"]["v2-grpc"]["middlewares"]  # streams must not be buffered
    only = document(replace(PLAIN, grpc=False, domain="models.example"))["http"]
    assert only["routers"].keys() == {"v2"}
    assert only["routers"]["v2"]["rule"] == "Host(`models.example`) && PathPrefix(`/v2`)"


def test_gateway_and_tls() -> None:
    wanted = replace(
        PLAIN, gateways=("http://gateway:9000",), certificate="/run/cert.pem", key="/run/key.pem"
    )
    whole = document(wanted)
    assert whole["http"]["services"]["gateway"]["loadBalancer"]["servers"] == [{"url": "http://gateway:9000"}]
    # The gateway's own requests come from inside.
    inside = {"v2-inner", "inner"}
    assert {name for name, router in whole["http"]["routers"].items() if "tls" not in router} == inside
    assert whole["tls"]["stores"]["default"]["defaultCertificate"]["certFile"] == "/run/cert.pem"
    assert "tls" not in document(PLAIN)


@pytest.mark.parametrize(
    "wanted", [PLAIN, SPLIT, replace(SPLIT, weight=100), replace(PLAIN, domain='a"b', gateways=("http://x",))]
)
def test_read_back(wanted: Routes) -> None:
    content = routes.text(wanted)
    assert routes.read(content, "routes.yml") == wanted
    assert routes.text(wanted) == content


def test_taken_back_is_byte_for_byte_as_exported() -> None:
    again = replace(routes.read(routes.text(SPLIT), ""), weight=0, canary=())
    assert routes.text(again) == routes.text(PLAIN)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("http: {}\n", Code.OUTPUT_FOREIGN),
        ("", Code.OUTPUT_FOREIGN),
        ("# trb-routes: {}\nhttp: {}\n", Code.EDITED_FILE),
        ("# trb-routes: {broken\n", Code.OUTPUT_FOREIGN),
        (routes.text(PLAIN) + "# mine\n", Code.EDITED_FILE),
        (routes.text(SPLIT).replace("weight: 90", "weight: 80"), Code.EDITED_FILE),
        (routes.text(SPLIT).replace('"weight": 10', '"weight": 1000'), Code.EDITED_FILE),
    ],
)
def test_files_of_others(content: str, code: Code) -> None:
    with pytest.raises(TrbError) as caught:
        routes.read(content, "routes.yml")
    assert caught.value.code == code


def test_one_http_port_a_side() -> None:
    other = Backend(http="http://b:9000", grpc="h2c://b:9001")
    with pytest.raises(TrbError, match="several HTTP ports"):
        routes.text(replace(PLAIN, stable=(STABLE, other)))
    two = replace(PLAIN, stable=(STABLE, replace(STABLE, http="http://b:8000")))
    servers = document(two)["http"]["services"]["stable"]["loadBalancer"]["servers"]
    assert [server["url"] for server in servers] == ["http://bert:8000", "http://b:8000"]


def test_buckets_rise_by_a_tenth() -> None:
    steps = [after / before for before, after in zip(routes.BUCKETS, routes.BUCKETS[1:], strict=False)]
    assert routes.BUCKETS[0] == 0.001
    assert routes.BUCKETS[-1] > 30
    assert 1.08 < min(steps) < max(steps) < 1.12
