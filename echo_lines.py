"""Client of the Triton endpoint echo. Written by trb client; needs only Python 3.10.

    python THIS_FILE TEXT... [--url http://127.0.0.1:43591]
"""

from __future__ import annotations

import argparse
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

URL = 'http://127.0.0.1:43591'
PATH = '/v2/models/echo/infer'
MAX_BATCH_SIZE = 8
# Requests under way at once: the server works on one while others travel.
CONCURRENCY = 4
# Name: (datatype, whether a row is one value and not a list).
INPUTS = {
    'TEXT': ('BYTES', True),
}
OUTPUTS = {
    'Y': ('BYTES', True),
}
FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


class InferenceError(RuntimeError):
    """The server refused the request; the text is its reason."""


@dataclass(frozen=True)
class Answer:
    """The answer to one row; the comments are Triton's types."""

    y: str  # BYTES [1]


def infer(
    text: Sequence[str | bytes],
    *,
    url: str = URL,
    timeout: float = 300.0,
    concurrency: int = CONCURRENCY,
) -> list[Answer]:
    """One answer per row, in order, for any number of rows. Raises InferenceError, OSError.

    Sends requests of at most MAX_BATCH_SIZE rows, ``concurrency`` of them at once.
    """
    given: dict[str, Any] = {
        'TEXT': text,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if any(isinstance(rows, (str, bytes)) for rows in given.values()):
        raise TypeError("give a list of rows, also for one")
    counts = {len(rows) for rows in given.values()}
    if len(counts) != 1:
        raise ValueError("every input needs the same number of rows")
    batches = [
        {name: rows[start : start + MAX_BATCH_SIZE] for name, rows in given.items()}
        for start in range(0, counts.pop(), MAX_BATCH_SIZE)
    ]
    with ThreadPoolExecutor(concurrency) as pool:
        # The first request that fails cancels those not yet sent.
        answered = list(pool.map(lambda batch: _request(batch, url, timeout), batches))
    return [
        Answer(
            y=outputs['Y'][row],
        )
        for batch, outputs in zip(batches, answered)
        for row in range(len(next(iter(batch.values()))))
    ]


def _request(given: dict[str, Any], url: str, timeout: float) -> dict[str, Any]:
    """One request of the KServe v2 protocol with binary tensors; outputs by name."""
    inputs, parts = [], []
    for name, value in given.items():
        datatype, scalar = INPUTS[name]
        shape, flat = _flatten(value)
        parts.append(_pack(datatype, flat))
        shape = [*shape, 1] if scalar else shape
        size = {"binary_data_size": len(parts[-1])}
        inputs.append({"name": name, "datatype": datatype, "shape": shape, "parameters": size})
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in OUTPUTS]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    request = urllib.request.Request(
        url.rstrip("/") + PATH,
        head + b"".join(parts),
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            body: bytes = response.read()
            end = int(response.headers.get("Inference-Header-Content-Length", len(body)))
    except urllib.error.HTTPError as error:
        raise InferenceError(error.read().decode("utf-8", "replace")) from None
    answers, position = {}, end
    for output in json.loads(body[:end])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        flat = _unpack(output["datatype"], body[position : position + size])
        position += size
        shape = output["shape"][:-1] if OUTPUTS[output["name"]][1] else output["shape"]
        answers[output["name"]] = _nest(flat, shape)
    return answers


def _pack(datatype: str, flat: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return struct.pack(f"<{len(flat)}{FORMATS[datatype]}", *flat)
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in flat]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def _unpack(datatype: str, data: bytes) -> list[Any]:
    if datatype != "BYTES":
        kind = FORMATS[datatype]
        return list(struct.unpack(f"<{len(data) // struct.calcsize('<' + kind)}{kind}", data))
    texts, position = [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<I", data, position)
        texts.append(data[position + 4 : position + 4 + length].decode("utf-8", "replace"))
        position += 4 + length
    return texts


def _flatten(value: Any) -> tuple[list[int], list[Any]]:
    """Shape and elements of nested lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return [], [value]
    parts = [_flatten(item) for item in value]
    if any(shape != parts[0][0] for shape, _ in parts):
        raise ValueError("the rows of one request need equal shapes: send them one by one")
    inner = parts[0][0] if parts else []
    return [len(parts), *inner], [element for _, flat in parts for element in flat]


def _nest(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    """Elements as nested lists of this shape; the element itself where there is none."""
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nest(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]


def main() -> None:
    """Ask the endpoint once and print its answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('text', nargs="*", default=_nest(['hello'] * 1, [1]))
    parser.add_argument("--url", default=URL)
    options = parser.parse_args()
    answer = infer(options.text, url=options.url)
    for row in answer:
        print(json.dumps(asdict(row), ensure_ascii=False))


if __name__ == "__main__":
    main()
