"""Hand-made Python models and ensembles, healthy and broken, and ``trb serve`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.cli import ARGV, in_folder, own
from tests.support.triton_faults import ABORTED, faults

DOUBLE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", (x * 2).astype("{kind}"))]))
        return answers
"""
HEALTHY = DOUBLE.replace("{kind}", "float32")
HALF = DOUBLE.replace("{kind}", "float16")
RAISES = HEALTHY + "\n    def initialize(self, args):\n        raise ValueError('boom')\n"
EXITS = HEALTHY + "\n    def initialize(self, args):\n        import os; os._exit(3)\n"
DIES = HEALTHY.replace("answers = []", "import os; os._exit(5)")
ECHO = HEALTHY.replace('"X"', '"TEXT"').replace('(x * 2).astype("float32")', "x")


def python(root: Path, name: str, code: str | None = HEALTHY, *, dims: str = "2", out: str = "FP32") -> None:
    """A Python model X -> Y; without code, one whose model.py is missing."""
    version = root / name / "1"
    version.mkdir(parents=True)
    if code is not None:
        (version / "model.py").write_text(code)
    (root / name / "config.pbtxt").write_text(
        f"""backend: "python"
max_batch_size: 8
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ {dims} ] }} ]
output [ {{ name: "Y" data_type: TYPE_{out} dims: [ {dims} ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""
    )


def text(root: Path, name: str) -> None:
    """A Python model TEXT -> Y of strings."""
    python(root, name, ECHO)
    config = (root / name / "config.pbtxt").read_text()
    config = config.replace('"X"', '"TEXT"').replace("TYPE_FP32", "TYPE_STRING").replace("[ 2 ]", "[ 1 ]")
    (root / name / "config.pbtxt").write_text(config)


def ensemble(root: Path, name: str, step: str) -> None:
    """An ensemble of one step."""
    version = root / name / "1"
    version.mkdir(parents=True)
    (version / ".gitkeep").touch()
    (root / name / "config.pbtxt").write_text(
        f"""platform: "ensemble"
max_batch_size: 8
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }} ]
ensemble_scheduling {{ step [ {{
  model_name: "{step}" model_version: -1
  input_map {{ key: "X" value: "X" }} output_map {{ key: "Y" value: "Y" }}
}} ] }}
"""
    )


def whole(root: Path) -> Path:
    """A Python model ``step`` below an ensemble ``whole``."""
    python(root, "step")
    ensemble(root, "whole", "step")
    return root


class Serve:
    """One ``trb serve`` in the background of a test; its temporary files lie in ``tmp``."""

    def __init__(self, tmp: Path, repository: Path | str, *arguments: str) -> None:
        self.tmp = tmp / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.out, self.err = tmp / "stdout", tmp / "stderr"
        argv = [*ARGV, "serve", str(repository), *FREE, *arguments]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(argv, stdout=out, stderr=err, env=environment(tmp))
        self.log = self.err
        faults.watch(self, self.told, lambda: ABORTED in self.told() or None)
        self.owned: set[int] = set()
        self.regions: set[str] = set()

    def ready(self) -> dict[str, Any]:
        """What ``--json`` says once the server is ready; remembers what must be gone at the end."""
        until(lambda: self.out.read_text().endswith("\n") or self.process.poll() is not None)
        assert self.process.poll() is None, self.err.read_text()
        about: dict[str, Any] = json.loads(self.out.read_text())
        self.server = int(about["server_pid"])
        self.container = str(about["container"])
        self.http = str(about["urls"]["http"])
        self.log = Path(about["log"])
        self.note()
        return about

    def told(self) -> str:
        """What ``trb`` said, and the log of its server, which a restart keeps under another name."""
        log = self.log.read_text(errors="replace") if self.log.is_file() else ""
        return self.err.read_text(errors="replace") + log

    def note(self) -> None:
        """Remember every process and shared memory region that belongs to the server now."""
        self.owned |= {self.server, *children(self.server)}
        maps = Path(f"/proc/{self.server}/maps").read_text()
        self.regions |= set(re.findall(r"/dev/shm/triton_\S+_region_\S+", maps))
        assert self.regions

    def end(self, number: int | None = None) -> int:
        """Signal, wait, and check that nothing is left behind."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        until(lambda: not [pid for pid in self.owned if Path(f"/proc/{pid}").exists()])
        until(lambda: not list(self.tmp.glob("trb-*/")))
        assert not [region for region in self.regions if Path(region).exists()]
        return code

    def stub(self, model: str) -> int:
        """Process id of a model's only stub."""
        found = [pid for pid in children(self.server) if f"/{model}/1/model.py" in command(pid)]
        assert len(found) == 1, found
        return found[0]

    def infer(self, model: str) -> int:
        """Status of a request to a model X -> Y; the answer is checked."""
        data = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        request = urllib.request.Request(
            f"{self.http}/v2/models/{model}/infer",
            json.dumps(data).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                assert json.load(response)["outputs"][0]["data"] == [2.0, 4.0]
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code


trb = in_folder

FREE = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")


@contextmanager
def serve(tmp: Path, repository: Path | str, *arguments: str) -> Iterator[Serve]:
    """``trb serve``, stopped in the end whatever happens."""
    running = Serve(tmp, repository, *arguments)
    try:
        yield running
    finally:
        faults.forget(running)
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            running.process.wait(60)


def environment(tmp: Path) -> dict[str, str]:
    """Temporary files and state of this test only."""
    return {**os.environ, **own(tmp)}


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that must come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """Child processes, by the threads that started them."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def command(pid: int) -> str:
    """Command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def files(root: Path) -> list[str]:
    """Every path below a folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now, below those that Linux gives to outgoing connections."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Whether anything takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    """Whether something says 200 there."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
