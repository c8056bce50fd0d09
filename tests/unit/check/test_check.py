"""Every finding, on a repository that has just that fault; and none on one that has no fault.

A new file in tests/errors/repositories is a new test. ``TRB_EXPECT=write`` writes its ``expected``; the
diff is then for a person to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_repositories import ACCEPTED, GOOD, NAMES, case, findings, lay_out, release_of, write_expected

from triton_repo_builder import check
from triton_repo_builder import repository as repository_package
from triton_repo_builder.base import releases
from triton_repo_builder.check.codes import CODES, document

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_the_expected_ones(name: str, tmp_path: Path) -> None:
    repository = lay_out(name, tmp_path / "repository")
    text = "".join(f"{finding}\n" for finding in findings(repository, release_of(name)))
    text = text.replace(f"{repository}/", "").replace(f" {repository} ", " REPOSITORY ")
    if os.environ.get("TRB_EXPECT") == "write":
        write_expected(name, text)
        case.cache_clear()
    assert text
    assert text == case(name)["expected"]


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_loads_has_no_error(name: str, tmp_path: Path) -> None:
    """tests/integration/test_check_agrees.py loads them all on a real server."""
    repository = lay_out(name, tmp_path / "repository", GOOD)
    assert [str(finding) for finding in findings(repository) if finding.severity == "error"] == []


def test_a_version_that_a_placeholder_keeps_has_no_finding(tmp_path: Path) -> None:
    assert findings(lay_out("version-kept", tmp_path / "repository", GOOD)) == []


def test_each_code_has_a_repository() -> None:
    texts = "".join(case(name)["expected"] for name in NAMES)
    shown = set(re.findall(r" \[([a-z0-9-]+)\]$", texts, re.MULTILINE))
    # Those of a running server are in test_check_live.py, of an empty folder in cli/test_check.py.
    elsewhere = {"repository-empty", *(code for code in CODES if code.startswith("live-"))}
    assert shown == set(CODES) - elsewhere


def test_document_lists_each_code() -> None:
    written = (ROOT / "docs" / "checks.md").read_text()
    assert written.endswith(document())


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("field-too-new", "24.11"),
        ("field-too-new-ensemble", "25.11"),
        ("parameter-ignored", "25.02"),
        ("onnx-ir", "25.09"),
        ("onnx-opset", "25.03"),
    ],
)
def test_a_newer_release_takes_it(name: str, release: str, tmp_path: Path) -> None:
    repository = lay_out(name, tmp_path / "repository")
    assert findings(repository, releases.get(release)) == []
    older = [known for known in releases.load() if known < release][-1]
    assert [finding.code for finding in findings(repository, releases.get(older))] == [
        name.removesuffix("-ensemble")
    ]


def test_bf16_is_served_from_26_03_on(tmp_path: Path) -> None:
    repository = lay_out("onnx-type-unsupported", tmp_path / "repository")
    assert findings(repository, releases.get("26.03")) == []
    assert findings(repository, releases.get("26.02")) != []


@pytest.mark.parametrize(
    ("name", "older"),
    [("python-signature-is-ready", "26.02"), ("ensemble-inflight", "26.03")],
)
def test_an_older_release_has_not_that_fault(name: str, older: str, tmp_path: Path) -> None:
    repository = lay_out(name, tmp_path / "repository")
    assert findings(repository, releases.get(older)) == []
    assert findings(repository, release_of(name)) != []


def test_a_missing_model_py_hangs_only_older_releases(tmp_path: Path) -> None:
    repository = lay_out("model-file-missing-python", tmp_path / "repository")
    assert "never ends" in str(findings(repository, releases.get("25.08")))
    assert "never ends" not in str(findings(repository, releases.get("25.09")))


def test_a_batch_input_without_a_target_beside_warm_up(tmp_path: Path) -> None:
    repository = lay_out("batch-input-kind", tmp_path / "repository")
    config = repository / "m" / "config.pbtxt"
    text = config.read_text().replace('target_name: "T" ', "")
    warmup = 'inputs { key: "T" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }'
    config.write_text(f'{text}model_warmup {{ name: "w" batch_size: 1 {warmup} }}\n')
    assert {"batch-input", "warmup-inputs"} <= {finding.code for finding in findings(repository)}


def test_links_after_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = lay_out("max-batch-size-negative", tmp_path / "repository")
    (repository / "z").symlink_to("nowhere")
    read = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path == repository / "m":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    model = check.check(repository_package.read(repository, lenient=True), releases.default())
    assert {"link-dangling", "file-unreadable"} <= {finding.code for finding in model}
