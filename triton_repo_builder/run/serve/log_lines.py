"""The server's output as JSON: an object for each message, ``--log-format json``.

Triton itself writes lines of its own form, and tables and tracebacks of several lines; what Python
processes print stands between them. Used in the supervisor of the embedded engine, which runs
without this package: it needs only the standard library.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

HEADER = re.compile(
    r"(?P<level>[IWEF])(?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d+) (?P<pid>\d+) "
    r"(?P<source>\S+:\d+)\] ?(?P<text>.*)"
)
"""Start of a message of tritonserver."""
LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "fatal"}
IDLE = 0.2
"""Seconds without output after which a message is over."""
MOST = 1 << 18
"""Bytes of one message: what prints without an end is cut."""
REQUEST = re.compile(r"\[request id: ([^\]]+)\]")
UNKNOWN = "<id_unknown>"
CODE = re.compile(r"([^/\s\"']{1,255})/(\d+)/(?:model|answer)\.py\b")
"""A place in a traceback."""
LIFE = re.compile(r"(?:loading|unloading): (.+):(\d+)$")
UNLOADED = re.compile(r"successfully unloaded '([^']+)' version (\d+)")
PREPARED = re.compile(r"model: ([^,]+), requested version: -?\d+, actual version: (\d+)")
INITIALIZED = re.compile(r"TRITONBACKEND_Model\w+: (\S+) \(version (\d+)\)")
NAMED = re.compile(r"(?:model|ensemble|loaded|load|unload) '([^']+)'(?:,? version (\d+))?")
INSTANCE = re.compile(r"ModelInstance\w+: (?:model instance name |instance )?(\S+)|model '(\S+_\d+_\d+)'")
SUFFIX = re.compile(r"_\d+_\d+$")
"""Triton's suffix to a model's name for each instance."""
TRACEBACK = "Traceback (most recent call last):"
CHAIN = ("During handling of the above exception", "The above exception was the direct cause", TRACEBACK)
RAW_LEVELS = (
    (re.compile(r"warning:|\[(?:\w+ )?warning\]|.*\bWarning: ", re.IGNORECASE), "warning"),
    (
        re.compile(
            rf"{re.escape(TRACEBACK)}|error:|\[(?:\w+ )?error\b|\S+Error:|Signal \((?!15\))", re.IGNORECASE
        ),
        "error",
    ),
)


class JsonLines:
    """Converts output, in pieces of any size, to lines of JSON."""

    def __init__(self, *, utc: bool = False) -> None:
        """``utc``: the server's clock is not in this machine's time zone, but in UTC, as in a container."""
        self._utc = utc
        self._rest = b""
        self._lines: list[str] = []
        self._head: re.Match[str] | None = None
        self._versions: dict[str, set[str]] = {}

    @property
    def open(self) -> bool:
        """Whether a message is held that may go on."""
        return bool(self._lines or self._rest)

    def feed(self, data: bytes) -> bytes:
        """The lines of messages that are over."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST:
            lines, self._rest = [*lines, self._rest], b""
        return b"".join(part for line in lines for part in self._line(line.decode("utf-8", "replace")))

    def flush(self) -> bytes:
        """The line of the message that is held."""
        rest, self._rest = self._rest, b""
        parts = [*self._line(rest.decode("utf-8", "replace"))] if rest else []
        return b"".join([*parts, *self._end()])

    def _line(self, line: str) -> Iterable[bytes]:
        line = line.rstrip("\r")
        head = HEADER.match(line)
        if head is None and self._continues(line):
            if sum(map(len, self._lines)) < MOST:
                self._lines.append(line)
            return
        yield from self._end()
        if head is not None:
            self._head, self._lines = head, [head["text"]]
            if quoted(head["text"]):
                yield from self._end()
        elif line.startswith("{") and is_object(line):  # what the process itself wrote as JSON
            yield line.encode() + b"\n"
        elif line.strip():
            self._lines = [line]

    def _continues(self, line: str) -> bool:
        """Whether a line without a header belongs to the message that is held."""
        if not self._lines:
            return False
        if self._head is not None:  # a table, or an older release's message of several lines
            return bool(line.strip()) or not self._lines[-1].startswith("+")
        if not line.strip() or line[0].isspace() or line.startswith(CHAIN):
            return True
        last = next((each for each in reversed(self._lines) if each.strip()), "")
        return self._lines[0].startswith(TRACEBACK) and (last[:1].isspace() or last.startswith(CHAIN))

    def _end(self) -> Iterable[bytes]:
        lines, head, self._lines, self._head = self._lines, self._head, [], None
        text = "\n".join(lines).strip("\n")
        if head is not None and lines:
            yield self._object(
                unquote(text) if quoted(text) else text, LEVELS[head["level"]], self._time(head), head
            )
        elif text:
            level = next((level for pattern, level in RAW_LEVELS if pattern.match(text)), "info")
            yield self._object(text, level, stamp(datetime.now(timezone.utc)), None)

    def _object(self, text: str, level: str, time: str, head: re.Match[str] | None) -> bytes:
        fields: dict[str, Any] = {"time": time, "level": level}
        model, version = self._model(text)
        fields |= {"model": model} if model else {}
        fields |= {"version": version} if version else {}
        request = REQUEST.search(text)
        if request and request[1] != UNKNOWN:
            fields["request_id"] = request[1]
        fields["message"] = text.strip("\n")
        if head is not None:
            fields |= {"source": head["source"], "pid": int(head["pid"])}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def _model(self, text: str) -> tuple[str, str]:
        """Name and version of the model that a message is about; empty if it does not say so.

        A message that only names the model has the version that is loaded, if there is one alone.
        """
        if life := LIFE.match(text):
            self._versions.setdefault(life[1], set()).add(life[2])
        if gone := UNLOADED.match(text):
            self._versions.get(gone[1], set()).discard(gone[2])
        for pattern in (LIFE, UNLOADED, PREPARED, INITIALIZED, CODE):
            if match := pattern.search(text):
                return match[1], match[2]
        if match := INSTANCE.search(text):
            name, version = SUFFIX.sub("", match[1] or match[2]), None
        elif match := NAMED.search(text):
            name, version = match[1], match[2]
        else:
            return "", ""
        versions = self._versions.get(name, set())
        return name, version or (next(iter(versions)) if len(versions) == 1 else "")

    def _time(self, head: re.Match[str]) -> str:
        """The message's time, whose header has no year."""
        now = datetime.now(timezone.utc)
        for year in (now.year, now.year - 1, now.year - 2, now.year - 3):  # of a 29 February
            try:
                written = datetime.fromisoformat(f"{year}-{head['month']}-{head['day']}T{head['clock']:.15}")
            except ValueError:
                continue
            moment = written.replace(tzinfo=timezone.utc) if self._utc else written.astimezone(timezone.utc)
            if (moment - now).days < 1:
                return stamp(moment)
        return stamp(now)


