"""``trb smoke`` against a real server: passes where all is well, and sees each deliberate defect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import smoke_repository as made
from tests.support.raw_server import RawServer, raw_server
from triton_repo_builder.base.errors import Code
from triton_repo_builder.cli import main

pytestmark = pytest.mark.server

DEFECTS = {
    "neighbour": "depends on its neighbour",
    "unlucky": "500 beside another request",
    "fragile": "dies of bad UTF-8",
    "second": "wrong the second time",
    "sleepy": "sleeps over long texts",
    "nul": "500 for NUL",
    "lost": "lost row",
}

Smoke = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("smoke") / "repository"
    made.add_model(root, "good")
    made.add_model(root, "half", "half", "FP16")
    endpoints = {
        "good": made.endpoint("good", made.record(root, "good")),
        "half": made.endpoint("half", made.record(root, "half", datatype="FP16"), datatype="FP16"),
    }
    for name, defect in DEFECTS.items():
        made.add_model(root, name, defect)
        endpoints[name] = made.endpoint(name, made.record(root, name))
    made.write_manifest(root, endpoints)
    made.add_tensor_model(root, "tensor", 4)
    made.add_tensor_model(root, "single", 0)
    made.add_tensor_model(root, "centred", 4, "centred over the batch")
    made.add_stream(root, "stream")
    return root


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    """One server for all: a defect harms its own endpoint only, and each endpoint has one test."""
    # A dead stub never ends: do not wait 30 s for it.
    arguments = ("--disable-auto-complete-config", "--exit-timeout-secs=2")
    with raw_server(repository, tmp_path_factory.mktemp("server"), arguments=arguments) as running:
        yield running


@pytest.fixture
def smoke(server: RawServer, capfd: pytest.CaptureFixture[str]) -> Smoke:
    """Run ``trb smoke`` on the server: exit code and standard output."""

    def run(*arguments: object) -> tuple[int, str]:
        argv = ["smoke", *map(str, arguments), "--url", server.http, "--grpc-url", server.grpc]
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(argv)
        return int(end.value.code or 0), capfd.readouterr().out

    return run


def failed(text: str) -> list[dict[str, Any]]:
    return [check for check in json.loads(text)["checks"] if check["status"] == "failed"]


def copy(repository: Path, to: Path) -> Path:
    """The same repository with other statements about the same server."""
    shutil.copytree(repository, to, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def test_a_good_endpoint_passes(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    code, text = smoke(repository, "--endpoint", "good", "--json", "--junit", tmp_path / "smoke.xml")
    report = json.loads(text)
    assert (code, report["ok"], report["parity_proven"]) == (0, True, True), text
    assert set(report["counts"]) == {"passed", "failed", "unverified", "skipped"}
    golden = [c for c in report["checks"] if c["group"] == "golden cases"]
    assert {(c["name"], c["protocol"]) for c in golden} == {
        (f"text-{number}", protocol) for number in range(3) for protocol in ("gRPC", "HTTP JSON")
    }
    assert all(c["difference"] <= c["allowed"] == 1e-5 for c in golden)
    executions = {c["name"]: c["detail"] for c in report["checks"] if c["group"] == "executions"}
    assert executions.keys() == {"good", "good_model"}
    assert "128 rows in" in executions["good_model"]
    suite = ElementTree.parse(tmp_path / "smoke.xml").getroot()[0]
    assert suite.tag == "testsuite"
    assert len(suite.findall("testcase")) == len(report["checks"]) == int(suite.attrib["tests"])
    assert suite.attrib["failures"] == suite.attrib["errors"] == "0"


@pytest.mark.parametrize(("endpoint", "groups"), [("good", set()), ("neighbour", {"in a batch"})])
def test_steps_of_8_bits_are_allowed_alone_and_never_in_a_batch(
    endpoint: str, groups: set[str], smoke: Smoke, repository: Path, tmp_path: Path
) -> None:
    rounded = copy(repository, tmp_path / "rounded")
    file = rounded / endpoint / "smoke.json"
    document = json.loads(file.read_text())
    document["tolerance"]["alone"] = 0.1
    for case in document["cases"]:
        for output in case["outputs"]:
            output["data"] = [value + 0.02 for value in output["data"]]
    file.write_text(json.dumps(document))
    code, text = smoke(rounded, "--endpoint", endpoint, "--json")
    assert (code == 0, {check["group"] for check in failed(text)} >= groups) == (not groups, True), text
    found = {check["group"]: check["allowed"] for check in json.loads(text)["checks"] if check["allowed"]}
    assert found["golden cases"] == 0.1 and found["in a batch"] == 1e-5


def test_the_table_names_every_check_and_has_no_colour_in_a_pipe(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "good")
    assert code == 0
    assert "\x1b" not in text
    for group in (
        "metadata",
        "golden cases",
        "in a batch",
        "beside another request",
        "batch limit",
        "concurrent clients",
        "executions",
        "malformed requests",
    ):
        assert group in text
    assert "max difference" in text
    assert text.splitlines()[-1].startswith("OK ")
    assert "tritonserver 2.51.0" in text.splitlines()[-1]


def test_half_floats_travel_as_binary_tensors_and_smoke_says_so(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "half", "--json")
    assert code == 0, text
    golden = [check for check in json.loads(text)["checks"] if check["group"] == "golden cases"]
    assert {check["protocol"] for check in golden} == {"gRPC", "HTTP binary"}
    said = {check["detail"] for check in golden if check["protocol"] == "HTTP binary"}
    assert said == {"binary tensors: JSON cannot carry 16-bit floats"}


def test_a_wrong_recorded_number_fails(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    made.record(root, "good", off=0.25)
    code, text = smoke(root, "--endpoint", "good", "--json", "--junit", tmp_path / "smoke.xml")
    assert code == Code.FAILED_CHECKS.exit
    wrong = [check for check in failed(text) if check["group"] == "golden cases"]
    assert {check["protocol"] for check in wrong} == {"gRPC", "HTTP JSON"}
    assert {check["name"] for check in wrong} == {"text-2"}
    assert "output embedding[0, 3]: expected" in wrong[0]["detail"]
    assert abs(wrong[0]["difference"] - 0.25) < 1e-6
    suite = ElementTree.parse(tmp_path / "smoke.xml").getroot()[0]
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == len(failed(text))


def test_nothing_is_probed_where_the_first_case_is_wrong(
    smoke: Smoke, repository: Path, tmp_path: Path
) -> None:
    root = copy(repository, tmp_path / "repository")
    cases_file = root / "good" / "smoke.json"
    document = json.loads(cases_file.read_text())
    document["cases"][0]["outputs"][0]["data"][0] += 0.25
    cases_file.write_text(json.dumps(document))
    code, text = smoke(root, "--endpoint", "good", "--json")
    assert code == Code.FAILED_CHECKS.exit
    probed = [check for check in json.loads(text)["checks"] if check["group"] == "malformed requests"]
    assert [check["status"] for check in probed] == ["unverified"]
    assert "the first case is not answered right: output embedding" in probed[0]["detail"]


def test_a_wrong_shape_in_the_manifest_fails(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    made.write_manifest(root, {"good": made.endpoint("good", "good/smoke.json", output=(-1, 5))})
    code, text = smoke(root, "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert [(check["name"], check["protocol"]) for check in failed(text)] == [
        ("metadata equals manifest.json", "HTTP"),
        ("metadata equals manifest.json", "gRPC"),
    ]
    assert failed(text)[0]["detail"] == (
        "output: manifest.json has embedding FP32[-1, 5], the server has embedding FP32[-1, 4]"
    )


def test_a_wrong_batch_size_in_the_manifest_fails(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    made.write_manifest(root, {"good": made.endpoint("good", "good/smoke.json", size=16)})
    code, text = smoke(root, "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert [check["name"] for check in failed(text)] == ["max_batch_size"]


def test_an_endpoint_that_the_server_lacks_fails(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    made.write_manifest(root, {"gone": made.endpoint("gone", "good/smoke.json")})
    code, text = smoke(root)
    assert code == Code.FAILED_CHECKS.exit
    assert "expected the server to serve gone, got 404" in text


def test_an_answer_that_depends_on_its_neighbour_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "neighbour", "--json")
    assert code == Code.FAILED_CHECKS.exit
    groups = {check["group"] for check in failed(text)}
    assert "in a batch" in groups
    assert not groups & {"golden cases", "concurrent clients", "malformed requests"}


def test_a_lost_row_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "lost")
    assert code == Code.FAILED_CHECKS.exit
    # The ensemble passes on what its step gives, or refuses it: either way it is no answer of two rows.
    assert "FAILED lost · in a batch · text-0 · gRPC" in text


def test_a_500_beside_another_request_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "unlucky", "--json")
    assert code == Code.FAILED_CHECKS.exit
    groups = {check["group"] for check in failed(text)}
    assert "concurrent clients" in groups
    assert "golden cases" not in groups
    answers = next(check for check in failed(text) if check["group"] == "concurrent clients")
    assert "of 128 requests" in answers["detail"]
    assert "out of luck" in answers["detail"]


def test_a_stub_that_dies_of_bad_utf8_fails_and_stops_the_probing(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "fragile", "--timeout", "5", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert {check["group"] for check in failed(text)} == {"malformed requests"}
    assert "a text that is not UTF-8, then a sound request" in {check["name"] for check in failed(text)}
    rest = [check for check in json.loads(text)["checks"] if check["status"] == "unverified"]
    assert rest
    assert all("did not recover from a text that is not UTF-8 (gRPC)" in check["detail"] for check in rest)


def test_a_wrong_answer_to_a_second_request_only_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "second", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert [(check["group"], check["name"], check["protocol"]) for check in failed(text)] == [
        ("golden cases", "text-1", "gRPC")
    ]


def test_a_request_without_an_answer_in_time_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "sleepy", "--timeout", "1.5", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert any("no answer within 1.5 s" in check["detail"] for check in failed(text))
    assert {check["group"] for check in failed(text)} == {"malformed requests"}


def test_a_server_error_for_a_strange_text_fails(smoke: Smoke, repository: Path) -> None:
    code, text = smoke(repository, "--endpoint", "nul", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert {check["name"] for check in failed(text)} == {"a text with a NUL"}


def test_a_repository_without_manifest_never_claims_parity(
    smoke: Smoke, repository: Path, tmp_path: Path
) -> None:
    root = copy(repository, tmp_path / "repository")
    (root / "manifest.json").unlink()
    code, text = smoke(root, "--endpoint", "good")
    assert code == Code.FAILED_CHECKS.exit
    assert "NOT CHECKED good · golden cases · parity with the original model" in text
    assert "it was not built by trb" in text
    code, text = smoke(root, "--endpoint", "good", "--no-cases", "--json")
    report = json.loads(text)
    assert (code, report["ok"], report["parity_proven"]) == (0, True, False), text
    groups = {check["group"] for check in report["checks"] if check["status"] == "passed"}
    assert "golden cases" not in groups
    assert {"metadata", "repeatability", "in a batch", "concurrent clients", "malformed requests"} <= groups
    # Consistency is checked, not only claimed.
    code, text = smoke(root, "--endpoint", "neighbour", "--no-cases", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert "in a batch" in {check["group"] for check in failed(text)}


def test_tensor_endpoints_without_cases(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    (root / "manifest.json").unlink()
    code, text = smoke(root, "--endpoint", "tensor", "--endpoint", "single", "--no-cases", "--json")
    report = json.loads(text)
    assert (code, report["endpoints"]) == (0, ["single", "tensor"]), text
    batched = {c["endpoint"]: c["status"] for c in report["checks"] if c["group"] == "in a batch"}
    assert batched == {"single": "skipped", "tensor": "passed"}
    assert {"data shorter than the shape", "X missing"} <= {c["name"] for c in report["checks"]}
    code, text = smoke(root, "--endpoint", "centred", "--no-cases", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert {"in a batch", "batch limit"} == {check["group"] for check in failed(text)}


def test_a_decoupled_endpoint_is_skipped_and_counted(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    (root / "manifest.json").unlink()
    code, text = smoke(root, "--endpoint", "stream", "--json")
    report = json.loads(text)
    skipped = {check["group"]: check["detail"] for check in report["checks"] if check["status"] == "skipped"}
    assert (code, report["counts"]["skipped"], report["parity_proven"]) == (0, 4, False), text
    assert skipped.keys() == {"golden cases", "in a batch", "concurrent clients", "malformed requests"}
    assert all(detail.startswith("decoupled: ") for detail in skipped.values())
    assert "4 skipped" in smoke(root, "--endpoint", "stream")[1]


def test_unreadable_golden_cases_are_an_error_unless_left_out(
    smoke: Smoke, repository: Path, tmp_path: Path
) -> None:
    root = copy(repository, tmp_path / "repository")
    (root / "good" / "smoke.json").write_text('{"cases": [{}]}')
    assert smoke(root, "--endpoint", "good") == (Code.REPOSITORY_UNREADABLE.exit, "")
    (root / "good" / "smoke.json").unlink()
    assert smoke(root, "--endpoint", "good") == (Code.REPOSITORY_UNREADABLE.exit, "")
    code, text = smoke(root, "--endpoint", "good", "--no-cases")
    assert code == 0, text


def test_an_unknown_endpoint_is_a_usage_error(smoke: Smoke, repository: Path) -> None:
    assert smoke(repository, "--endpoint", "no-such-thing") == (Code.USAGE.exit, "")


def test_a_junit_file_that_cannot_be_written(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    code, _ = smoke(repository, "--endpoint", "good", "--quiet", "--junit", tmp_path / "no" / "smoke.xml")
    assert code == Code.OUTPUT_NOT_WRITABLE.exit


def test_config_pbtxt_is_held_against_the_server(smoke: Smoke, repository: Path, tmp_path: Path) -> None:
    root = copy(repository, tmp_path / "repository")
    (root / "manifest.json").unlink()
    config = root / "good" / "config.pbtxt"
    config.write_text(config.read_text().replace("dims: [4]", "dims: [7]"))
    code, text = smoke(root, "--endpoint", "good", "--no-cases", "--json")
    assert code == Code.FAILED_CHECKS.exit
    assert {check["name"] for check in failed(text)} == {"metadata equals config.pbtxt"}


def test_a_server_without_any_local_repository(
    smoke: Smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = smoke("--endpoint", "good")
    assert code == Code.FAILED_CHECKS.exit
    assert "no local repository was given" in text
    code, text = smoke("--endpoint", "good", "--no-cases", "--quiet")
    assert code == 0, text
    assert text.startswith("OK ")
    assert "parity with the original model is unproven" in text
    assert len(text.splitlines()) == 1


def test_grpc_that_does_not_answer_names_the_option(
    server: RawServer, repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["smoke", str(repository), "--url", server.http, "--grpc-url", "127.0.0.1:1", "--timeout", "5"])
    assert end.value.code == Code.UNREACHABLE.exit
    assert "--grpc-url HOST:PORT" in capfd.readouterr().err


def test_a_dead_port_is_unreachable(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["smoke", str(repository), "--url", "http://127.0.0.1:1"])
    assert end.value.code == Code.UNREACHABLE.exit
    output = capfd.readouterr()
    assert output.out == ""
    assert "http://127.0.0.1:1: no tritonserver answers" in output.err
    assert "trb serve" in output.err


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "127.0.0.1:99999", "http://[::1"])
def test_what_is_no_url_is_a_usage_error(
    repository: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["smoke", str(repository), "--url", url])
    assert end.value.code == Code.USAGE.exit
    assert "http://localhost:8000" in capfd.readouterr().err


def test_without_url_it_starts_and_stops_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "model_repository"
    made.add_model(root, "good")
    made.write_manifest(root, {"good": made.endpoint("good", made.record(root, "good"))})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["smoke", "--json"])
    report = json.loads(capfd.readouterr().out)
    assert (end.value.code or 0, report["ok"], report["parity_proven"]) == (0, True, True)
    with pytest.raises(SystemExit) as end:
        main(["smoke", "--url", report["url"]])
    assert end.value.code == Code.UNREACHABLE.exit
