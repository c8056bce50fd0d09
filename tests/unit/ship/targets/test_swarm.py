"""The stack of Docker Swarm, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import call
from tests.support.stacks import KEY, deployment, folder
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import export, swarm
from triton_repo_builder.ship.vcs import git

OWN = '[server]\nimage = "own:1"\nreplicas = 3\n[exposure]\nhost = "0.0.0.0"\n'
IMAGE = f'{OWN}[repository]\nsource = "image"\n'
GATEWAY = '[gateway]\nimage = "gate:1"\n'
DIGEST = "0" * 64


@pytest.fixture(autouse=True)
def outside_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests start no process."""
    monkeypatch.setattr(git, "last_commit", lambda path: "")


def rendered(root: Path, text: str = IMAGE) -> dict[str, str]:
    return swarm.render(deployment(root, text, target="swarm"))


def stack(root: Path, text: str = IMAGE) -> Any:
    return yaml.safe_load(rendered(root, text)[swarm.FILE])


def test_an_update_starts_the_new_replica_first_and_goes_back_by_itself(tmp_path: Path) -> None:
    services = stack(tmp_path, IMAGE + GATEWAY)["services"]
    for name in ("bert", "bert-gateway"):
        update = services[name]["deploy"]["update_config"]
        assert (update["order"], update["failure_action"], update["parallelism"]) == (
            "start-first",
            "rollback",
            1,
        )
        assert update["max_failure_ratio"] == 0
        assert "healthcheck" in services[name]
        assert services[name]["deploy"]["endpoint_mode"] == "dnsrr"
    assert services["traefik"]["deploy"]["mode"] == "global"
    assert {port["mode"] for port in services["traefik"]["ports"]} == {"host"}


def test_a_replica_is_hardened_and_has_its_shared_memory(tmp_path: Path) -> None:
    given = deployment(tmp_path, IMAGE, target="swarm")
    server = yaml.safe_load(swarm.render(given)[swarm.FILE])["services"]["bert"]
    assert (server["user"], server["read_only"], server["cap_drop"]) == ("1000:1000", True, ["ALL"])
    mounts = {each["target"]: each for each in server["volumes"]}
    assert mounts["/dev/shm"] == {
        "type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": given.shared_memory}
    }  # fmt: skip
    (key,) = server["secrets"]
    assert (key["uid"], key["mode"]) == ("1000", 0o400)


def test_connections_end_before_the_server_does(tmp_path: Path) -> None:
    text = IMAGE.replace("replicas", 'drain = "15s"\nstop = "20s"\nreplicas')
    server = stack(tmp_path, text)["services"]["bert"]
    assert "--grpc-max-connection-age=12000" in server["command"]
    assert sum(word.startswith("--grpc-max-connection-age=") for word in server["command"]) == 1
    assert "sleep 15" in server["command"][2]
    assert server["stop_grace_period"] == "40s"
    with pytest.raises(TrbError, match=r"server\.drain"):
        stack(tmp_path / "none", text.replace("15s", "0s"))


def test_traefik_has_connections_to_several_names(tmp_path: Path) -> None:
    files = rendered(tmp_path)
    aliases = yaml.safe_load(files[swarm.FILE])["services"]["bert"]["networks"]["default"]["aliases"]
    assert aliases == [f"bert-grpc-{number}" for number in range(1, 7)]
    services = yaml.safe_load(files["traefik/routes.yml"])["http"]["services"]
    assert [each["url"] for each in services["v2-grpc"]["loadBalancer"]["servers"]] == [
        f"h2c://{name}:8001" for name in aliases
    ]
    assert services["v2"]["loadBalancer"]["servers"] == [{"url": "http://bert:8000"}]


def test_names_of_configs_and_secrets_follow_their_content(tmp_path: Path) -> None:
    files = rendered(tmp_path)
    assert not [path for path, text in files.items() if KEY in text]
    first = yaml.safe_load(files[swarm.FILE])
    assert {config["file"] for config in first["configs"].values()} == {
        f"./{path}" for path in files if path != swarm.FILE
    }
    given = deployment(tmp_path / "again", IMAGE, target="swarm")
    same = yaml.safe_load(swarm.render(given)[swarm.FILE])
    assert same["secrets"] == first["secrets"] and same["configs"] == first["configs"]
    (tmp_path / "again" / "admin_key").write_text(f"{KEY}-another\n")
    other = yaml.safe_load(swarm.render(given)[swarm.FILE])
    assert other["secrets"]["admin_key"]["name"] != first["secrets"]["admin_key"]["name"]
    assert other["configs"] == first["configs"]


def test_prometheus_finds_replicas_by_dns(tmp_path: Path) -> None:
    files = rendered(tmp_path, IMAGE + GATEWAY)
    scraped = yaml.safe_load(files["monitoring/prometheus.yml"])["scrape_configs"]
    found = {each["job_name"]: each["dns_sd_configs"][0] for each in scraped}
    assert {job: (each["names"], each["port"]) for job, each in found.items()} == {
        "tritonserver": (["tasks.bert"], 8002),
        "trb-gateway": (["tasks.bert-gateway"], 9000),
        "traefik": (["tasks.traefik"], 8080),
    }
    assert "monitoring/rules.yml" in files