def stamp(moment: datetime) -> str:
    """A time as JSON has it, in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line(message: str, level: str = "", **fields: Any) -> str:
    """A message of trb itself in the same form; its level is in its first word if it is not stated."""
    word, _, rest = message.partition(": ")
    if not level and word in ("warning", "error"):
        level, message = word, rest
    now = stamp(datetime.now(timezone.utc))
    return json.dumps(
        {"time": now, "level": level or "info", "message": message, **fields}, ensure_ascii=False
    )


def as_text(log: str) -> str:
    """A log in Triton's own form, whichever form it has."""
    return "\n".join(map(_text, log.split("\n"))) if log.startswith("{") else log


def _text(line: str) -> str:
    try:
        fields = json.loads(line)
        message, letter = fields["message"], fields["level"][0].upper()
        if "route" in fields:  # a request to the gateway
            return ""
        if "source" not in fields and letter != "W":
            return str(message)
        clock = time.strftime("%m%d %H:%M:%S", time.gmtime())
        place = fields.get("source", "gateway:0")
        return f"{letter}{clock}.000000 {fields.get('pid', 0)} {place}] {quote(message)}"
    except (ValueError, LookupError, TypeError):
        return line


def is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def quoted(text: str) -> bool:
    """Whether a message is one line in quotes, as newer releases write it."""
    return len(text) > 1 and text[0] == text[-1] == '"'


def quote(text: str) -> str:
    """A message as newer releases write it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def unquote(text: str) -> str:
    """A message without quotes and escapes."""
    if quoted(text):
        text = text[1:-1]
    return ESCAPE.sub(lambda match: ESCAPES.get(match[1], match[0]), text)


ESCAPE = re.compile(r"\\(.)", re.DOTALL)
ESCAPES = {"n": "\n", '"': '"', "t": "\t", "\\": "\\"}
