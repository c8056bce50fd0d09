"""libsndfile as a file for the audio model: it is called by ctypes, so any Python has use for it."""

from __future__ import annotations

from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.render.vendor_tokenizers import described
from triton_repo_builder.model.read import audio_processor


def sndfile(target: str) -> list[File]:
    """The library of the installed ``soundfile``, and its licences, under ``target``."""
    library = audio_processor.library()
    licence = library.parent / "COPYING"
    return [
        File(path=f"{target}/{library.name}", source=library),
        File(path=f"{target}/{licence.name}", source=licence),
        *described("soundfile", target),
    ]
