"""Rules of one deployment among several in a Prometheus: every selector and every sum keeps to its labels.

https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from triton_repo_builder.ship.monitoring.rules import Group

DEPLOYMENT = "deployment"
"""Label that the scraped series of a deployment have: its servers', its canary's and its gateway's."""
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\bby \(|(?<![\w:])(?:(?:nv|trb)_\w+|trb:[\w:]+|up(?=\{))(\{)?')
_EXPRESSION = re.compile(r"^( *)expr: (?:[>|]-\n(?:\1  .*\n)+|.*\n)", re.MULTILINE)


def matchers(labels: Mapping[str, str]) -> str:
    """Label matchers in PromQL. The values are names, which need no escape."""
    return ", ".join(f'{name}="{value}"' for name, value in labels.items())


def expression(text: str, labels: Mapping[str, str]) -> str:
    """PromQL on the series with these labels alone, which its results have, too."""
    selecting, names = matchers(labels), ", ".join(labels)

    def scoped(match: re.Match[str]) -> str:
        part = match[0]
        if part.startswith('"'):
            return part
        if part == "by (":
            return f"{part}{names}, "
        return f"{part}{selecting}, " if match[1] else f"{part}{{{selecting}}}"

    return _PART.sub(scoped, text)


def groups(plain: Iterable[Group], labels: Mapping[str, str]) -> tuple[Group, ...]:
    """The groups on these series alone. What they record has the labels, also where a sum drops all."""
    return tuple(
        replace(
            group,
            rules=tuple(
                replace(
                    rule,
                    expression=expression(rule.expression, labels),
                    labels=rule.labels if rule.summary else {**labels, **rule.labels},
                )
                for rule in group.rules
            ),
        )
        for group in plain
    )


def file(text: str, labels: Mapping[str, str]) -> str:
    """A rules file whose sums all say by which labels: its expressions on these series alone."""
    return _EXPRESSION.sub(lambda match: expression(match[0], labels), text)
