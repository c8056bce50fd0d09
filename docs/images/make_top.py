"""Writes top.svg: the live view of ``trb top`` on a real server under real load.

.venv/bin/python docs/images/make_top.py REPOSITORY            # starts a server on it
.venv/bin/python docs/images/make_top.py REPOSITORY --url URL  # of a server that runs it
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from triton_repo_builder import repository
from triton_repo_builder.cli.live.app import TopApp
from triton_repo_builder.cli.options import addresses
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.repository import CASES, cases
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.observe.snapshot import Observer
from triton_repo_builder.run.serve import ServeOptions

PICTURE = Path(__file__).with_name("top.svg")
SIZE = (176, 40)
WAVE = 40.0
"""Seconds in which the load rises and falls."""


def load(url: str, folder: Path, name: str, rate: float, ended: threading.Event) -> None:
    """Send an endpoint's golden requests with other texts, at a rate that rises and falls."""
    http, corpus = HttpClient(url), texts.corpus(None)
    requests = [
        {each.name: each.array() for each in case.inputs} for case in cases.load(folder / CASES).cases
    ]
    begun = time.monotonic()
    while not ended.is_set():
        inputs = dict(random.choice(requests))
        if "TEXT" in inputs:
            text = random.choice(corpus).encode() if random.random() > 0.03 else b"no UTF-8: \xff"
            inputs["TEXT"] = np.array([[text]], dtype=object)
        try:
            http.infer(name, encode_binary(inputs))
        except RequestFailed:
            time.sleep(0.01)
        wave = 1.3 + math.sin((time.monotonic() - begun) / WAVE * 2 * math.pi)
        ended.wait(random.expovariate(rate * wave))


async def picture(servers: dict[str, Observer], seconds: float, endpoint: str) -> None:
    """Run the program for a while, with the cursor on an endpoint, and save what it shows."""
    app = TopApp(servers, 1.0)
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(seconds)
        await pilot.press("p", "ctrl+home")
        place = next((place for place, row in enumerate(app.rows) if row.key.endpoint == endpoint), 0)
        await pilot.press(*["down"] * place)
        await pilot.press("p")
        await pilot.pause()
        # Without the fonts, which a reader's browser would load from elsewhere.
        PICTURE.write_text(re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(), flags=re.DOTALL))


def main() -> None:
    """Serve, load, look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--endpoint", default="", help="the one with the cursor; else the busiest")
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second of the busiest")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        if arguments.url:
            urls = addresses(arguments.url)
        else:
            options = ServeOptions(http_port=0, grpc_port=0, metrics_port=0, percentiles=True)
            urls = stack.enter_context(serve.start(arguments.repository, options)).urls
        ended = threading.Event()
        stack.callback(ended.set)
        for place, model in enumerate(repository.read(arguments.repository).endpoints):
            rate = arguments.rate / 2 ** (place % 4) / 2
            work = (urls.http, arguments.repository / model.name, model.name, rate, ended)
            for _ in range(2):
                threading.Thread(target=load, args=work, daemon=True).start()
        servers = {urls.http.split("://")[1]: Observer(urls)}
        asyncio.run(picture(servers, arguments.seconds, arguments.endpoint))


if __name__ == "__main__":
    main()
