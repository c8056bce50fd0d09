"""docs/api.md: each Python block, and each call of the table of clients, runs as it is written there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT
from recorder import Recorder, recording
from texts import png, wav

HEADING = "Clients"
NODE = "Node.js"
ADDRESS = "http://localhost:9000"


class Row(NamedTuple):
    """One call of the table."""

    route: str
    client: str
    call: str


def sections() -> dict[str, str]:
    """The text below each heading of the second level."""
    page = (ROOT / "docs" / "api.md").read_text()
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def rows() -> list[Row]:
    listed = re.findall(r"^\| `(/\S*)` \| ([^|]+) \| `(.+)` \|$", sections()[HEADING], re.MULTILINE)
    return [Row(*row) for row in listed]


EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, text in sections().items()
    if name != HEADING
    for number, example in enumerate(blocks(text, "python"))
]


@pytest.fixture(scope="module")
def recorder(url: str) -> Iterator[Recorder]:
    with recording(url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(blocks(sections()[HEADING], "python")[0], names)
    return names


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the calls name."""
    for name, content in (("image.png", png()), ("sound.wav", wav()), ("speech.wav", wav())):
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example: str, url: str, files: Path) -> None:
    assert ADDRESS in example
    exec(example.replace(ADDRESS, url), {})


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.route}-{row.client}")
def test_the_call_works(
    row: Row,
    recorder: Recorder,
    imported: dict[str, object],
    files: Path,
) -> None:
    recorder.requests.clear()
    if NODE in row.client:
        _by_node(row.call, recorder.url)
    else:
        assert eval(row.call, {**imported, "URL": recorder.url}) is not None
    assert recorder.requests
    assert {(path.partition("?")[0], status) for _, path, status in recorder.requests} == {(row.route, 200)}


def test_every_client_is_in_the_table() -> None:
    pins = (ROOT / "constraints-clients.txt").read_text().partition("\n\n")[0]
    clients = set(re.findall(r"^([a-z-]+)==", pins, re.MULTILINE))
    assert "openai" in clients
    named = {row.client.partition(" ")[0] for row in rows() if NODE not in row.client}
    assert clients <= named


def _by_node(call: str, url: str) -> None:
    environment = Path(sys.prefix)
    imports = blocks(sections()[HEADING], "javascript")[0]
    code = f'{imports}\nconst URL = "{url}";\nif (!(await {call})) process.exit(1);'
    # npm's packages are looked for from the working directory.
    argv = [str(environment / "bin" / "node"), "--input-type=module", "-e", code]
    done = subprocess.run(argv, cwd=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
