"""One tritonserver for modules that only ask endpoints: each loads its own, and unloads them at its end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from tests.support import serve_repository as made
from tests.support.servers import free
from triton_repo_builder import serve

PLATFORM = 'platform: "ensemble"'
LOADING = 4
"""Models that load at the same time: their processes share two cores."""


@dataclass(frozen=True, kw_only=True)
class Zoo:
    """A running server, and the folder that it reads its models from."""

    server: serve.RunningServer
    root: Path

    @contextmanager
    def serving(self, repository: Path) -> Iterator[serve.RunningServer]:
        """The server with every model of a repository, whose names nothing else may have meanwhile."""
        folders = sorted(path for path in repository.iterdir() if (path / "config.pbtxt").is_file())
        for folder in folders:
            shutil.copytree(folder, self.root / folder.name, copy_function=_link, symlinks=True)
        ensembles = [f.name for f in folders if PLATFORM in (f / "config.pbtxt").read_text()]
        steps = [folder.name for folder in folders if folder.name not in ensembles]
        try:
            with ThreadPoolExecutor(LOADING) as pool:
                list(pool.map(lambda name: self._call("load", name), steps))
            for name in ensembles:
                self._call("load", name)
            yield self.server
        finally:
            for name in (*ensembles, *steps):
                self._call("unload", name)
                shutil.rmtree(self.root / name)

    def _call(self, verb: str, name: str) -> None:
        url = f"{self.server.urls.http}/v2/repository/models/{name}/{verb}"
        answer = requests.post(url, json={}, timeout=120)
        assert answer.status_code == 200, f"{verb} {name}: {answer.text}"


@contextmanager
def running(root: Path) -> Iterator[Zoo]:
    """A server with no model loaded."""
    made.python(root, "zoo_keeper")
    with serve.start(root, free("none")) as server:
        yield Zoo(server=server, root=root)


def _link(source: str, target: str) -> None:
    os.link(source, target)
