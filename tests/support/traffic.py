"""Requests to every endpoint of a repository, as JSON over HTTP, from a few clients for some seconds."""

from __future__ import annotations

import base64
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.run.codegen import example

ODD = ("☃ snowman ∮", "数 unknown 字", "q", "zz top 12345")
"""Texts with tokens that a small vocabulary does not have."""
MASK = "[MASK] "
"""Start of a text for fill-mask, which may be cut at its end."""
FEW = 0.1
"""Share of the requests that an endpoint refuses."""


def send(http: str, path: Path, seconds: float, *, clients: int = 4, pause: float = 0.0) -> int:
    """Number of requests that were answered, whatever with."""
    read = repository.read(path)
    names = [model.name for model in read.endpoints]
    entries = read.manifest.endpoints if read.manifest else {}
    masked = {name for name, entry in entries.items() if entry.served.task == "fill-mask"}
    examples = {name: example.of_repository(path, name).inputs for name in names}
    corpus = (*texts.corpus(None), *ODD)
    until = time.monotonic() + seconds

    def client(number: int) -> int:
        chance, sent = random.Random(number), 0
        while time.monotonic() < until:
            name = names[(number + sent) % len(names)]
            post(
                f"{http}/v2/models/{name}/infer", _body(examples[name], corpus, chance, masked=name in masked)
            )
            sent += 1
            time.sleep(pause)
        return sent

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients)))


def post(url: str, body: Mapping[str, Any]) -> int:
    """Status of the answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def _body(
    inputs: tuple[Mapping[str, Any], ...], corpus: tuple[str, ...], chance: random.Random, *, masked: bool
) -> dict[str, Any]:
    """An example with other texts; some are refused, because the endpoint misses something in them."""
    tensors = []
    for item in inputs:
        data = item["data"] if isinstance(item["data"], list) else [item["data"]]
        if isinstance(data[0], bytes):
            data = [base64.b64encode(value).decode() for value in data]
        elif item["name"] == "TEXT" and item["shape"] == [1, 1]:
            data = [(MASK if masked and chance.random() > FEW else "") + chance.choice(corpus)]
        tensors.append({**item, "data": data})
    return {"inputs": tensors}
