"""Draw the chart of README.md from docs/benchmarks/peers.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
BARS = {
    "usual template": "usual template",
    "infinity": "infinity",
    "infinity, batches of 4": "infinity, batches of 4",
    "usual template, 2 one-thread instances": "usual template, 2 one-thread instances",
    "FastAPI + ONNX Runtime": "FastAPI + ONNX Runtime",
    "FastAPI + ONNX Runtime, 1 thread": "FastAPI + ONNX Runtime, 1 thread",
    "trb build's defaults": "trb build",
}
ENDS = (
    (1, "p50", "ms of a lone client (p50)", "{:.1f}"),
    (32, "throughput", "requests/s of 32 clients", "{:.0f}"),
)
"""Clients, what is shown of them, the words under it, how a number is written."""


def main() -> None:
    """Bars of both ends, median of the rounds; a line from the smallest to the largest round."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    samples = json.loads((FOLDER / "peers.json").read_text())["samples"]
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.3), layout="constrained", sharey=True)
    for axes, (clients, field, words, form) in zip(panels, ENDS, strict=True):
        rounds = {
            label: [s[field] for s in samples if (s["variant"], s["clients"]) == (variant, clients)]
            for variant, label in BARS.items()
        }
        most = max(max(values) for values in rounds.values())
        for row, (label, values) in enumerate(rounds.items()):
            middle = median(values)
            color = "#76b900" if label == "trb build" else "#9aa0a6"
            axes.barh(row, middle, color=color, height=0.6)
            axes.plot([min(values), max(values)], [row, row], color="#303030", linewidth=1)
            axes.text(max(values) + 0.01 * most, row, form.format(middle), va="center")
            print(f"{label}: {form.format(middle)} {words}")
        axes.set_xlabel(words)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(right=1.15 * most)
    panels[0].set_yticks(range(len(BARS)), list(BARS.values()))
    panels[0].invert_yaxis()
    figure.savefig(FOLDER / "throughput.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
