"""What a client that sends texts of 1 MB costs its neighbours, against one that sends texts of 10 KB.

    .venv/bin/python benchmarks/long_texts.py [--model int8] [--rounds 4] [--seconds 8]

Ours, and the same with the shortening of long texts taken out (``LONG`` of the tokenizer model's
long_texts.py): whole texts are tokenized, then cut. Both lengths are more than the model takes, so that it
has the same to do. The neighbour sends one short text after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common
from common import Result, number, spread

from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.values import Body

SHORT = "How do I reset my password?"
SIZES = {"alone": 0, "beside 10 KB": 10_000, "beside 1 MB": 1 << 20}
OURS, WHOLE = "ours", "whole texts tokenized"
NAMES = {OURS: "ours", WHOLE: "whole"}
TARGET = 1.5
Found = dict[str, dict[str, list[list[float]]]]
"""Milliseconds by variant, neighbour and round."""


def infer(http: HttpClient, name: str, text: str) -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}
    http.infer(name, Body(data=json.dumps({"inputs": [tensor]}).encode(), headers={}))


def latencies(url: str, name: str, seconds: float) -> list[float]:
    """Milliseconds of each answer, one after the other."""
    http, found = HttpClient(url, 60.0), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        infer(http, name, SHORT)
        found.append(1000 * (time.monotonic() - begun))
    return found


@contextmanager
def sending(url: str, name: str, size: int) -> Iterator[list[int]]:
    """One client that sends texts of so many bytes all the time (0: none); yields how many were answered."""
    text = ("The answer to this question is at the end of a long text. " * (size // 58 + 1))[:size]
    end, sent = threading.Event(), [0]

    def send() -> None:
        http = HttpClient(url, 60.0)
        while not end.is_set():
            infer(http, name, text)
            sent[0] += 1

    thread = threading.Thread(target=send, daemon=True)
    if size:
        thread.start()
    try:
        yield sent
    finally:
        end.set()
        if size:
            thread.join()


def unshortened(folder: Path, name: str) -> None:
    """The endpoint without the shortening."""
    file = folder / f"{name}_tokenizer" / "1" / "long_texts.py"
    file.write_text(file.read_text().replace("LONG = 4\n", "LONG = 1 << 40\n"))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = common.parser(__doc__, rounds=4)
    parser.add_argument("--model", default="int8", choices=common.MODELS)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    result = Result("long_texts", "Long texts and their neighbours", arguments.output)
    found: Found = {variant: {load: [] for load in SIZES} for variant in NAMES}
    answered: dict[str, int] = dict.fromkeys(NAMES, 0)
    with common.scratch() as folder:
        for name in NAMES.values():
            common.ours(common.model(arguments.model), folder, name)
        unshortened(folder, NAMES[WHOLE])
        with common.served(folder, arguments.server) as server:
            url = server.urls.http
            for turn in range(arguments.rounds):
                for variant in list(NAMES)[:: 1 if turn % 2 else -1]:
                    for load, size in SIZES.items():
                        with sending(url, NAMES[variant], size) as sent:
                            found[variant][load].append(latencies(url, NAMES[variant], arguments.seconds))
                    answered[variant] += sent[0]
                    common.say(f"round {turn + 1}, {variant}: {sent[0]} texts of 1 MB answered")
    report(result, arguments, found, answered)
    result.write([])


def report(result: Result, arguments: argparse.Namespace, found: Found, answered: dict[str, int]) -> None:
    """The table, and the target."""
    _, small, large = SIZES
    rows, ratios = [], {}
    for variant, loads in found.items():
        pairs = zip(loads[small], loads[large], strict=True)
        ratios[variant] = [percentile(b, 0.99) / percentile(a, 0.99) for a, b in pairs]
        cells = [
            number(statistics.median(percentile(each, share) for each in rounds))
            for share in (0.5, 0.99)
            for rounds in loads.values()
        ]
        rows.append([variant, *cells, spread(ratios[variant]), str(answered[variant])])
    head = ["", *(f"{name} {load}, ms" for name in ("p50", "p99") for load in SIZES)]
    result.add(
        f"One client with short texts, one after the other, alone and beside one with long texts. "
        f"all-MiniLM-L6-v2 {arguments.model}, {arguments.rounds} rounds of {arguments.seconds:g} s in turn.",
        common.table((*head, f"p99 {large} over {small}", "texts of 1 MB answered"), rows),
        f"Target: p99 {large} at most {TARGET} times that {small}. Measured: {spread(ratios[OURS])}.",
    )


if __name__ == "__main__":
    main()
