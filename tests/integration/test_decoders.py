"""Really exported decoders: recognised, and refused in one sentence, with nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import options
from triton_repo_builder.model.read.option_checks import check
from triton_repo_builder.produce import build


@pytest.mark.parametrize(
    ("model", "sign"),
    [
        ("gpt2/model.onnx", "logits"),
        ("gpt2_past/model.onnx", "past_key_values.0.key"),
        ("t5_past/decoder_model.onnx", "encoder_hidden_states"),
        ("t5_past/decoder_model_merged.onnx", "encoder_hidden_states"),
        ("t5_past/decoder_with_past_model.onnx", "past_key_values.0.decoder.key"),
    ],
)
def test_a_decoder_is_refused(model: str, sign: str, task_exported: Path, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        build.build(check(options.BuildOptions(model=task_exported / model, output=tmp_path / "out")))
    assert caught.value.code == Code.UNSUPPORTED_MODEL
    assert caught.value.message.startswith("this is a decoder, which generates text (")
    assert caught.value.message.endswith(f"'{sign}'): trb builds no text generation")
    assert not (tmp_path / "out").exists()


def test_the_encoder_beside_it_is_none(task_exported: Path, tmp_path: Path) -> None:
    asked = options.BuildOptions(
        model=task_exported / "t5_past" / "encoder_model.onnx", pooling="mean", output=tmp_path / "out"
    )
    assert build.build(check(asked)).plan.task == "embedding"
