"""``trb smoke`` on instances of the device, and the proof that the server's processes use the GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import common

from gpu_steps import parity, serving
from gpu_steps.step import GPU, Setting, StepFailed
from triton_repo_builder import repository
from triton_repo_builder.run import smoke
from triton_repo_builder.run.serve.processes import proc
from triton_repo_builder.run.smoke import SmokeReport, Status


def run(setting: Setting) -> dict[str, Any]:
    """Every model of the parity steps, with what ``trb build`` writes for the device."""
    with common.scratch() as path:
        for name, source in parity.sources(setting).items():
            common.ours(source, path, name, device=setting.device)
        kind = serving.check_kinds(setting, path)
        with common.served(path) as server:
            options = smoke.SmokeOptions(clients=8, requests=4, timeout=60.0)
            report = smoke.run(server.urls, repository.read(path), options)
            return {"kind": kind, "smoke": proven(report), "processes": on_gpu(setting, server.pid)}


def served_alone(
    setting: Setting, path: Path, name: str, *, clients: int, timeout: float = 120.0
) -> dict[str, Any]:
    """The one endpoint of a repository: proven by ``trb smoke``, then loaded by up to so many clients."""
    kind = serving.check_kinds(setting, path)
    with common.served(path) as server:
        options = smoke.SmokeOptions(clients=4, requests=2, timeout=timeout)
        report = smoke.run(server.urls, repository.read(path), options)
        loads = tuple(count for count in setting.clients if count <= clients)
        return {
            "kind": kind,
            "smoke": proven(report),
            "processes": on_gpu(setting, server.pid),
            "levels": serving.levels(setting, server, path, {name: name}, concurrency=loads),
        }


def proven(report: SmokeReport) -> dict[str, Any]:
    """Counts of checks, and the largest difference; raises ``StepFailed`` with those that failed."""
    counts = {status.value: 0 for status in Status}
    for check in report.checks:
        counts[check.status.value] += 1
    bad = [check for check in report.checks if check.status in (Status.FAILED, Status.UNVERIFIED)]
    worst = max((check.difference or 0.0 for check in report.checks), default=0.0)
    found = {**counts, "largest_difference": worst}
    if bad:
        lines = [f"{check.endpoint}, {check.group}, {check.name}: {check.detail}" for check in bad[:8]]
        raise StepFailed(f"trb smoke: {len(bad)} checks do not hold: " + "; ".join(lines), found)
    return found


def on_gpu(setting: Setting, server: int | None) -> list[dict[str, Any]]:
    """The server's processes that hold GPU memory, in MiB; raises ``StepFailed`` if there are none.

    In a container nvidia-smi may list no process, or none of this machine's numbers: then the memory in use
    speaks, which an idle GPU does not have.
    """
    if setting.device != GPU:
        return []
    listed = _query("--query-compute-apps=pid,used_memory")
    mine = {server, *proc.children(server)} if server else set()
    found = [{"pid": int(pid), "mib": mib} for pid, mib in listed if pid.isdigit() and int(pid) in mine]
    if found:
        return found
    used = _query("--query-gpu=index,memory.used")
    busy = [{"gpu": index, "mib": mib} for index, mib in used if mib.isdigit() and int(mib) > 200]
    if not busy:
        raise StepFailed(f"no process of the server holds GPU memory: {listed or 'nvidia-smi lists none'}")
    return busy


def _query(what: str) -> list[tuple[str, str]]:
    argv = ["nvidia-smi", what, "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise StepFailed(f"nvidia-smi fails: {error}") from None
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]
    return [(row[0], row[1]) for row in rows if len(row) == 2]
