"""Pictures of every panel of ``trb export monitoring``, from a real Prometheus, for docs/operate.md.

    PYTHONPATH=.:tests:tests/support python -m tests.support.monitoring_pictures --minutes 6

A server with a small endpoint of every task and a gateway get changing loads; then each dashboard's queries
are asked and drawn in its layout.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import matplotlib
import tiny

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from tests.support import gateways, traffic
from tests.support.cli import trb
from tests.support.prometheus import Prometheus, panel_queries, running
from tests.support.servers import free
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.run import serve

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
STEP, WINDOW = 5, "20s"
ENDPOINTS = ("minilm", "sentiment", "ner", "qa", "mask", "yolos", "speech")
"""Few enough for a legend."""
COLORS = 160
TOPICS = {"0": "sports", "1": "politics", "2": "science"}
UNITS = {"s": "s", "reqps": "req/s", "percentunit": "share"}
MOST = 6
"""Entries of a legend."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--output", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        repository = gateways.repository(root, only=ENDPOINTS)
        topics = tiny.describe(
            tiny.classifier(root / "topics", labels=len(TOPICS)),
            id2label=TOPICS,
            architectures=["BertForSequenceClassification"],
        )
        tiny.put(topics, repository, name="topics", **{"source_run": "https://clearml/run/41"})
        with (
            serve.start(repository, free()) as server,
            gateways.running(root / "gateway", server.urls.grpc, "--repo", str(repository)) as gateway,
        ):
            output = root / "monitoring"
            metrics = server.urls.metrics.removeprefix("http://").removesuffix("/metrics")
            hosts = ("--target", metrics, "--gateway", gateway.removeprefix("http://"))
            trb("export", "monitoring", repository, *hosts, "--output", output)
            with running(output / "prometheus.yml") as prometheus:
                start = time.time()
                load(server.urls.http, gateway, repository, arguments.minutes * 60)
                for file in sorted((output / "grafana").glob("*.json")):
                    target = arguments.output / f"monitoring_{file.stem}.png"
                    draw(prometheus, json.loads(file.read_text()), start, target)


def load(http: str, gateway: str, repository: Path, seconds: float) -> None:
    """Loads one after the other: a few clients, many, a few again; the gateway's go on meanwhile."""
    until, corpus = time.monotonic() + seconds, texts.corpus(None)

    def embed() -> None:
        with httpx.Client(base_url=gateway, timeout=60) as client:
            while time.monotonic() < until:
                client.post("/v1/embeddings", json={"model": "minilm", "input": random.sample(corpus, 2)})
                client.post("/v1/embeddings", json={"model": "missing", "input": "hello"})
                time.sleep(0.05)

    thread = Thread(target=embed)
    thread.start()
    for clients in (2, 8, 3):
        traffic.send(http, repository, seconds / 3, clients=clients, pause=0.02)
    thread.join()


def draw(prometheus: Prometheus, board: Mapping[str, Any], start: float, target: Path) -> None:
    """A picture of a dashboard in its own layout."""
    panels = [panel for panel in board["panels"] if panel["type"] != "text"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(11, height * 0.3), dpi=80, facecolor="white")
    for panel in panels:
        place = panel["gridPos"]
        x, y = place["x"] / 24, 1 - (place["y"] + place["h"]) / height
        margin = (0.05, 0.6 / height * 2, 0.065, 0.6 / height * 3.6)
        axes = figure.add_axes(
            (x + margin[0], y + margin[1], place["w"] / 24 - margin[2], place["h"] / height - margin[3])
        )
        axes.set_title(panel["title"], fontsize=8, loc="left")
        axes.tick_params(labelsize=6)
        one = {**board, "panels": [panel]}
        queries = [query for _, query in panel_queries(one, WINDOW)]
        _KINDS[panel["type"]](axes, panel, [answer(prometheus, query, start) for query in queries])
    figure.canvas.draw()
    # A palette makes the file a third as large.
    picture = Image.frombuffer("RGBA", figure.canvas.get_width_height(), figure.canvas.buffer_rgba())
    picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)
    plt.close(figure)


