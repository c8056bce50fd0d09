"""What ``trb check`` would refuse is not built."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.render import config
from triton_repo_builder.produce import check_files

RELEASE = releases.default()


def test_what_is_built_has_no_errors(tmp_path: Path) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), tmp_path / "out")
    assert [str(f) for f in check_files.findings(made.files, RELEASE) if f.severity == "error"] == []


def test_findings_name_files_of_the_repository() -> None:
    files = [File(path="m/config.pbtxt", content=b'backend: "onnxruntime"\nmax_batch_size: "many"\n')]
    versions, finding = check_files.findings(files, RELEASE)
    assert (finding.code, versions.code) == ("config-syntax", "version-missing")
    assert finding.where.startswith("m/config.pbtxt")
    with pytest.raises(TrbError) as caught:
        check_files.refuse_errors("m", files, RELEASE)
    assert (caught.value.code, caught.value.where) == (Code.FAILED_CHECKS, "m")
    assert f"[{finding.code}]" in caught.value.message


def test_a_config_that_differs_from_the_graph_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in rendering: the server would refuse the model when it loads it."""
    render = config.config
    monkeypatch.setattr(config, "config", lambda model: render(model).replace("TYPE_FP32", "TYPE_INT8"))
    with pytest.raises(TrbError) as caught:
        tiny.make(tiny.tensor_model(tmp_path / "m.onnx"), tmp_path / "out")
    assert caught.value.code == Code.FAILED_CHECKS
    assert not (tmp_path / "out").exists()


def test_weights_are_not_copied_to_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny.make(tiny.embedder(tmp_path / "bert"), tmp_path / "out")
    monkeypatch.setattr("shutil.copyfile", lambda *args: pytest.fail("a file was copied"))
    found = [finding.code for finding in check_files.findings(made.files, RELEASE)]
    assert found == []
