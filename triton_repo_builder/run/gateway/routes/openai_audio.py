"""OpenAI's transcriptions, by CTC models: text without times, languages or alternatives.

https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

from __future__ import annotations

import asyncio
import io
import math
from typing import Any

from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.call import TEXT, Call, Reply, Route, reply
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.routes.openai import check_fields

FORMATS = ("json", "text", "verbose_json")
TIMED = ("srt", "vtt", "diarized_json")
MOST_PARTS = 64
REFUSED = {
    "prompt": "the model takes no prompt",
    "timestamp_granularities": "the endpoint gives text without times",
    "include": "the endpoint gives text without probabilities",
    "chunking_strategy": "the endpoint reads a file as a whole",
    "known_speaker_names": "the endpoint does not tell speakers apart",
    "known_speaker_references": "the endpoint does not tell speakers apart",
}
"""Fields of OpenAI's that a CTC model has no use for: refused unless they are empty."""
FIELDS = frozenset({"file", "model", "response_format", "language", "temperature", "stream", *REFUSED})
UNKNOWN = "unknown"


async def transcriptions(call: Call) -> Reply:
    """``POST /v1/audio/transcriptions``. ``language`` is a hint, which a CTC model cannot take."""
    fields = form(call)
    check_fields(fields, FIELDS)
    served = call.find(_text(fields, "model"), recognition.SPEECH)
    written = _format(fields)
    file = fields.get("file")
    if file is None:
        raise invalid("`file` is missing: send the sound as a part of multipart/form-data", "file")
    try:
        answers = await call.infer(served, {"AUDIO": [file]}, ("text",))
    except Refusal as error:
        if error.status == 400:
            error.field = "file"
        raise
    said = answers[0]["text"].reshape(-1)[0].decode()
    if written == "text":
        return Reply(said.encode(), TEXT)
    if written == "json":
        return reply({"text": said})
    seconds = await asyncio.to_thread(duration, file)
    language = _text(fields, "language") or UNKNOWN
    verbose: dict[str, Any] = {"task": "transcribe", "language": language, "text": said}
    if seconds is not None:
        verbose |= {"duration": seconds, "usage": {"type": "duration", "seconds": math.ceil(seconds)}}
    return reply(verbose)


def _format(fields: dict[str, bytes]) -> str:
    """``response_format``, after the fields that a CTC model cannot follow. Raises ``Refusal``."""
    for name, reason in REFUSED.items():
        if fields.get(name):
            raise invalid(f"`{name}`: {reason}", name)
    if _text(fields, "stream") not in ("", "false"):
        raise invalid("`stream`: the endpoint gives the whole text at once", "stream")
    try:
        warm = float(_text(fields, "temperature") or 0)
    except ValueError:
        raise invalid("`temperature` must be a number", "temperature") from None
    if warm:
        raise invalid("`temperature` must be 0: the endpoint takes the likeliest text", "temperature")
    written = _text(fields, "response_format") or FORMATS[0]
    if written in TIMED:
        raise invalid(
            f"`response_format` {written} needs times, which the endpoint does not give; use one of "
            f"{', '.join(FORMATS)}",
            "response_format",
        )
    if written not in FORMATS:
        raise invalid(f"`response_format` must be one of {', '.join(FORMATS)}", "response_format")
    return written


def _text(fields: dict[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode(errors="replace").strip()


def form(call: Call) -> dict[str, bytes]:
    """The parts of a multipart/form-data body by name, without ``[]`` at its end. Raises ``Refusal``."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    kind, options = parse_options_header(call.headers.get(b"content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise invalid("send multipart/form-data with the parts `file` and `model`")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks)
        parser.write(call.body)
        parser.finalize()
    except FormParserError as error:
        raise invalid(f"the body is not multipart/form-data: {error}") from None
    if not parts.ended:
        raise invalid("the body is not multipart/form-data: it ends before its last boundary")
    return {name.removesuffix("[]"): b"".join(content) for name, content in parts.by_name.items()}


class _Parts:
    """Collects the parts that a parser calls out."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[bytes]] = {}
        self.ended = False
        self._header = self._value = b""
        self._part: list[bytes] = []
        self.callbacks: Any = {
            "on_part_begin": self._on_part,
            "on_header_field": self._on_header,
            "on_header_value": self._on_value,
            "on_header_end": self._on_header_end,
            "on_part_data": self._on_data,
            "on_end": self._on_end,
        }

    def _on_part(self) -> None:
        self._part = []

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        from python_multipart.multipart import parse_options_header

        if self._header.lower() == b"content-disposition":
            self._name(parse_options_header(self._value)[1].get(b"name", b"").decode(errors="replace"))
        self._header = self._value = b""

    def _name(self, name: str) -> None:
        if name.endswith("[]"):
            self._part = self.by_name.setdefault(name, self._part)
        elif name in self.by_name:
            raise invalid(f"the form has `{name:.60}` twice", name[:60])
        self.by_name[name] = self._part
        if len(self.by_name) > MOST_PARTS:
            raise invalid(f"the form has over {MOST_PARTS} parts")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._part.append(data[start:end])

    def _on_end(self) -> None:
        self.ended = True


def duration(file: bytes) -> float | None:
    """Seconds of a sound; None if they cannot be told."""
    try:
        import soundfile  # type: ignore[import-untyped]

        return float(soundfile.info(io.BytesIO(file)).duration)
    except (ImportError, OSError, RuntimeError):
        return None


ROUTES = (
    Route(
        path="/v1/audio/transcriptions",
        handler=transcriptions,
        api="openai",
        tasks=(recognition.SPEECH,),
        summary="The text of a sound (multipart/form-data: file, model)",
    ),
)
