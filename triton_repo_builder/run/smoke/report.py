"""The results of ``trb smoke``: one value per check, and their sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import groupby
from typing import Any

GOLDEN = "golden cases"
"""The group of the comparisons with the original model's recorded answers."""


class Status(str, Enum):
    """Result of one check. The run succeeds if all are PASSED or SKIPPED."""

    PASSED = "passed"
    FAILED = "failed"
    UNVERIFIED = "unverified"
    """It should have been checked and could not be."""
    SKIPPED = "skipped"
    """It does not apply here, or the user asked to leave it out."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check and its result."""

    group: str
    name: str
    status: Status
    endpoint: str = ""
    protocol: str = ""
    detail: str = ""
    """Expected and actual result of a failure; else an observation, or why there is none."""
    difference: float | None = None
    """Largest absolute difference to the expected numbers."""
    allowed: float | None = None
    milliseconds: float = 0.0

    def __str__(self) -> str:
        protocol = f" ({self.protocol})" if self.protocol else ""
        return f"{self.group}{protocol}, {self.name}: {self.detail}"


def did_not_pass(checks: Collection[Check], then: str) -> str:
    """The number of checks that did not pass, the consequence, and the first three of them, a line each."""
    number = "a check" if len(checks) == 1 else f"{len(checks)} checks"
    return f"{number} of trb smoke did not pass; {then}" + "".join(
        f"\n  {check}" for check in list(checks)[:3]
    )


@dataclass(frozen=True, kw_only=True)
class ReportLine:
    """The checks of one group, endpoint and protocol: a row of the table."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst of its checks."""
        order = (Status.FAILED, Status.UNVERIFIED, Status.PASSED, Status.SKIPPED)
        return min((check.status for check in self.checks), key=order.index)

    @property
    def milliseconds(self) -> float:
        """Time of all its checks."""
        return sum(check.milliseconds for check in self.checks)

    @property
    def detail(self) -> str:
        """The largest difference, or the detail that its checks share."""
        details = list(dict.fromkeys(check.detail for check in self.checks if check.detail))
        measured = [check for check in self.checks if check.difference is not None]
        if measured:
            worst = max(measured, key=lambda check: check.difference or 0.0)
            text = f"max difference {worst.difference:.2g}, allowed {worst.allowed:.2g}"
            return f"{text}; {details[0]}" if len(details) == 1 and self.status is Status.PASSED else text
        if len(details) == 1:
            return details[0]
        return "" if self.status is not Status.PASSED else "; ".join(details[:3])


@dataclass(frozen=True, kw_only=True)
class SmokeReport:
    """Everything that was checked, in order."""

    url: str
    grpc_url: str
    server_version: str
    repository: str
    """Path of the local repository, empty if there was none."""
    endpoints: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check holds: none failed, and none that should have been done is missing."""
        return bool(self.checks) and not self.not_passed

    @property
    def not_passed(self) -> tuple[Check, ...]:
        """Checks that failed, or that could not be done though they should have been."""
        return tuple(check for check in self.checks if check.status in (Status.FAILED, Status.UNVERIFIED))

    @property
    def proven(self) -> bool:
        """Whether golden cases were compared, and held, for every endpoint."""
        golden = [check for check in self.checks if check.group == GOLDEN]
        held = {check.endpoint for check in golden if check.status is Status.PASSED}
        return held == set(self.endpoints) and all(check.status is Status.PASSED for check in golden)

    def count(self, status: Status) -> int:
        """How many checks ended so."""
        return sum(check.status is status for check in self.checks)

    def lines(self) -> Iterator[ReportLine]:
        """The checks by endpoint, group and protocol, in order of first appearance."""
        keys = [(check.endpoint, check.group, check.protocol) for check in self.checks]
        rank = {key: index for index, key in reversed(list(enumerate(keys)))}
        ordered = sorted(self.checks, key=lambda check: rank[(check.endpoint, check.group, check.protocol)])
        for _, group in groupby(ordered, key=lambda check: (check.endpoint, check.group, check.protocol)):
            yield ReportLine(checks=tuple(group))

    def to_json(self) -> dict[str, Any]:
        """The report for programs; an infinite difference becomes null, as JSON has none."""
        checks = []
        for check in self.checks:
            document = asdict(check) | {"status": check.status.value}
            if check.difference == float("inf"):
                document["difference"] = None
            checks.append(document | {"milliseconds": round(check.milliseconds, 3)})
        return {
            "schema": 1,
            "ok": self.ok,
            "parity_proven": self.proven,
            "url": self.url,
            "grpc_url": self.grpc_url,
            "server_version": self.server_version,
            "repository": self.repository or None,
            "endpoints": list(self.endpoints),
            "counts": {status.value: self.count(status) for status in Status},
            "checks": checks,
        }
