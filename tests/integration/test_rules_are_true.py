"""Each rule's bad example and its mended twin on a real tritonserver: the verdicts are those of its page.

A part of them runs every day, all with ``-m slow``. The onnxruntime backend here is ours, which refuses in
the words of the C++ one (test_onnxruntime_refusals.py). Examples that kill or hang a server are only mended.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.support import examples
from tests.support.raw_server import RawServer, raw_server
from triton_repo_builder.check import explain
from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.explain import Example

pytestmark = pytest.mark.server
REFUSED = ("server", "cpp", "completing")
OTHER_WORDS = (
    "backend-custom",
    "config-syntax",
    "lfs-pointer",
    "not-a-model",
    "onnx-external-data",
    "onnx-graph",
    "onnx-library",
    "onnx-unreadable",
    "python-import",
)
"""The server says the same in other words, or more."""
SHOWN = {code: example for code in CODES if (example := explain.example(code))}


def sample(codes: list[str]) -> list[object]:
    """Every fifth each day, all of them with the slow tests."""
    slow = pytest.mark.slow
    return [code if index % 5 == 0 else pytest.param(code, marks=slow) for index, code in enumerate(codes)]


class Bench:
    """A server over a folder whose models change; one that died is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._starts = folder, 0
        self._running: AbstractContextManager[RawServer]
        self._server: RawServer
        self._repository: Path

    def start(self) -> None:
        """A server on an empty repository."""
        self._starts += 1
        scratch = self._folder / str(self._starts)
        self._repository = scratch / "repository"
        self._repository.mkdir(parents=True)
        self._running = raw_server(self._repository, scratch)
        self._server = self._running.__enter__()

    def stop(self) -> None:
        """End it."""
        self._running.__exit__(None, None, None)

    def load(self, files: dict[str, str]) -> str:
        """What the server said of the models, with its log; empty if it loaded all."""
        try:
            return self._load(files)
        except (OSError, HTTPException):  # once in some thousand loads of a broken Python model
            self.stop()
            self.start()
            return self._load(files)

    def _load(self, files: dict[str, str]) -> str:
        examples.lay_out(files, self._repository)
        start = self._server.log.stat().st_size
        names = sorted(entry.name for entry in self._repository.iterdir() if entry.is_dir())
        refused = [text for text in map(self._server.load, names) if text]
        with self._server.log.open("rb") as log:
            log.seek(start)
            said = log.read().decode(errors="replace")
        for name in names:
            self._server.unload(name)
            shutil.rmtree(self._repository / name)
        return "\n".join([*refused, said]).replace(f"{self._repository}/", "") if refused else ""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("truth"))
    bench.start()
    yield bench
    bench.stop()


def shown(code: str) -> Example:
    return SHOWN[code]


@pytest.mark.parametrize("code", sample([code for code in SHOWN if shown(code).judged in REFUSED]))
def test_the_bad_example_is_refused_in_these_words(code: str, bench: Bench) -> None:
    said = bench.load(dict(shown(code).bad))
    assert said
    if code not in OTHER_WORDS:
        # Blanks apart: the server forgets one in "provided from shortonly has 2 bytes".
        assert shown(code).says.replace(" ", "") in said.replace(" ", "")


@pytest.mark.parametrize("code", sample([code for code in SHOWN if shown(code).judged.endswith("loads")]))
def test_what_is_only_warned_of_loads(code: str, bench: Bench) -> None:
    assert bench.load(dict(shown(code).bad)) == ""


@pytest.mark.parametrize(
    "code", sample([code for code in SHOWN if shown(code).judged not in ("newer", "source")])
)
def test_the_mended_twin_loads(code: str, bench: Bench) -> None:
    assert bench.load(dict(shown(code).good)) == ""
