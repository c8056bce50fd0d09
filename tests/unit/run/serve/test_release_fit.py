"""Models that use what a server's release lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder import repository
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.loading import release_fit, select

TENSORS = 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'  # noqa: E501
METRICS = 'model_metrics { metric_control [ { metric_identifier { family: "f" } histogram_options { buckets: [ 1 ] } } ] }\n'  # noqa: E501
ALLOCATOR = (
    'parameters { key: "session.use_device_allocator_for_initializers" value { string_value: "1" } }\n'
)
STEPS = (
    'platform: "ensemble"\nensemble_scheduling { max_inflight_requests: 64 step [ { model_name: "m" } ] }\n'
)


def lay_out(root: Path, text: str) -> tuple[repository.Repository, select.Targets]:
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.onnx").write_bytes(b"")
    (root / "m" / "config.pbtxt").write_text(TENSORS + text)
    read = repository.read(root)
    return read, select.choose(read, ())


@pytest.mark.parametrize(
    ("text", "without", "with_", "part"),
    [
        (METRICS, "2.51.0", "2.52.0", "model_metrics (the server refuses config.pbtxt)"),
        (ALLOCATOR, "2.54.0", "2.55.0", "session.use_device_allocator_for_initializers (it is ignored)"),
        (STEPS, "2.62.0", "2.63.0", "max_inflight_requests (the server refuses config.pbtxt)"),
    ],
)
def test_a_line_names_what_is_missing(tmp_path: Path, text: str, without: str, with_: str, part: str) -> None:
    read, chosen = lay_out(tmp_path, text)
    (line,) = release_fit.warnings(read, chosen, without)
    assert line.startswith("warning: m uses what this server, release 2") and line.endswith(part)
    assert [*release_fit.warnings(read, chosen, with_)] == []


def test_bf16_of_the_onnxruntime_backend(tmp_path: Path) -> None:
    read, chosen = lay_out(tmp_path, 'backend: "onnxruntime"\n')
    (tmp_path / "m" / "config.pbtxt").write_text(TENSORS.replace("FP32", "BF16") + 'backend: "onnxruntime"\n')
    assert [*release_fit.warnings(read, chosen, "2.51.0")] == []
    assert "TYPE_BF16" in next(release_fit.warnings(repository.read(tmp_path), chosen, "2.66.0"))
    assert [*release_fit.warnings(repository.read(tmp_path), chosen, "2.67.0")] == []


def test_histograms_are_switched_on_for_models_that_state_buckets(tmp_path: Path) -> None:
    options = ServeOptions()
    read, chosen = lay_out(tmp_path / "plain", "")
    assert release_fit.with_histograms(read, chosen, options) == options
    read, chosen = lay_out(tmp_path / "buckets", METRICS)
    once = release_fit.with_histograms(read, chosen, options)
    assert once.extra == (release_fit.HISTOGRAMS,)
    assert release_fit.with_histograms(read, chosen, once) == once