def test_prometheus_asks_for_no_login_and_so_has_no_port_unless_that_is_asked_for(tmp_path: Path) -> None:
    assert "ports" not in stack(tmp_path)["services"]["prometheus"]
    asked = IMAGE.replace('"0.0.0.0"', '"0.0.0.0"\nmonitoring_host = "0.0.0.0"')
    (port,) = stack(tmp_path / "asked", asked)["services"]["prometheus"]["ports"]
    assert port["published"] == 9090
    none = asked.replace("monitoring_host", "prometheus_port = 0\nmonitoring_host")
    assert "ports" not in stack(tmp_path / "none", none)["services"]["prometheus"]
    with pytest.raises(TrbError, match=r"'exposure\.monitoring_host' is 10\.0\.0\.1, but Swarm"):
        stack(tmp_path / "one", asked.replace('host = "0.0.0.0"\n[', 'host = "10.0.0.1"\n['))


def test_the_stack_says_how_machines_get_images_of_a_private_registry(tmp_path: Path) -> None:
    text = rendered(tmp_path)[swarm.FILE]
    assert "#   docker stack deploy --with-registry-auth --compose-file stack.yml bert\n" in text


def test_libraries_of_a_python_environment_are_loaded_from_a_disk(tmp_path: Path) -> None:
    assert {"type": "tmpfs", "target": "/tmp"} in stack(tmp_path)["services"]["bert"]["volumes"]
    other = tmp_path / "other"
    config = other / "model_repository" / "step" / "config.pbtxt"
    file = folder(other, IMAGE)
    archive = '{ string_value: "$$TRITON_MODEL_DIRECTORY/environment.tar.gz" }'
    config.write_text(f'{config.read_text()}parameters {{ key: "EXECUTION_ENV_PATH" value {archive} }}\n')
    given = export.read(file, other / "deploy" / "swarm")
    server = yaml.safe_load(swarm.render(given)[swarm.FILE])["services"]["bert"]
    assert {"type": "volume", "target": "/tmp"} in server["volumes"]


def test_a_replica_pulls_from_a_registry_itself(tmp_path: Path) -> None:
    source = f"oci://registry.example/bert@sha256:{DIGEST}"
    text = f'{OWN}[repository]\nsource = "{source}"\n{GATEWAY}'
    services = stack(tmp_path, text)["services"]
    assert services["bert"]["image"] == "gate:1"
    assert services["bert"]["command"][2].startswith(f"trb pull {source} /tmp/repository || exit 1\n")
    assert "--model-repository=/tmp/repository" in services["bert"]["command"]
    assert "--repo=/tmp/repository" in services["bert-gateway"]["command"]
    assert {"type": "volume", "target": "/tmp"} in services["bert"]["volumes"]


def test_a_gateway_of_another_image_has_no_repository_unless_that_image_has_it(tmp_path: Path) -> None:
    """A stack has no init containers, and nothing is mounted at /models."""
    (note,) = swarm.notes(deployment(tmp_path / "two", IMAGE + GATEWAY, target="swarm"))
    assert "/models in its own image, gate:1" in note and "--gateway --repository" in note
    one = IMAGE + GATEWAY.replace("gate:1", "own:1")
    assert swarm.notes(deployment(tmp_path / "one", one, target="swarm")) == ()
    assert swarm.notes(deployment(tmp_path / "none", IMAGE, target="swarm")) == ()
    done = call("export", "swarm", "deploy.toml", cwd=tmp_path / "two")
    assert done.returncode == 0 and f"note: {note}" in " ".join(done.stderr.split())
    assert "note" not in call("export", "swarm", cwd=tmp_path / "one").stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN, "is folder, which the other machines of a swarm do not have"),
        (
            f'{OWN}[repository]\nsource = "git+https://h.example/r@{"1" * 40}#m"\n',
            "is git, which the other machines of a swarm do not have",
        ),
        (IMAGE.replace("0.0.0.0", "127.0.0.1"), "publishes a port on every address"),
        (f'{OWN}{GATEWAY}[repository]\nsource = "s3://m/b@sha256:{DIGEST}"\n', "which a gateway cannot read"),
        (f'{OWN}[repository]\nsource = "oci://r.example/b@sha256:{DIGEST}"\n', r"'gateway\.image' names no"),
    ],
)
def test_what_swarm_cannot_do_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrbError, match=message) as failure:
        stack(tmp_path, text)
    assert failure.value.code is Code.USAGE and failure.value.remedy


def test_tls_is_ended_by_traefik(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("certificate")
    (tmp_path / "key.pem").write_text("key")
    text = IMAGE.replace("[repository]", 'tls_certificate = "cert.pem"\ntls_key = "key.pem"\n[repository]')
    files = rendered(tmp_path, text + GATEWAY)
    made = yaml.safe_load(files[swarm.FILE])
    assert [each["source"] for each in made["services"]["traefik"]["secrets"]] == [
        "tls_certificate",
        "tls_key",
    ]
    routers = yaml.safe_load(files["traefik/routes.yml"])["http"]["routers"]
    assert {name: "tls" in router for name, router in routers.items()} == {
        "v2": True, "v2-grpc": True, "v2-inner": False, "gateway": True,
        "answers-grpc": True, "answers-inner": False,
    }  # fmt: skip
