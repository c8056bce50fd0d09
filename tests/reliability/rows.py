"""What ``make reliability`` saw of each command: kept in a file, so that a run goes on; shown as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HEAD = (
    "| command | calls | tried | failures | kills | renames, of them unsynced | old | new | repaired "
    "| refused, with a remedy | findings | not reached | commit | s |",
    "|---|" + "---:|" * 11 + "---|---:|",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One command's faults, counted."""

    name: str
    commit: str
    """Of the code that ran, ``-dirty`` if it was none that git has."""
    calls: int
    tried: int
    of: int
    """All faults; more than ``tried`` if only a sample was."""
    kinds: Mapping[str, int]
    """Faults by kind: ``error``, ``KILL``, ``LOST``."""
    renames: int
    left: Mapping[str, int]
    """Faults by what they left, as ``judge.Verdict.left`` has it."""
    broken: int
    """Faults with a finding."""
    findings: Mapping[str, int] = field(default_factory=dict)
    """How often each finding was made, by its text."""
    missed: int
    seconds: float

    @property
    def whole(self) -> bool:
        return self.tried == self.of

    @property
    def text(self) -> str:
        """One line of the table."""
        kinds, left = Counter(self.kinds), Counter(self.left)
        numbers = (
            *(f"{self.calls:,}", f"{self.tried:,} of {self.of:,}", kinds["error"], kinds["KILL"]),
            *(f"{self.renames}, {kinds['LOST']}",),
            *(left[kind] for kind in ("old", "new", "repaired", "refused")),
            *(self.broken, self.missed, self.commit, f"{self.seconds:,.0f}"),
        )
        return f"| {self.name} | " + " | ".join(map(str, numbers)) + " |"


def read(file: Path | None) -> dict[str, Row]:
    """The rows that are kept, by command; none if there is no such file."""
    if file is None or not file.exists():
        return {}
    return {row["name"]: Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))}


def keep(file: Path, rows: Mapping[str, Row], order: Sequence[str]) -> None:
    """Write the rows, in the order of the commands; those of commands that are no more are dropped."""
    kept = [asdict(rows[name]) for name in order if name in rows]
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def table(rows: Sequence[Row], jobs: int) -> str:
    """The section of docs/reliability.md."""
    total, seconds = sum(row.tried for row in rows), sum(row.seconds for row in rows)
    listed = sorted(
        f"- {row.name}: {text} ({count} ×)" for row in rows for text, count in row.findings.items()
    )
    counted = f"{total:,} faults in {seconds / 60:,.0f} minutes, {jobs} at a time."
    return "\n".join([*HEAD, *(row.text for row in rows), "", counted, *([""] if listed else []), *listed])
