"""Facts of a running server: statistics, readiness, /dev/shm; with ``measured`` also a short load."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.doctor.facts import ENOUGH, Facts
from triton_repo_builder.run.client import HttpClient, RequestFailed, Urls
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.observe import snapshot
from triton_repo_builder.run.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from triton_repo_builder.run.client.codec import Array

CLIENTS = 8
"""Clients of the short load."""
SECONDS = 1.0
LATER = 3
"""Requests after the first, of which the quickest counts."""
TOGETHER = 8
"""Rows that are compared alone and in a batch."""
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """Requests to one endpoint."""

    http: HttpClient
    name: str
    rows: int

    def once(self, number: int, rows: int = 1) -> float:
        """Milliseconds of a request, without those in which its inputs are made."""
        body = encode_binary(self._inputs(number, rows))
        started = time.monotonic()
        self.http.infer(self.name, body)
        return (time.monotonic() - started) * 1000

    def beside(self) -> Iterator[tuple[str, str, float, int]]:
        """Largest difference of each output of numbers between rows alone and in a batch."""
        if self.rows < 2:
            return
        import numpy as np

        rows = [self._inputs(number, 1) for number in range(min(self.rows, TOGETHER))]
        joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        alone = [self.http.infer(self.name, encode_binary(row)) for row in rows]
        joint = self.http.infer(self.name, encode_binary(joined))
        for output, together in joint.items():
            arrays = [answer[output] for answer in alone]
            if together.dtype.kind != "f" or any(array.shape != together[:1].shape for array in arrays):
                continue  # outputs per token: a batch makes them as long as its longest row
            difference = float(np.abs(np.concatenate(arrays) - together).max(initial=0.0))
            scale = float(np.abs(together).max(initial=0.0)) or 1.0
            yield self.name, output, difference / scale, len(rows)

    def _inputs(self, number: int, rows: int) -> dict[str, Array]:
        from triton_repo_builder.run.client import sample_inputs

        interface = self.http.endpoint(self.name)
        return sample_inputs.request(
            interface.inputs,
            number,
            batched=self.rows > 0,
            rows=rows,
            files=sample_inputs.takes_files(interface.inputs),
        )


def asked(facts: Facts, urls: Urls, *, measured: bool, progress: Progress = lambda stage: None) -> Facts:
    """The facts, and what a server adds to them. Raises ``TrbError`` UNREACHABLE."""
    taken = snapshot.take(urls)
    if not taken.answers:
        raise TrbError(
            Code.UNREACHABLE,
            f"no tritonserver answers: {taken.problem}",
            where=urls.http,
            remedy="name the URL of its HTTP port (8000 by default); for a server that does not start, name "
            "the repository and its log: trb doctor REPO --log FILE",
        )
    http = HttpClient(urls.http)
    slow: list[tuple[str, float, float]] = []
    beside: list[tuple[str, str, float, int]] = []
    if measured:
        for name in taken.endpoints:
            progress(f"{name}: first requests")
            trial = _Trial(
                http=http, name=name, rows=taken.configs[name].max_batch_size if name in taken.configs else 0
            )
            fresh = sum(taken.counters[name, version].requests for version in taken.versions(name)) == 0
            try:
                first = trial.once(0)
                later = min(trial.once(0) for _ in range(LATER))
                if fresh:
                    slow.append((name, first, later))
                beside += trial.beside()
            except (RequestFailed, KeyError, ValueError):
                continue  # a model that no sample fits: its failures are in the statistics
            if _quiet(taken, name):
                progress(f"{name}: {CLIENTS} clients for {SECONDS:g} s")
                _load(urls, name)
        taken = snapshot.take(urls)
    gpus = len(taken.page.by("gpu_uuid", "nv_gpu_utilization"))
    return replace(
        facts,
        snapshot=taken,
        unready=frozenset(name for name in taken.models if not _ready(http, name)),
        gpus=facts.gpus if facts.gpus is not None else (gpus or None),
        shared_memory=_shared_memory(taken.pid),
        slow_starts=tuple(slow),
        beside=tuple(beside),
    )


def _ready(http: HttpClient, name: str) -> bool:
    try:
        return http.ready(name)
    except RequestFailed:
        return False


def _quiet(taken: Snapshot, name: str) -> bool:
    members = {model for version in taken.versions(name) for model in taken.members(name, version)}
    return all(taken.counters[each].executions < ENOUGH for each in members if each in taken.counters)


def _load(urls: Urls, name: str) -> None:
    options = bench.BenchOptions(
        endpoint=name,
        protocols=("http-binary",),
        concurrency=(CLIENTS,),
        warmup=0.0,
        window=SECONDS,
        min_windows=1,
        max_windows=1,
    )
    try:
        bench.run(urls, None, options)
    except TrbError:
        return  # decoupled, or no input that can be made: the statistics stay as they are


def _shared_memory(pid: int | None) -> tuple[int, int] | None:
    """Bytes of the server's own /dev/shm and those free, through its root directory."""
    if pid is None:
        return None
    try:
        room = os.statvfs(Path("/proc", str(pid), "root", "dev", "shm"))
    except OSError:
        return None
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