Answer = Sequence[tuple[Mapping[str, str], np.ndarray[Any, Any]]]


def answer(prometheus: Prometheus, query: str, start: float) -> Answer:
    """Labels and (minutes, value) of each series."""
    parameters = {"query": query, "start": start, "end": time.time(), "step": STEP}
    series = prometheus.get("query_range", **parameters)["result"]
    assert series, query
    return [
        (each["metric"], np.array([((float(t) - start) / 60, float(v)) for t, v in each["values"]]))
        for each in series
    ]


def legend(panel: Mapping[str, Any], number: int, labels: Mapping[str, str]) -> str:
    text: str = panel["targets"][number]["legendFormat"].replace("__auto", "")
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return re.sub(r"\{\{\w+\}\}", "", text)


def timeseries(axes: Any, panel: Mapping[str, Any], answers: Sequence[Answer]) -> None:
    lines = [
        (legend(panel, number, labels), values)
        for number, series in enumerate(answers)
        for labels, values in series
    ]
    lines.sort(key=lambda line: -np.nanmax(line[1][:, 1]))
    for number, (name, values) in enumerate(lines):
        axes.plot(values[:, 0], values[:, 1], linewidth=0.9, label=name if number < MOST else None)
    axes.set_ylim(bottom=0)
    unit(axes, panel)
    if any(name for name, _ in lines):
        below = {"loc": "upper left", "bbox_to_anchor": (-0.03, -0.09), "borderpad": 0}
        axes.legend(fontsize=5, ncols=3, frameon=False, **below)


def unit(axes: Any, panel: Mapping[str, Any]) -> None:
    axes.set_ylabel(UNITS.get(panel["fieldConfig"]["defaults"]["unit"], ""), fontsize=6)


def heatmap(axes: Any, panel: Mapping[str, Any], answers: Sequence[Answer]) -> None:
    """Growth in each bucket, or of each class, over time."""
    (series,) = answers
    buckets = panel["targets"][0]["format"] == "heatmap"
    names = [labels["le"] if buckets else legend(panel, 0, labels) for labels, _ in series]
    order = sorted(range(len(names)), key=lambda i: float(names[i]) if buckets else names[i])
    times = sorted({time for _, values in series for time in values[:, 0]})
    grid = np.zeros((len(series), len(times)))
    for row, number in enumerate(order):
        at = dict(series[number][1].tolist())
        grid[row] = [at.get(time, 0.0) for time in times]
    if buckets:
        grid = np.diff(grid, axis=0, prepend=0)
    names = [names[number] for number in order]
    grid = np.sqrt(np.clip(np.nan_to_num(grid), 0, None))
    edges = np.arange(len(names) + 1)
    axes.pcolormesh(
        [*times, times[-1] + STEP / 60], edges, np.where(grid > 0, grid, math.nan), cmap="Oranges"
    )
    axes.set_yticks(edges[:-1] + (1 if buckets else 0.5), names)
    unit(axes, panel)


def stat(axes: Any, panel: Mapping[str, Any], answers: Sequence[Answer]) -> None:
    value = answers[0][0][1][-1][1]
    name = UNITS.get(panel["fieldConfig"]["defaults"]["unit"], "")
    shown = f"{value:.1%}" if name == "share" else f"{value:.3g} {name}"
    axes.text(0.5, 0.4, shown, fontsize=14, ha="center", va="center")
    axes.axis("off")


def table(axes: Any, panel: Mapping[str, Any], answers: Sequence[Answer]) -> None:
    rows: dict[tuple[str, ...], list[str]] = {}
    for series in answers:
        for labels, values in series:
            rows.setdefault((labels["model"], labels["version"]), []).append(f"{values[-1][1]:.3g}")
    names = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
    cells = [[*key, *numbers] for key, numbers in sorted(rows.items()) if len(numbers) == len(names)]
    columns = ["model", "version", *names]
    drawn = axes.table(cells, colLabels=columns, edges="horizontal", bbox=(0, 0, 1, 0.92))
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(7)
    axes.axis("off")


_KINDS = {"timeseries": timeseries, "heatmap": heatmap, "stat": stat, "table": table}

if __name__ == "__main__":
    main()
