from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_sounds
import transformers

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.golden import audio as golden
from triton_repo_builder.model.read import audio_processor


def read(folder: Path, config: dict[str, Any] | None = None, **changed: Any) -> audio_processor.AudioSpec:
    file = tiny.put_json(folder / "preprocessor_config.json", {**tiny_sounds.PROCESSOR, **changed})
    return audio_processor.read(file, config or {})


def test_settings(tmp_path: Path) -> None:
    convolutions = {"conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_stride": [5, 2, 2, 2, 2, 2, 2]}
    assert read(tmp_path, convolutions, sampling_rate=8_000, do_normalize=False).settings() == {
        "sampling_rate": 8_000,
        "do_normalize": False,
        "least_samples": 400,  # as of Wav2Vec2: 25 ms at 16 kHz
        "most_seconds": 120.0,
    }


@pytest.mark.parametrize(
    "config",
    [{}, {"conv_kernel": [2]}, {"conv_kernel": [2], "conv_stride": [1, 2]}, {"conv_kernel": 2},
     {"conv_kernel": ["a"], "conv_stride": [1]}, {"conv_kernel": [0], "conv_stride": [0]}],
)  # fmt: skip
def test_without_convolutions_any_length_will_do(config: dict[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path, config).least == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"feature_extractor_type": "ASTFeatureExtractor"},
            "ASTFeatureExtractor is not served, only Wav2Vec2",
        ),
        ({"feature_extractor_type": None}, "no class is not served"),
        ({"sampling_rate": 16_000.5}, "sampling_rate is 16000.5, not a number from 1000 to 384000"),
        ({"sampling_rate": "fast"}, "sampling_rate is 'fast'"),
        ({"sampling_rate": 0}, "sampling_rate is 0"),
        ({"feature_size": 80}, "feature_size is 80, not 1"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        read(tmp_path, **changed)
    assert caught.value.code is Code.UNSUPPORTED_MODEL
    assert message in caught.value.message
    assert caught.value.where == str(tmp_path / "preprocessor_config.json")
    assert "--task tensor" in caught.value.remedy


def test_what_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_bytes(b"{")
    with pytest.raises(TrbError, match="is not readable JSON"):
        audio_processor.read(tmp_path / "preprocessor_config.json", {})


@pytest.mark.parametrize("normalize", [True, False])
def test_the_served_samples_are_those_of_transformers(normalize: bool, tmp_path: Path) -> None:
    sounds = golden.sounds()
    values = audio_processor.prove(read(tmp_path, do_normalize=normalize), list(sounds.values()))
    assert [value.shape for value in values] == [(8_000,)] * len(sounds)
    assert all(abs(value.std() - 1) < 0.01 for value in values) == normalize


def test_another_rule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def louder(self: Any, values: Any, **given: Any) -> dict[str, Any]:
        return {"input_values": [np.asarray(values) * 2]}

    monkeypatch.setattr(transformers.Wav2Vec2FeatureExtractor, "__call__", louder)
    with pytest.raises(TrbError, match="does something else than normalising the samples"):
        audio_processor.prove(read(tmp_path), list(golden.sounds().values()))


@pytest.mark.parametrize("there", [True, False])
def test_a_library_of_another_system(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("_soundfile_data", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if there else None)
    with pytest.raises(TrbError, match="does not hold libsndfile for Linux x86-64"):
        audio_processor.library()
