"""How the server reads audio: by Python's own ``wave`` and by what sine waves must be."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import numpy as np
import pytest
import tiny_sounds

from triton_repo_builder.endpoint.golden import audio as golden
from triton_repo_builder.model.read import audio_processor
from triton_repo_builder.runtime import audio_samples
from triton_repo_builder.runtime.audio_samples import BadAudio, Samples

SETTINGS = {"sampling_rate": 16_000, "do_normalize": False, "least_samples": 400, "most_seconds": 2.0}


def reader(**changed: Any) -> Samples:
    return Samples({**SETTINGS, **changed}, audio_processor.library())


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Any:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_the_channels_become_one(channels: int) -> None:
    file = tiny_sounds.wav(tiny_sounds.noise(5_000, channels))
    got = reader()(file)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, tiny_sounds.samples(file), atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_any_width(width: int) -> None:
    wanted = 0.5 * tone(440, 16_000)
    whole = np.round(wanted * (1 << (8 * width - 1))).astype("<i8")
    whole = whole + 128 if width == 1 else whole
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(width)
        made.setframerate(16_000)
        made.writeframes(whole.view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    np.testing.assert_allclose(reader()(file.getvalue()), wanted, atol=1 / (1 << (8 * width - 1)) + 1e-6)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_a_tone_stays_the_same_tone(rate: int) -> None:
    got = reader().resampled(tone(1_000, rate), rate)
    assert len(got) == 8_000
    inner = slice(200, -200)  # the filter sees silence beyond the ends
    np.testing.assert_allclose(got[inner], tone(1_000, 16_000)[inner], atol=5e-3)


@pytest.mark.parametrize("rate", [15_999, 44_101, 191_999])
def test_rates_that_share_no_divisor(rate: int) -> None:
    """A filter for every sample would take gigabytes."""
    got = reader().resampled(tone(1_000, rate), rate)
    assert len(got) == -(-round(0.5 * rate) * 16_000 // rate)
    inner = slice(200, 7_700)
    np.testing.assert_allclose(got[inner], tone(1_000, 16_000)[inner], atol=5e-3)


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000])
def test_one_by_one_is_the_same(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = np.random.default_rng(0).normal(size=30_000).astype(np.float32)
    usual = reader().resampled(sound, rate)
    monkeypatch.setattr(audio_samples, "FILTERS", 0)
    np.testing.assert_allclose(reader().resampled(sound, rate), usual, atol=2e-5)


@pytest.mark.parametrize("hertz", [10_000, 12_000, 20_000])
def test_what_the_rate_cannot_hold_is_left_out(hertz: int) -> None:
    got = reader().resampled(tone(hertz, 44_100), 44_100)
    assert abs(got[200:-200]).max() < 0.02  # and not heard as another tone


@pytest.mark.parametrize("count", [1, 2, 3, 7, 441, 442, 1_000])
def test_lengths(count: int) -> None:
    """As many as the time that the frames take, rounded up."""
    assert len(reader().resampled(np.zeros(count, np.float32), 44_100)) == -(-count * 160 // 441)


def test_normalised() -> None:
    got = reader(do_normalize=True)(tiny_sounds.wav(tiny_sounds.noise(3_000) + 3_000))
    assert abs(got.mean()) < 1e-5
    assert abs(got.std() - 1) < 1e-4
    silence = reader(do_normalize=True)(tiny_sounds.wav(np.zeros((3_000, 1), "<i2")))
    assert (silence == 0).all()


def test_formats() -> None:
    """The files of the package have the length that they say, whatever they are."""
    lengths = {name: len(reader()(data)) for name, data in golden.sounds().items()}
    assert set(lengths.values()) == {8_000}
    assert {name.rpartition(".")[2] for name in lengths} == {"wav", "flac", "ogg"}


def test_base64_as_json_carries_it() -> None:
    for text in (base64.b64encode(FLAC), b"data:audio/flac;base64," + base64.encodebytes(FLAC)):
        np.testing.assert_array_equal(reader()(text), reader()(FLAC))
    with pytest.raises(BadAudio, match="is cut short"):
        reader()(base64.b64encode(WHOLE[:5_000]))


WHOLE = tiny_sounds.wav(tiny_sounds.noise(5_000))
FLAC = golden.sounds()["mono.flac"]
NAN = np.full((1_000, 1), np.nan, "<f4")
NOT_A_NUMBER = (
    b"RIFF" + (4036).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    + b"\3\0\1\0" + (16_000).to_bytes(4, "little") + (64_000).to_bytes(4, "little") + b"\4\0\x20\0"
    + b"data" + (4_000).to_bytes(4, "little") + NAN.tobytes()
)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no bytes"),
        (b"\0" * 4_000, "is not a WAV, FLAC, OGG, MP3 or AIFF file"),
        (b"\x89PNG\r\n\x1a\n", "is not a WAV"),
        (WHOLE[:5_000], "is cut short: it has 5000 of 10044 bytes"),
        (FLAC[: len(FLAC) // 2], "is cut short"),
        (WHOLE[:44], "is cut short"),
        (tiny_sounds.wav(tiny_sounds.noise(0)), "has no samples"),
        (
            tiny_sounds.wav(tiny_sounds.noise(399)),
            "is too short: 399 samples at 16000 Hz, the model needs 400",
        ),
        (
            tiny_sounds.wav(tiny_sounds.noise(33_000)),
            r"is longer than 2 s \(most_seconds in preprocess.json\)",
        ),
        (
            tiny_sounds.wav(tiny_sounds.noise(999), 192_001),
            "has 192,001 samples per second, 192,000 is the most",
        ),
        (NOT_A_NUMBER, "has samples that are no numbers"),
    ],
)
def test_what_cannot_be_used(data: bytes, message: str) -> None:
    with pytest.raises(BadAudio, match=message):
        reader()(data)


def test_a_file_that_was_written_as_it_was_recorded_does_not_state_its_length() -> None:
    for size in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\xf0\xff\x7f", bytes(4)):
        stream = bytearray(WHOLE)
        stream[4:8] = stream[40:44] = size
        np.testing.assert_allclose(reader()(bytes(stream)), tiny_sounds.samples(WHOLE), atol=1e-6)
    stream[4:8] = (36).to_bytes(4, "little")  # only the header was counted
    np.testing.assert_allclose(reader()(bytes(stream)), tiny_sounds.samples(WHOLE), atol=1e-6)
    for short in (b"RIFF", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEdata", bytes(stream[:44])):
        with pytest.raises(audio_samples.BadAudio):
            reader()(short)
