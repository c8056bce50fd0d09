"""Time until every model is ready: ``trb serve`` against a bare tritonserver on the same repository.

    python benchmarks/serve_ready.py REPOSITORY [ROUNDS]

The bare server is given the same backend directory and loads everything at start (model control mode
``none``), so it must be a repository without broken models. It is run as it comes, and with configurations
taken as they stand, as ``trb serve`` has it where trb wrote all of them. All are measured from the start of
the process, in turns; medians are printed.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.run.serve import ServeOptions
from triton_repo_builder.run.serve.embedded import install
from triton_repo_builder.run.serve.loading.start import AS_THEY_STAND
from triton_repo_builder.run.serve.processes import ports, proc

FREE = ServeOptions(http_port=0, grpc_port=0, metrics_port=0)


def ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def bare(repository: Path, *more: str) -> float:
    found = install.find()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install.assemble(found, folder)
        at = ports.choose(FREE)
        argv = [
            str(found.binary),
            f"--model-repository={repository}",
            f"--backend-directory={folder / 'backends'}",
            "--http-address=127.0.0.1",
            f"--http-port={at.http}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={at.grpc}",
            f"--metrics-port={at.metrics}",
            *more,
        ]
        begun = time.perf_counter()
        with (folder / "log").open("wb") as log:
            environment = install.environment(found, folder)
            server = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
        try:
            while not ready(at.http):
                if server.poll() is not None:
                    raise SystemExit((folder / "log").read_text()[-3000:])
                time.sleep(0.01)
            return time.perf_counter() - begun
        finally:
            server.terminate()
            server.wait()


@dataclass(frozen=True)
class Served:
    """How long ``trb serve`` took, and what its server and the processes below it hold then."""

    seconds: float
    processes: int
    mebibytes: float
    """Proportional set size: what processes share counts once."""


def trb(repository: Path) -> Served:
    argv = [sys.executable, "-m", "triton_repo_builder", "serve", str(repository), "--json"]
    argv += ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    begun = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ) as served:
        assert served.stdout is not None
        line = served.stdout.readline()
        took = time.perf_counter() - begun
        if line:
            server = int(json.loads(line)["server_pid"])
            below = proc.children(server)
            size = sum(map(proportional, (server, *below)))
        served.terminate()
    if not line:
        raise SystemExit(f"trb serve failed with exit code {served.returncode}")
    return Served(took, len(below), size / 1024)


def proportional(pid: int) -> int:
    """KiB of a process's proportional set size."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main(repository: Path, rounds: int) -> None:
    turns = [(bare(repository), bare(repository, AS_THEY_STAND), trb(repository)) for _ in range(rounds)]
    alone, strict = (statistics.median(turn[kind] for turn in turns) for kind in (0, 1))
    ours, last = statistics.median(turn[2].seconds for turn in turns), turns[-1][2]
    print(f"tritonserver                                   {alone:6.2f} s")
    print(f"tritonserver {AS_THEY_STAND}    {strict:6.2f} s")
    print(f"trb serve                                      {ours:6.2f} s, {alone / ours:.1f} times as fast")
    print(f"                                               (medians of {rounds})")
    print(f"{last.processes} Python processes; with the server {last.mebibytes:.0f} MiB (PSS)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", type=Path, metavar="REPOSITORY", help="a model repository")
    parser.add_argument(
        "rounds",
        nargs="?",
        type=int,
        default=3,
        metavar="ROUNDS",
        help="turns of both (default: %(default)s)",
    )
    given = parser.parse_args()
    if not given.repository.is_dir() or given.rounds < 1:
        parser.error("REPOSITORY must be a folder, and ROUNDS at least 1")
    main(given.repository.resolve(), given.rounds)
