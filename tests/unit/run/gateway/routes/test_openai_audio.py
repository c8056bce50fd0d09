"""Transcriptions: the form, its fields, and what a CTC model cannot do."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_sounds

from tests.support.fake_triton import FakeGateway, served
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.routes import openai_audio

PATH = "/v1/audio/transcriptions"
SOUND = tiny_sounds.wav(tiny_sounds.noise(24_000))


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(served("speech", recognition.SPEECH))


def send(gateway: FakeGateway, file: bytes = SOUND, **fields: Any) -> Any:
    return gateway.ask("POST", PATH, files={"file": ("a.wav", file, "audio/wav")}, data=fields)


def error(answer: Any, status: int = 400) -> tuple[str, str | None]:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"], answer.json()["error"]["param"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "speech"},
        {"response_format": "json", "language": "en", "temperature": "0", "stream": "false", "prompt": ""},
        {"temperature": "0.0"},
    ],
)
def test_text_as_json(gateway: FakeGateway, fields: dict[str, str]) -> None:
    answer = send(gateway, **fields)
    assert answer.json() == {"text": "heard RIFF"}
    assert gateway.triton.requests == [{"AUDIO": [SOUND]}]


def test_text_alone(gateway: FakeGateway) -> None:
    answer = send(gateway, response_format="text")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "heard RIFF"


def test_what_a_ctc_model_knows_of_verbose_json(gateway: FakeGateway) -> None:
    assert send(gateway, response_format="verbose_json", language="de").json() == {
        "task": "transcribe",
        "language": "de",
        "text": "heard RIFF",
        "duration": 1.5,
        "usage": {"type": "duration", "seconds": 2},
    }
    unread = send(gateway, b"none", response_format="verbose_json").json()
    assert unread == {"task": "transcribe", "language": "unknown", "text": "heard none"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"response_format": "srt"}, "response_format"),
        ({"response_format": "vtt"}, "response_format"),
        ({"response_format": "xml"}, "response_format"),
        ({"prompt": "names"}, "prompt"),
        ({"temperature": "0.4"}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"stream": "true"}, "stream"),
        ({"timestamp_granularities[]": ["word", "segment"]}, "timestamp_granularities"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities"),
        ({"include[]": "logprobs"}, "include"),
        ({"chunking_strategy": "auto"}, "chunking_strategy"),
        ({"model": "whisper-2"}, "model"),
        ({"beam": "5"}, "beam"),
    ],
)
def test_what_is_refused(gateway: FakeGateway, fields: dict[str, Any], field: str) -> None:
    answer = send(gateway, **fields)
    assert error(answer, 404 if field == "model" else 400)[1] == field
    assert gateway.triton.requests == []


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF\r\n'
    b"--x\r\nContent-Type: text/plain\r\n\r\nnobody\r\n--x--\r\n"
)
KIND = {"content-type": "multipart/form-data; boundary=x"}


def test_a_part_without_a_name_is_nobodys(gateway: FakeGateway) -> None:
    assert gateway.ask("POST", PATH, content=FORM, headers=KIND).status_code == 200
    assert gateway.triton.requests == [{"AUDIO": [b"RIFF"]}]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"RIFF", "audio/wav", "send multipart/form-data"),
        (b"{}", "application/json", "send multipart/form-data"),
        (FORM, "multipart/form-data", "send multipart/form-data"),
        (b"", KIND["content-type"], "not multipart/form-data"),
        (b"nothing", KIND["content-type"], "not multipart/form-data"),
        (FORM[:-6], KIND["content-type"], "ends before its last boundary"),
        (FORM[:30], KIND["content-type"], "ends before its last boundary"),
        (FORM.replace(b"--x--", FORM), KIND["content-type"], "twice"),
        (FORM.replace(b'"file"', b'"model"'), KIND["content-type"], "does not exist"),
        (FORM.replace(b'"file"', b'"user"'), KIND["content-type"], "Unknown parameter"),
        (b"--x--\r\n", KIND["content-type"], "`file` is missing"),
    ],
)
def test_a_body_that_is_no_form(gateway: FakeGateway, body: bytes, kind: str, words: str) -> None:
    answer = gateway.ask("POST", PATH, content=body, headers={"content-type": kind})
    assert words in answer.json()["error"]["message"]
    assert answer.status_code in (400, 404)
    assert gateway.triton.requests == []


def test_many_parts(gateway: FakeGateway) -> None:
    fields = {f"f{number}": "x" for number in range(openai_audio.MOST_PARTS)}
    assert "parts" in error(send(gateway, **fields))[0]


@pytest.mark.parametrize(("status", "field"), [(400, "file"), (503, None)])
def test_a_file_that_the_endpoint_refuses(gateway: FakeGateway, status: int, field: str | None) -> None:
    gateway.triton.failure = Refusal(status, "file 0 of input 'AUDIO' is not a WAV, FLAC … file")
    assert error(send(gateway), status)[1] == field


def test_duration_of_what_is_no_sound() -> None:
    assert openai_audio.duration(SOUND) == 1.5
    assert openai_audio.duration(b"none") is None
    assert openai_audio.duration(b"") is None
