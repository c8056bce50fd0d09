"""A swarm of two machines: two Docker daemons, each with a network of its own, and a cable between them.

Needs root. A veth pair is the cable: joining over a bridge timed out. This machine's own daemon has no part.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import serve_repository as made

CONTROL_GROUPS = Path("/sys/fs/cgroup")
CABLE = ("10.77.43.1", "10.77.43.2")
"""Addresses by which the machines know each other."""
RUNNING = {"desired-state": "running"}


def obstacle() -> str:
    """Why this machine cannot have one; empty where it can."""
    if os.geteuid():
        return "daemons of their own need root"
    needed = ("dockerd", "docker", "ip", "nsenter", "unshare")
    missing = [name for name in needed if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@dataclass
class Machine:
    """A daemon in a network namespace."""

    number: int
    folder: Path
    client: Any = None
    process: subprocess.Popen[bytes] | None = None
    group: str = field(init=False)

    def __post_init__(self) -> None:
        self.group = f"trbswarm{self.number}"

    @property
    def namespace(self) -> str:
        return f"trbswarm{self.number}"

    @property
    def here(self) -> str:
        """The test's end of its own cable."""
        return f"10.77.4{self.number}.1"

    @property
    def address(self) -> str:
        """By which the test reaches its ports."""
        return f"10.77.4{self.number}.2"

    @property
    def docker_host(self) -> str:
        return f"unix://{self.folder}/socket"

    @property
    def node(self) -> str:
        """Its id in the swarm."""
        return str(self.client.info()["Swarm"]["NodeID"])

    def docker(self, *arguments: str, **environment: str) -> str:
        """Output of the docker command; fails the test with it."""
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "DOCKER_HOST": self.docker_host, **environment},
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        """Start the daemon and wait for it."""
        import docker

        folder = self.folder
        options = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        options += [f"--host={self.docker_host}", f"--cgroup-parent=/{self.group}"]
        # 'ip netns exec' would mount its own /sys, without control groups. Mounts end with the daemon.
        argv = ["nsenter", f"--net=/run/netns/{self.namespace}", "unshare", "--mount", "dockerd", *options]
        log = (folder / "log").open("wb")
        self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        log.close()

        def answers() -> bool:
            assert self.process is not None and self.process.poll() is None, (folder / "log").read_text()
            with suppress(docker.errors.DockerException):
                self.client = docker.DockerClient(base_url=self.docker_host, timeout=120)
            return self.client is not None

        made.until(answers)

    def die(self) -> float:
        """As without power: its cables are dead, then every process is, and nobody says goodbye.

        Returns when its cables were cut, as of ``time.monotonic``.
        """
        for device in ("cable", "test"):
            _run("ip", "-n", self.namespace, "link", "set", device, "down")
        cut = time.monotonic()
        network = Path(f"/run/netns/{self.namespace}").stat().st_ino
        for pid in [*_of_group(self.group), *_in_network(network)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process is not None
        self.process.wait(60)
        made.until(lambda: not _of_group(self.group))
        return cut

    def stop(self) -> None:
        """Remove its containers, and end the daemon."""
        if self.process is not None and self.process.poll() is None:
            with suppress(Exception):
                self.client.swarm.leave(force=True)
            with suppress(Exception):
                for container in self.client.containers.list(all=True):
                    container.remove(force=True)
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.die()
        if self.client is not None:
            self.client.close()
        for root in CONTROL_GROUPS.glob(f"*/{self.group}"):
            for path, _, _ in os.walk(root, topdown=False):
                with suppress(OSError):
                    Path(path).rmdir()


@dataclass(frozen=True)
class Swarm:
    """Two machines; the first is the manager."""

    machines: tuple[Machine, Machine]

    @property
    def manager(self) -> Any:
        return self.machines[0].client

    def deploy(self, stack: Path, name: str, environment: Mapping[str, str]) -> None:
        """Deploy a stack's file; images are on every machine."""
        self.machines[0].docker(
            *("stack", "deploy", "--resolve-image", "never", "--compose-file", str(stack), name),
            **environment,
        )

    def tasks(self, service: str, state: str = "running") -> list[Mapping[str, Any]]:
        """Tasks of a service that are meant to run and are in this state."""
        listed = self.manager.api.tasks(filters={"service": service, **RUNNING})
        return [task for task in listed if task["Status"]["State"] == state]

    def spread(self, service: str) -> Counter[str]:
        """Running tasks of each machine, by its node's id."""
        return Counter(str(task["NodeID"]) for task in self.tasks(service))

    def update(self, service: str) -> str:
        """State of the last update: ``completed``, ``rollback_completed`` …"""
        facts = self.manager.api.inspect_service(service)
        return str((facts.get("UpdateStatus") or {}).get("State", ""))

    def failed(self, service: str) -> set[str]:
        """Images of a service's tasks that failed."""
        listed = self.manager.api.tasks(filters={"service": service})
        return {
            str(task["Spec"]["ContainerSpec"]["Image"])
            for task in listed
            if task["Status"]["State"] in ("failed", "rejected")
        }

    def told(self, service: str) -> str:
        """States and errors of a service's tasks, for a test that fails."""
        listed = self.manager.api.tasks(filters={"service": service})
        return "\n".join(
            f"{task['Status']['Timestamp']} {task.get('NodeID', '')[:5]} {task['DesiredState']} "
            f"{task['Status']['State']} {task['Status'].get('Err', '')}"
            for task in sorted(listed, key=lambda each: str(each["CreatedAt"]))
        )

    def until(self, condition: Any, service: str, seconds: float) -> None:
        """Wait for something; fails the test with the service's tasks."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{self.update(service)}\n{self.told(service)}"
            time.sleep(0.2)


@contextmanager
def running(folder: Path, images: Path) -> Iterator[Swarm]:
    """A swarm of two machines that have the images of an archive."""
    with ExitStack() as stack:
        stack.callback(_nothing_left, folder)
        machines = (Machine(1, folder / "1"), Machine(2, folder / "2"))
        for machine in machines:
            machine.folder.mkdir()
            _run("ip", "netns", "add", machine.namespace)
            stack.callback(_run, "ip", "netns", "delete", machine.namespace)
            inside = ("ip", "-n", machine.namespace)
            outside = f"trbswarm{machine.number}"
            # Named inside only, since both ends begin in one place.
            _run(
                "ip",
                "link",
                "add",
                outside,
                "type",
                "veth",
                "peer",
                "name",
                "test",
                "netns",
                machine.namespace,
            )
            _run("ip", "addr", "add", f"{machine.here}/24", "dev", outside)
            _run("ip", "link", "set", outside, "up")
            _run(*inside, "addr", "add", f"{machine.address}/24", "dev", "test")
            for device in ("test", "lo"):
                _run(*inside, "link", "set", device, "up")
        first, second = (machine.namespace for machine in machines)
        _run(
            "ip",
            "-n",
            first,
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            second,
        )
        for machine, address in zip(machines, CABLE, strict=True):
            _run("ip", "-n", machine.namespace, "addr", "add", f"{address}/24", "dev", "cable")
            _run("ip", "-n", machine.namespace, "link", "set", "cable", "up")
        for machine in machines:
            stack.callback(machine.stop)
            machine.start()
            with images.open("rb") as archive:
                machine.client.images.load(archive)
        manager, worker = machines
        manager.client.swarm.init(advertise_addr=CABLE[0], listen_addr=f"{CABLE[0]}:2377")
        token = manager.client.swarm.attrs["JoinTokens"]["Worker"]
        worker.client.swarm.join(
            [f"{CABLE[0]}:2377"], token, advertise_addr=CABLE[1], listen_addr=f"{CABLE[1]}:2377"
        )
        yield Swarm(machines)


def _nothing_left(folder: Path) -> None:
    """Raise if a daemon, a network, a control group or a mount of the swarm is still there."""
    left = [
        str(each) for each in (*CONTROL_GROUPS.glob("*/trbswarm*"), *Path("/run/netns").glob("trbswarm*"))
    ]
    left += [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    assert not left


def _of_group(group: str) -> list[int]:
    """Processes of a control group's containers."""
    return [
        int(pid) for file in CONTROL_GROUPS.glob(f"*/{group}/**/cgroup.procs") for pid in _read(file).split()
    ]


def _in_network(inode: int) -> list[int]:
    """Processes in a network namespace: the daemon, containerd and its shims."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino == inode:
                    found.append(int(entry.name))
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
