"""Records golden cases of an audio endpoint: transformers' preprocessing, ONNX Runtime on the untouched file.

The files of this package (``sounds/``) are half a second long, in several formats, rates and numbers of
channels: of equal length, they make a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from triton_repo_builder.base import resources
from triton_repo_builder.endpoint.golden import media
from triton_repo_builder.model.read import audio_processor, transformers_library
from triton_repo_builder.model.read.audio_processor import AudioSpec

INPUT = resources.AUDIO


def sounds() -> Mapping[str, bytes]:
    """Name → file, the smallest first."""
    return resources.samples(INPUT)


def given_sounds(spec: AudioSpec) -> media.Files:
    """The sounds of this package and their samples, which the served code gives, too. Raises ``TrbError``."""
    files = sounds()
    return media.Files(
        field=INPUT,
        files=files,
        values=audio_processor.prove(spec, list(files.values())),
        sizes=np.zeros((len(files), 2), dtype=np.int64),
        tools=f"transformers {transformers_library.version()} {audio_processor.KIND}",
    )
