"""Audio: the files beside a model, and the sounds of clients, which a C library reads in the server."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import tiny_sounds

from tests.reliability import mutate
from tests.reliability.readers.reader import Reader, write, write_named

SETTINGS = {"sampling_rate": 16_000, "do_normalize": True, "least_samples": 40, "most_seconds": 2.0}


def _sound_seeds() -> list[bytes]:
    from triton_repo_builder.endpoint.golden import audio

    made = [
        tiny_sounds.wav(tiny_sounds.noise(300, channels), rate)
        for channels, rate in ((1, 16_000), (2, 8_000))
    ]
    return [*made, *audio.sounds().values()]


@cache
def _reader() -> object:
    from triton_repo_builder.model.read import audio_processor
    from triton_repo_builder.runtime.audio_samples import Samples

    return Samples(SETTINGS, audio_processor.library())


def _sound(case: Path) -> None:
    from triton_repo_builder.runtime.audio_samples import BadAudio, Samples

    samples = _reader()
    assert isinstance(samples, Samples)
    try:
        made = samples((case / "sound").read_bytes())
    except BadAudio:
        return  # the request is refused with these words
    assert made.ndim == 1
    assert len(made) >= SETTINGS["least_samples"]


FILES = (
    "preprocessor_config.json",
    "config.json",
    "vocab.json",
    "tokenizer_config.json",
    "added_tokens.json",
)


def _base(case: Path) -> None:
    tiny_sounds.recogniser(case)
    (case / "added_tokens.json").write_text('{"[X]": 12}')
    letters = {letter: number for number, letter in enumerate(tiny_sounds.LETTERS[:-1])}
    (case / "vocab.json").write_text(json.dumps(letters))


def _speech_seeds() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _base(Path(folder))
        return [f"{name}\n{(Path(folder) / name).read_text()}".encode() for name in FILES]


def _speech(case: Path) -> None:
    from triton_repo_builder.endpoint.golden import audio
    from triton_repo_builder.model.read import audio_processor
    from triton_repo_builder.produce import inspect

    found = inspect.inspect(case)
    json.dumps(inspect.as_json(found))
    if found.source.preprocessor is not None:
        spec = audio_processor.read(found.source.preprocessor, found.source.config)
        audio_processor.prove(spec, [next(iter(audio.sounds().values()))])


READERS = (
    Reader(
        name="sound",
        about="sound files, as the server reads them",
        seeds=_sound_seeds,
        damage=mutate.damaged_bytes,
        lay=write("sound"),
        read=_sound,
        share=0.5,
    ),
    Reader(
        name="speech",
        about="the files beside a recogniser of speech",
        seeds=_speech_seeds,
        damage=mutate.named(mutate.damaged_json),
        base=_base,
        lay=write_named(""),
        read=_speech,
        share=0.1,
    ),
)
