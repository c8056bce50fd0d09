"""``trb gateway`` starts with nothing but the packages of ``trb image build --gateway``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.serve_repository import until
from triton_repo_builder.ship.container_image import wheels

CHILD = """
import re, sys
from importlib import metadata

def plain(name):
    return re.sub("[-_.]+", "-", name).lower()

allowed = {plain(name) for name in sys.argv.pop(1).split(",")} | {"triton-repo-builder"}
others = {
    module
    for module, names in metadata.packages_distributions().items()
    if not {plain(name) for name in names} & allowed
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in others:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from triton_repo_builder.cli import main
main()
"""


def test_the_gateway_starts_with_the_packages_of_the_image(tmp_path: Path) -> None:
    packages = [pin.partition("==")[0] for pin in wheels.pinned(gateway=True)]
    out, err = tmp_path / "out", tmp_path / "err"
    # No server answers there: the gateway waits for one.
    arguments = ["gateway", "--url", "127.0.0.1:1", "--port", "0", "--json", "--shadow", "127.0.0.1:2"]
    argv = [sys.executable, "-c", CHILD, ",".join(packages), *arguments]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(argv, stdout=stdout, stderr=stderr, env=os.environ)
    try:
        until(lambda: out.read_text().endswith("\n") or child.poll() is not None)
        assert child.poll() is None, err.read_text()
        url = json.loads(out.read_text())["url"]
        status = [sys.executable, "-c", CHILD, ",".join(packages), "gateway", "status", url]
        done = subprocess.run(status, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(30)
