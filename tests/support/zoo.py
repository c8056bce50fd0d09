"""One tritonserver for modules that only ask endpoints: each loads its own, and unloads them at its end."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from tests.support import serve_repository as made
from tests.support.servers import free
from tests.support.triton_faults import faults
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run import serve
from triton_repo_builder.run.serve.loading.start import AS_THEY_STAND

PLATFORM = 'platform: "ensemble"'
LOADING = 4
"""Models that load at the same time: their processes share two cores."""
DIED = (requests.ConnectionError, TrbError)
log = logging.getLogger(__name__)


class Zoo:
    """A running server, and the folder that it reads its models from.

    A server that Triton's own fault ended while it loaded (triton_faults.py) is started again, and the load
    with it: one that dies of a model fails, with its log.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._starts = 0
        made.python(root, "zoo_keeper")  # trb serve refuses a repository without any model
        self.server = self._start()

    @contextmanager
    def serving(self, repository: Path) -> Iterator[serve.RunningServer]:
        """The server with every model of a repository, whose names nothing else may have meanwhile."""
        folders = sorted(path for path in repository.iterdir() if (path / "config.pbtxt").is_file())
        for folder in folders:
            shutil.copytree(folder, self.root / folder.name, copy_function=_link, symlinks=True)
        ensembles = [f.name for f in folders if PLATFORM in (f / "config.pbtxt").read_text()]
        steps = [folder.name for folder in folders if folder.name not in ensembles]

        def load() -> None:
            with ThreadPoolExecutor(LOADING) as pool:
                list(pool.map(lambda name: self._call("load", name), steps))
            for name in ensembles:
                self._call("load", name)

        try:
            self._again_if_dead(load)
            yield self.server
        finally:
            for name in (*ensembles, *steps):
                with suppress(*DIED):  # then the next one finds it dead
                    self._call("unload", name)
                shutil.rmtree(self.root / name)

    def stop(self) -> None:
        """Stop the server."""
        self.server.stop()

    def _start(self) -> serve.RunningServer:
        self._starts += 1
        file = self.root.parent / f"{self.root.name}-{self._starts}.log"
        return serve.start(self.root, free("none", extra=(AS_THEY_STAND,), log_file=file))

    def _again_if_dead(self, load: Callable[[], None]) -> None:
        try:
            load()
        except DIED:
            log.error("the server died:\n%s", self.server.log.read_text(errors="replace")[-4000:])
            if not faults.starts_again(self.server):
                raise
            self.server.stop()
            self.server = self._start()
            load()

    def _call(self, verb: str, name: str) -> None:
        url = f"{self.server.urls.http}/v2/repository/models/{name}/{verb}"
        answer = requests.post(url, json={}, timeout=120)
        assert answer.status_code == 200, f"{verb} {name}: {answer.text}"


@contextmanager
def running(root: Path) -> Iterator[Zoo]:
    """A server with no model loaded."""
    zoo = Zoo(root)
    try:
        yield zoo
    finally:
        zoo.stop()


def _link(source: str, target: str) -> None:
    os.link(source, target)
