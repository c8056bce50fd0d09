"""A second Docker daemon, on what looks like another machine: its own network, and folders of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import serve_repository as made

NAME = "trbfar"
HERE, THERE = "10.77.31.1", "10.77.31.2"
ADDRESS = f"tcp://{THERE}:2375"


def obstacle() -> str:
    """Why this machine cannot have one; empty where it can."""
    if os.geteuid():
        return "a second daemon needs root"
    missing = [name for name in ("dockerd", "ip", "nsenter", "unshare") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def daemon(folder: Path, hidden: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in a network namespace of its own; ``hidden`` is another, empty folder there."""
    _run("ip", "netns", "add", NAME)
    try:
        _run("ip", "link", "add", "trbfar0", "type", "veth", "peer", "name", "trbfar1")
        _run("ip", "link", "set", "trbfar1", "netns", NAME)
        _run("ip", "addr", "add", f"{HERE}/24", "dev", "trbfar0")
        _run("ip", "link", "set", "trbfar0", "up")
        inside = ("ip", "-n", NAME)
        _run(*inside, "addr", "add", f"{THERE}/24", "dev", "trbfar1")
        for device in ("trbfar1", "lo"):
            _run(*inside, "link", "set", device, "up")
        options = f"--data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/pid -H {ADDRESS}"
        script = f"mount -t tmpfs tmpfs {hidden} && exec dockerd {options}"
        # 'ip netns exec' would mount its own /sys, without control groups.
        argv = ["nsenter", f"--net=/run/netns/{NAME}", "unshare", "--mount", "sh", "-c", script]
        with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as running:
            try:
                made.until(lambda: made.answers(f"http://{THERE}:2375/_ping") or running.poll() is not None)
                assert running.poll() is None, (folder / "log").read_text()
                yield running
            finally:
                running.terminate()
                running.wait(60)
    finally:
        _run("ip", "netns", "delete", NAME)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
