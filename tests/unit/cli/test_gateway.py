"""``trb gateway`` and ``trb serve --openai``: which options they take, and what status says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import InvalidValue, Receiver, Share
from triton_repo_builder.cli import declared, gateway, group
from triton_repo_builder.cli.serve import ProcessOptions
from triton_repo_builder.cli.serve_openai import OpenAIOptions
from triton_repo_builder.run.client import Answer, HttpClient
from triton_repo_builder.run.gateway import server
from triton_repo_builder.run.gateway.options import GatewayOptions, ShadowOptions
from triton_repo_builder.run.options import ServeOptions

ENTRY = {
    "endpoint": "minilm",
    "compared": 1204,
    "dropped": 3,
    "failed": 0,
    "last_failure": None,
    "agreement": 0.9983,
    "measure": "cosine",
    "mean": 0.9987101,
    "worst": 0.98122,
    "primary_ms": {"p50": 4.12, "p99": 9.8},
    "shadow_ms": {"p50": None, "p99": None},
}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    document: dict[str, Any] = {"target": "2", "share": 0.05, "endpoints": [ENTRY]}
    monkeypatch.setattr(gateway, "_report", lambda url, key: document)
    return document


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    group.main(["gateway", "status", *arguments], prog_name="trb", standalone_mode=False)
    return capsys.readouterr().out


def test_status_is_a_table(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys)
    assert "shadow: version 2, 5 % of the requests" in text
    for cell in ("minilm", "1,204", "99.83 %", "0.998710", "0.981220", "4.1, 9.8"):
        assert cell in text
    report["endpoints"] = [{**ENTRY, "last_failure": "no answer within 30 s"}]
    assert "minilm: the last failure: no answer within 30 s" in said(capsys)


def test_status_without_a_shadow_or_a_gateway(
    monkeypatch: pytest.MonkeyPatch, report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report["target"] = None
    assert "--shadow" in said(capsys)
    monkeypatch.undo()
    with pytest.raises(TrbError) as error:
        said(capsys, "http://127.0.0.1:1")
    assert error.value.code is Code.UNREACHABLE


@pytest.mark.parametrize(("status", "words"), [(401, "API key"), (404, "status 404")])
def test_status_of_a_gateway_that_refuses(monkeypatch: pytest.MonkeyPatch, status: int, words: str) -> None:
    sent: list[Any] = []

    def send(client: HttpClient, method: str, path: str, body: Any) -> Answer:
        sent.append(body.headers)
        return Answer(status=status, headers={}, data=b"{}")

    monkeypatch.setattr(HttpClient, "send", send)
    with pytest.raises(TrbError) as error:
        gateway._report("http://127.0.0.1:9000", None)
    assert words in error.value.message and sent == [{}]


def test_status_sends_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef owner\n")

    def send(client: HttpClient, method: str, path: str, body: Any) -> Answer:
        assert (method, path) == ("GET", "/shadow")
        assert body.headers == {"Authorization": "Bearer 0123456789abcdef"}
        return Answer(status=200, headers={}, data=b'{"target": null, "endpoints": []}')

    monkeypatch.setattr(HttpClient, "send", send)
    assert gateway._report("http://127.0.0.1:9000", key)["endpoints"] == []
    with pytest.raises(TrbError) as error:
        gateway._report("http://127.0.0.1:9000", tmp_path / "none")
    assert error.value.code is Code.NOT_FOUND


def test_a_share_is_a_percentage_or_a_number() -> None:
    assert (Share().parse("5%"), Share().parse("0.05"), Share().parse("100%")) == (0.05, 0.05, 1.0)
    for text in ("%", "five%", "5%%"):
        with pytest.raises(InvalidValue):
            Share().parse(text)


@pytest.mark.parametrize(
    ("arguments", "where", "words"),
    [
        (["--share", "5", "--shadow", "2"], "--share", "500 %"),
        (["--share", "150%", "--shadow", "2"], "--share", "150 %"),
        (["--share", "-1%", "--shadow", "2"], "--share", "-1 %"),
        (["--share", "nan", "--shadow", "2"], "--share", "nan"),
        (["--share", "5%"], "--share", "no shadow"),
        (["--shadow", "foo"], "--shadow", "HOST:PORT or the number of a version"),
        (["--shadow", "foo:0"], "--shadow", "foo:0"),
        (["--shadow", "foo:65536"], "--shadow", "foo:65536"),
        (["--shadow", "http://10.0.0.7:8000"], "--shadow", "HTTP URL"),
        (["--shadow", "0"], "--shadow", "0 is not a version"),
        (["--shadow", str(2**63)], "--shadow", "is not a version"),
        (["--shadow", "127.0.0.1:8001"], "--shadow", "the gateway itself"),
        (["--shadow", "localhost:7", "--url", "grpcs://[::1]:7"], "--shadow", "the gateway itself"),
        (["--url", "http://127.0.0.1:8000"], "--url", "HTTP URL"),
        (["--url", "localhost"], "--url", "HOST:PORT"),
        (["--url", "https://triton:8001/v2"], "--url", "HTTP URL"),
    ],
)
def test_addresses_and_shares_that_make_no_sense(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], where: str, words: str
) -> None:
    monkeypatch.setattr(server, "run", lambda *_: pytest.fail("it runs"))
    with pytest.raises(TrbError) as error:
        group.main(["gateway", *arguments], prog_name="trb", standalone_mode=False)
    assert (error.value.code, error.value.where) == (Code.USAGE, where)
    assert words in error.value.message and error.value.remedy


@pytest.mark.parametrize(
    "arguments",
    [
        ["--shadow", "2", "--share", "100%"],
        ["--shadow", "grpcs://triton.example.com:443"],
        ["--shadow", "[fd00::1]:8001", "--share", "0.5"],
        ["--shadow", "127.0.0.1:8101", "--url", "127.0.0.1:8001"],
    ],
)
def test_addresses_and_shares_that_do(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    runs: list[Any] = []
    monkeypatch.setattr(server, "run", lambda *asked: runs.append(asked))
    group.main(["gateway", *arguments], prog_name="trb", standalone_mode=False)
    assert len(runs) == 1 and runs[0][1].shadow.target == arguments[1]


def test_a_repository_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for option in ("--repo", "--map"):
        with pytest.raises(TrbError) as error:
            arguments = ["gateway", "--port", "0", option, str(tmp_path / "none")]
            group.main(arguments, prog_name="trb", standalone_mode=False)
        assert (error.value.code, error.value.where) == (Code.NOT_FOUND, str(tmp_path / "none"))


def test_options_of_a_gateway_need_openai() -> None:
    keyed = GatewayOptions(keys=Path("/keys"))
    assert OpenAIOptions(on=True, gateway=keyed).checked().gateway is keyed
    for options in (OpenAIOptions(gateway=keyed), OpenAIOptions(port=9001)):
        with pytest.raises(click.UsageError):
            options.checked()


def test_traces_and_the_logs_form_are_options_of_server_and_gateway() -> None:
    shared = GatewayOptions(trace="http://a:4318/v1/traces", trace_rate=10, log_format="json")
    alone = OpenAIOptions(gateway=shared).checked().applied(ServeOptions())
    assert (alone.trace, alone.trace_rate, alone.log_json) == ("http://a:4318/v1/traces", 10, True)
    # The gateway decides, and Triton traces what it is handed.
    assert OpenAIOptions(on=True, gateway=shared).applied(ServeOptions()).trace_rate == 0
    assert (
        not OpenAIOptions(gateway=GatewayOptions(log_format="text"))
        .checked()
        .applied(ServeOptions())
        .log_json
    )


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("otlp://collector", "http://collector:4318/v1/traces"),
        ("otlp://127.0.0.1:9/", "http://127.0.0.1:9/v1/traces"),
        ("otlps://c.example:443/api/otel/v1/traces?x=1", "https://c.example:443/api/otel/v1/traces?x=1"),
        ("otlp://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
    ],
)
def test_addresses_of_receivers(text: str, url: str) -> None:
    assert Receiver().parse(text) == url == Receiver().parse(url)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "collector:4318",
        "grpc://a:4317",
        "otlp://",
        "otlp://a:x",
        "otlp://a b",
        "otlp://u:p@a",
        "otlp://a:0",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Receiver().parse(text)


def test_the_options_reach_a_server_in_the_background_and_the_gateway() -> None:
    shadow = ShadowOptions(target="2", share=0.5)
    openai = OpenAIOptions(on=True, port=9001, gateway=GatewayOptions(keys=Path("/keys"), shadow=shadow))
    flags = {"--api-keys=/keys", "--shadow=2", "--share=0.5"}
    assert {*declared.arguments(openai.gateway)} == flags
    assert {*declared.arguments(ProcessOptions(openai=openai))} == {"--openai", "--openai-port=9001", *flags}


def test_a_missing_package_is_said_before_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PACKAGES", ("orjson", "not_installed_at_all"))
    with pytest.raises(TrbError) as error:
        OpenAIOptions(on=True, port=0).prepared("127.0.0.1")
    assert error.value.code is Code.ENGINE_MISSING and "not_installed_at_all" in error.value.message
    assert OpenAIOptions(port=0).prepared("127.0.0.1").port == 0


@pytest.mark.parametrize("name", ["keys", "map"])
def test_a_wrong_file_is_said_before_a_server_starts(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {name: tmp_path / "none"}
    with pytest.raises(TrbError) as error:
        OpenAIOptions(on=True, port=0, gateway=GatewayOptions(**options)).prepared("127.0.0.1")
    assert error.value.code is Code.NOT_FOUND


def test_a_free_port_is_chosen_before_a_server_starts() -> None:
    prepared = OpenAIOptions(on=True, port=0).prepared("127.0.0.1")
    assert prepared.port > 0 and prepared.host == "127.0.0.1"
