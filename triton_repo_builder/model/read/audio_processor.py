"""preprocessor_config.json → how an audio file becomes the model's input, and transformers' own way to do it.

Only Wav2Vec2FeatureExtractor, of which the samples themselves are the input (Wav2Vec2, HuBERT, WavLM,
UniSpeech, SEW, Data2Vec-audio). ``prove`` runs the served code beside transformers'.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line
from triton_repo_builder.model.read import image_processor, transformers_library

KIND = "Wav2Vec2FeatureExtractor"
SECONDS = 120.0
"""Longest file: attention over more takes gigabytes."""
RATES = range(1_000, 384_001)
CLOSE = 1e-5
LIBRARY = "libsndfile_x86_64.so"


@dataclass(frozen=True, kw_only=True)
class AudioSpec:
    """One preprocessing."""

    file: Path
    sampling_rate: int
    do_normalize: bool
    document: Mapping[str, Any]
    """The file's content."""
    least: int
    """Fewest samples that the model's convolutions take."""

    def settings(self) -> dict[str, Any]:
        """Content of ``preprocess.json``, which the served code reads."""
        return {
            "sampling_rate": self.sampling_rate,
            "do_normalize": self.do_normalize,
            "least_samples": self.least,
            "most_seconds": SECONDS,
        }


def kind(file: Path) -> str:
    """The class that the file names; empty if it names none."""
    return str(_json(file).get("feature_extractor_type", ""))


def read(file: Path, config: Mapping[str, Any]) -> AudioSpec:
    """The preprocessing that a file describes. Raises ``TrbError`` UNSUPPORTED_MODEL."""
    raw = _json(file)
    if raw.get("feature_extractor_type") != KIND:
        raise _refused(file, f"{raw.get('feature_extractor_type') or 'no class'} is not served, only {KIND}")
    rate = raw.get("sampling_rate", 16_000)
    if not isinstance(rate, int) or rate not in RATES:
        raise _refused(
            file, f"sampling_rate is {rate!r}, not a number from {RATES.start} to {RATES.stop - 1}"
        )
    if raw.get("feature_size", 1) != 1:
        raise _refused(file, f"feature_size is {raw['feature_size']!r}, not 1")
    normalize = bool(raw.get("do_normalize", True))
    return AudioSpec(
        file=file, sampling_rate=rate, do_normalize=normalize, document=raw, least=_least(config)
    )


def _least(config: Mapping[str, Any]) -> int:
    """Samples that give one moment: back through the convolutions that config.json lists."""
    kernels, strides = config.get("conv_kernel"), config.get("conv_stride")
    if not (isinstance(kernels, list) and isinstance(strides, list) and len(kernels) == len(strides)):
        return 1
    pairs = list(zip(kernels, strides, strict=True))
    if not all(isinstance(number, int) and 0 < number < 1 << 16 for pair in pairs for number in pair):
        return 1
    return reduce(lambda moments, pair: (moments - 1) * pair[1] + pair[0], reversed(pairs), 1)


def prove(spec: AudioSpec, data: Sequence[bytes]) -> list[npt.NDArray[Any]]:
    """[samples] of each file by transformers; ``TrbError`` if the served code gives others."""
    from triton_repo_builder.runtime import audio_samples

    served = audio_samples.Samples(spec.settings(), library())
    rows = []
    for file in data:
        plain = served.resampled(*served.decoded(file))
        row = _by_transformers(spec, plain)
        if row.shape != plain.shape or np.abs(row - served(file)).max() > CLOSE * max(1.0, np.abs(row).max()):
            raise _refused(spec.file, f"{KIND} does something else than normalising the samples")
        rows.append(row)
    return rows


def _by_transformers(spec: AudioSpec, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The model's input for these samples, by transformers."""
    try:
        extractor = transformers_library.load().Wav2Vec2FeatureExtractor.from_dict(dict(spec.document))
        features = extractor(samples, sampling_rate=spec.sampling_rate, return_tensors="np")
        return np.asarray(features["input_values"][0])
    except Exception as error:
        raise _refused(spec.file, f"{KIND} of transformers fails: {first_line(error)}") from None


def library() -> Path:
    """libsndfile of the installed ``soundfile``. ``TrbError`` if it is not for Linux."""
    spec = importlib.util.find_spec("_soundfile_data")
    file = Path(spec.origin).parent / LIBRARY if spec and spec.origin else Path("_soundfile_data", LIBRARY)
    if not file.is_file():
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "the installed soundfile does not hold libsndfile for Linux x86-64, which the server needs",
            where=str(file),
            remedy="build audio models on Linux x86-64, with soundfile as pip installs it",
        )
    return file


def _json(file: Path) -> dict[str, Any]:
    return image_processor.part(file, "feature_extractor")


def _refused(file: Path, message: str) -> TrbError:
    return TrbError(
        Code.UNSUPPORTED_MODEL,
        message,
        where=str(file),
        remedy="serve the graph as it is with --task tensor and prepare its input on the client",
    )
