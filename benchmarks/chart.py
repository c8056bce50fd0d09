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
    "FastAPI + ONNX Runtime, 1 thread": "FastAPI + ONNX Runtime, 1 thread",
    "trb build's defaults": "trb build",
}
CLIENTS = 32


def main() -> None:
    """Bars of requests per second, median of the rounds; a line from the smallest to the largest round."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    samples = json.loads((FOLDER / "peers.json").read_text())["samples"]
    rounds = {
        label: [s["throughput"] for s in samples if (s["variant"], s["clients"]) == (variant, CLIENTS)]
        for variant, label in BARS.items()
    }
    figure, axes = plt.subplots(figsize=(7.2, 2.9), layout="constrained")
    for row, (label, values) in enumerate(rounds.items()):
        middle = median(values)
        color = "#76b900" if label == "trb build" else "#9aa0a6"
        axes.barh(row, middle, color=color, height=0.6)
        axes.plot([min(values), max(values)], [row, row], color="#303030", linewidth=1)
        axes.text(max(values) + 3, row, f"{middle:.0f}", va="center")
    axes.set_yticks(range(len(rounds)), list(rounds))
    axes.invert_yaxis()
    axes.set_xlabel(f"requests/s, {CLIENTS} clients, texts of mixed lengths, 2 CPU cores")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(right=1.12 * max(max(values) for values in rounds.values()))
    figure.savefig(FOLDER / "throughput.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
