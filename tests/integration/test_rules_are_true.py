"""Each rule's bad example and its mended twin on a real tritonserver: the verdicts are those of its page.

A part of them runs every day, all with ``-m slow``. The onnxruntime backend here is ours, which refuses in
the words of the C++ one (test_onnxruntime_refusals.py). Examples that kill or hang a server are only mended.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import examples
from tests.support.raw_server import RawServer, raw_server
from triton_repo_builder.check import explain
from triton_repo_builder.check.codes import CODES
from triton_repo_builder.check.explain import Example

pytestmark = pytest.mark.server
REFUSED = ("server", "cpp", "completing")
KILLS = ("dies", "hangs", "newer")
ONLY_CPP = ("lfs-pointer", "onnx-unreadable", "onnx-graph", "onnx-library")
"""Here the C++ backend has words of its own for what ONNX Runtime says."""
SHOWN = {code: example for code in CODES if (example := explain.example(code))}


def sample(codes: list[str]) -> list[object]:
    """Every fifth each day, all of them with the slow tests."""
    slow = pytest.mark.slow
    return [code if index % 5 == 0 else pytest.param(code, marks=slow) for index, code in enumerate(codes)]


class Bench:
    """A server over a folder whose models change."""

    def __init__(self, server: RawServer, repository: Path) -> None:
        self.server, self.repository = server, repository

    def load(self, files: dict[str, str]) -> str:
        """What the server said of the models, with its log; empty if it loaded all."""
        examples.lay_out(files, self.repository)
        start = self.server.log.stat().st_size
        names = sorted(entry.name for entry in self.repository.iterdir() if entry.is_dir())
        try:
            refused = [text for text in map(self.server.load, names) if text]
            with self.server.log.open("rb") as log:
                log.seek(start)
                said = log.read().decode(errors="replace")
            return "\n".join([*refused, said]) if refused else ""
        finally:
            for name in names:
                self.server.unload(name)
                shutil.rmtree(self.repository / name)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("truth")
    (folder / "repository").mkdir()
    with raw_server(folder / "repository", folder) as server:
        yield Bench(server, folder / "repository")


def shown(code: str) -> Example:
    return SHOWN[code]


@pytest.mark.parametrize("code", sample([code for code in SHOWN if shown(code).judged in REFUSED]))
def test_the_bad_example_is_refused_in_these_words(code: str, bench: Bench) -> None:
    said = bench.load(dict(shown(code).bad))
    assert said
    if code not in ONLY_CPP and "syntax" not in code:
        expected = shown(code).says.replace(" ", "")
        assert any(line and line in said.replace(" ", "") for line in (expected, expected[:60]))


@pytest.mark.parametrize("code", sample([code for code in SHOWN if shown(code).judged.endswith("loads")]))
def test_what_is_only_warned_of_loads(code: str, bench: Bench) -> None:
    assert bench.load(dict(shown(code).bad)) == ""


@pytest.mark.parametrize("code", sample([code for code in SHOWN if shown(code).judged != "newer"]))
def test_the_mended_twin_loads(code: str, bench: Bench) -> None:
    assert bench.load(dict(shown(code).good)) == ""
