"""The report: what counts as success, and its three forms."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from triton_repo_builder.cli.smoke import print_report
from triton_repo_builder.run.smoke import (
    Check,
    SmokeReport,
    Status,
    junit,
)

GOOD = Check(
    group="golden cases",
    name="short",
    endpoint="bert",
    protocol="gRPC",
    status=Status.PASSED,
    difference=1e-7,
    allowed=1e-4,
    milliseconds=2.0,
)


def report(*checks: Check) -> SmokeReport:
    return SmokeReport(
        url="http://127.0.0.1:8000",
        grpc_url="127.0.0.1:8001",
        server_version="2.51.0",
        repository="model_repository",
        endpoints=("bert",),
        checks=checks,
    )


@pytest.mark.parametrize(
    ("status", "ok"),
    [(Status.PASSED, True), (Status.SKIPPED, True), (Status.FAILED, False), (Status.UNVERIFIED, False)],
)
def test_only_what_holds_or_does_not_apply_is_success(status: Status, ok: bool) -> None:
    assert report(GOOD, replace(GOOD, name="other", status=status)).ok is ok


def test_no_check_at_all_is_no_success() -> None:
    assert not report().ok


def test_parity_is_proven_by_golden_cases_of_every_endpoint_only() -> None:
    assert report(GOOD).proven
    assert not replace(report(GOOD), endpoints=("bert", "other")).proven
    assert not report(replace(GOOD, group="repeatability")).proven
    assert not report(GOOD, replace(GOOD, status=Status.SKIPPED)).proven


def test_a_line_shows_the_worst_of_its_checks() -> None:
    worse = replace(GOOD, name="long", difference=3e-5)
    other = replace(GOOD, protocol="HTTP JSON")
    lines = list(report(GOOD, other, worse).lines())
    assert [(len(line.checks), line.checks[0].protocol) for line in lines] == [(2, "gRPC"), (1, "HTTP JSON")]
    assert lines[0].detail == "max difference 3e-05, allowed 0.0001"
    assert lines[0].milliseconds == 4.0
    failed = replace(worse, status=Status.FAILED, detail="expected 1, got 2")
    assert next(report(GOOD, failed).lines()).status is Status.FAILED


def test_json_has_no_infinity() -> None:
    bad = replace(GOOD, status=Status.FAILED, difference=float("inf"), detail="shape")
    text = json.dumps(report(bad).to_json(), allow_nan=False)
    document = json.loads(text)
    assert document["ok"] is False
    assert document["counts"] == {"passed": 0, "failed": 1, "unverified": 0, "skipped": 0}
    assert document["checks"][0]["difference"] is None
    assert document["checks"][0]["status"] == "failed"


def test_junit_has_one_case_per_check_and_survives_control_characters() -> None:
    detail = "expected 'a', got '\x00\x1b<&\ud800'"
    bad = replace(GOOD, status=Status.FAILED, detail=detail)
    missing = replace(GOOD, status=Status.UNVERIFIED, detail="no cases")
    left = replace(GOOD, status=Status.SKIPPED, detail="does not apply")
    root = ElementTree.fromstring(junit(report(GOOD, bad, missing, left)).encode())
    suite = root[0]
    assert [len(case) and case[0].tag for case in suite] == [0, "failure", "error", "skipped"]
    counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    assert suite[1][0].text == "expected 'a', got '\ufffd\ufffd<&\ufffd'"
    assert suite[0].attrib == {
        "classname": "bert.golden cases",
        "name": "short (gRPC)",
        "time": "0.002",
    }


def test_failures_are_spelled_out_below_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    bad = replace(GOOD, status=Status.FAILED, detail="expected [bold]1[/bold], got 2")
    print_report(report(GOOD, bad))
    text = capsys.readouterr().out
    assert "FAILED 1 of 2" in text
    assert "FAILED bert · golden cases · short · gRPC\n    expected [bold]1[/bold], got 2\n" in text
    assert text.splitlines()[-1].startswith("FAILED 1 passed, 1 failed; parity")
    print_report(report(*[replace(bad, name=f"case {place}") for place in range(43)], bad), quiet=True)
    text = capsys.readouterr().out
    assert text.count("expected [bold]1[/bold], got 2") == 3
    assert "FAILED bert · golden cases · and 41 more; --json and --junit have all\n" in text
    assert "44 failed" in text
    print_report(report(GOOD), quiet=True)
    assert capsys.readouterr().out.startswith("OK 1 passed: tritonserver 2.51.0 at http://127.0.0.1:8000")
