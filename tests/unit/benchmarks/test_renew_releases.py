"""``make releases``: the tables of releases.toml from excerpts of the form of NVIDIA's pages."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from triton_repo_builder.base.files import load_toml

ROOT = Path(__file__).resolve().parents[3]
KNOWN = """\
# What each release brings.
read = 2026-01-01
source = "before"

[onnxruntime]
"1.24.4" = { max_ir = 13, max_opset = 25 }  # measured

# The first release that has it.
[features]
one = "26.07"

[releases]
"26.07" = { server = "2.71.0", onnxruntime = "1.24.4", python = "3.12", cuda = "13.3.0" }
"""
PAGE = """\
# Release Compatibility Matrix

## Container Name: vllm-python-py3

| Triton release version	 | NGC Tag	 | Python version	 | vLLM version | CUDA version |
| --- | --- | --- | --- | --- |
| 26.09 | tag | Python 3.12.3 | 0.3 | 13.4.2.001 |
| 26.08 | tag | Python 3.12.3 | 0.2 | 13.4.1.012 |
| 26.07 | tag | Python 3.12.3 | 0.1 | 13.3.0.035 |

## ONNX Runtime Versions

| Triton release version	 | ONNX Runtime	 |
| --- | --- |
| 26.09 | 1.28.0+1d1712fdaf |
| 26.08 | 1.27.0 |
| 26.07 | 1.24.4 |
"""
BUILD = """
DEFAULT_TRITON_VERSION_MAP = {{
    "release_version": "{server}",
    "triton_container_version": "{name}",
    "ort_version": "{runtime}",
}}
"""
BUILDS = {
    "r26.07": BUILD.format(server="2.71.0", name="26.07", runtime="1.24.4"),
    "r26.08": BUILD.format(server="2.72.0", name="26.08", runtime="1.27.0"),
    "r26.09": BUILD.format(server="2.73.0", name="26.09", runtime="1.28.0"),
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import renew_releases

    return renew_releases


def renewed(script: ModuleType, page: str = PAGE, builds: dict[str, str] = BUILDS, known: str = KNOWN) -> str:
    def read(ref: str, path: str) -> str | None:
        return None if ref not in builds else {script.COMPATIBILITY: page, script.BUILD: builds[ref]}[path]

    limits: Callable[[str], tuple[int, int]] = {"1.27.0": (13, 26), "1.28.0-pre": (14, 27)}.__getitem__
    text: str = script.renewed(
        known, read, limits, today=datetime.date(2026, 11, 28), commit=lambda ref: f"sha of {ref}"
    )
    return text


def test_new_releases_are_added_and_all_else_stays(script: ModuleType) -> None:
    text = renewed(script)
    added = [line for line in text.splitlines() if line not in KNOWN.splitlines()]
    assert added == [
        "read = 2026-11-28",
        'source = "triton-inference-server/server, branch r26.09, commit sha of r26.09"',
        '"1.27.0" = { max_ir = 13, max_opset = 26 }',
        '"1.28.0-pre" = { max_ir = 14, max_opset = 27 }',
        '"26.08" = { server = "2.72.0", onnxruntime = "1.27.0", python = "3.12", cuda = "13.4.1" }',
        '"26.09" = { server = "2.73.0", onnxruntime = "1.28.0-pre", python = "3.12", cuda = "13.4.2" }',
    ]
    stayed = [line for line in KNOWN.splitlines() if not line.startswith(("read", "source"))]
    assert [line for line in text.splitlines() if line in stayed] == stayed
    assert list(load_toml(text)["onnxruntime"]) == ["1.24.4", "1.27.0", "1.28.0-pre"]


def test_a_second_time_changes_nothing(script: ModuleType) -> None:
    once = renewed(script)
    assert renewed(script, known=once) == once


@pytest.mark.parametrize(
    ("page", "builds", "message"),
    [
        ("# nothing\n", BUILDS, "has no table"),
        (PAGE.replace("| 26.08 | 1.27.0 |\n", ""), BUILDS, "does not list it"),
        (PAGE.replace("| 26.08 | 1.27.0 |", "| 26.08 | soon |"), BUILDS, "ONNX Runtime of 26.08 is 'soon'"),
        (PAGE.replace("| 26.08 | 1.27.0 |", "| 26.8 | 1.27.0 |"), BUILDS, "has the row"),
        (PAGE.replace("| 26.07 | 1.24.4 |", "| 26.07 | 1.24.3 |"), BUILDS, "26.07 differs"),
        (PAGE, {**BUILDS, "r26.08": BUILDS["r26.09"]}, "is of 26.09"),
        (PAGE, {**BUILDS, "r26.08": BUILDS["r26.08"].replace("1.27.0", "1.26.0")}, "1.26.0 in build.py"),
        (PAGE, {**BUILDS, "r26.08": BUILDS["r26.08"].replace("2.72", "2.70")}, "would go back"),
        (PAGE, {**BUILDS, "r26.08": "VERSIONS = {}"}, "no DEFAULT_TRITON_VERSION_MAP"),
        (PAGE, {"r26.08": BUILDS["r26.08"]}, "no branch r26.07"),
    ],
)
def test_nonsense_is_refused(script: ModuleType, page: str, builds: dict[str, str], message: str) -> None:
    with pytest.raises(script.Nonsense, match=message):
        renewed(script, page, builds)


def test_months_follow_each_other_over_a_year(script: ModuleType) -> None:
    assert script.months_after("26.11")[:3] == ["26.12", "27.01", "27.02"]


def test_a_clone_that_is_none_changes_nothing(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "releases.toml"
    file.write_text(KNOWN)
    monkeypatch.setattr(script, "FILE", file)
    monkeypatch.setattr(script, "of_clone", lambda folder: (lambda ref, path: None, str))
    monkeypatch.setattr("sys.argv", ["renew_releases.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="is unchanged"):
        script.main()
    assert file.read_text() == KNOWN
