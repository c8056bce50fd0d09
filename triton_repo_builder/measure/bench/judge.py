"""Whether a level met a latency objective, and why not."""

from __future__ import annotations

from triton_repo_builder.measure.bench.report.report import Level
from triton_repo_builder.measure.objective import LEAST_ANSWERED, Objective

CHANCE = 3
"""Standard deviations by which chance arrivals at the end of a level may be unanswered."""
SAID = 200
"""Characters of an error's message that fit into a table."""


def missed(level: Level, objective: Objective) -> str:
    """Why a level does not meet the objective; empty if nothing failed, it kept up and was fast enough."""
    if level.ended:
        return level.ended
    if level.latency is None:
        said = next((f": {kind}, {text}" for kind, text in level.examples.items()), "")
        return f"nothing was answered{said[:SAID]}"
    if level.failed:
        return "requests failed: " + ", ".join(f"{count} {kind}" for kind, count in level.failures.items())
    value = objective.of(level.latency)
    if value > objective.ms:
        return f"{objective.percentile} is {value:.1f} ms"
    arrived = sum(window.arrived for window in level.windows)
    answered = sum(window.answered for window in level.windows)
    if answered < LEAST_ANSWERED * arrived - CHANCE * arrived**0.5:
        return f"the queue grows: {answered} of {arrived} requests were answered"
    return ""
