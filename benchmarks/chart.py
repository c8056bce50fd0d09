"""Draw the chart of README.md from docs/benchmarks/usual_template.json."""

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
    "fp32: usual template": "usual template",
    "fp32: usual, 2 one-thread instances": "usual template,\nits best setting",
    "fp32: ours, trb build's defaults": "trb build",
}
CLIENTS = 16


def main() -> None:
    """Bars of requests per second, median of the rounds; a line from the smallest to the largest round."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    samples = json.loads((FOLDER / "usual_template.json").read_text())["samples"]
    rounds = {
        label: [s["throughput"] for s in samples if (s["variant"], s["clients"]) == (variant, CLIENTS)]
        for variant, label in BARS.items()
    }
    figure, axes = plt.subplots(figsize=(7.2, 2.4), layout="constrained")
    for row, (label, values) in enumerate(rounds.items()):
        middle = median(values)
        color = "#76b900" if label == "trb build" else "#9aa0a6"
        axes.barh(row, middle, color=color, height=0.6)
        axes.plot([min(values), max(values)], [row, row], color="#303030", linewidth=1)
        axes.text(max(values) + 3, row, f"{middle:.0f}", va="center")
    axes.set_yticks(range(len(rounds)), list(rounds))
    axes.invert_yaxis()
    axes.set_xlabel(f"requests/s, {CLIENTS} clients, texts of mixed lengths, 2 CPU cores, embedded engine")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(right=1.12 * max(max(values) for values in rounds.values()))
    figure.savefig(FOLDER / "throughput.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
