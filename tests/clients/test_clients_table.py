"""The table of routes and clients in docs/api.md: each call is made as it is written there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT
from recorder import Recorder, recording
from texts import png, wav

HEADING = "## Clients"
NODE = "Node.js"


class Row(NamedTuple):
    """One call of the table."""

    route: str
    client: str
    call: str


def section() -> str:
    """The section of the page, up to the next one."""
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("api*.md")))
    assert pages.count(f"{HEADING}\n") == 1
    return re.split(r"^## ", pages.split(f"{HEADING}\n")[1], flags=re.MULTILINE)[0]


def block(language: str) -> str:
    """The imports that the calls need."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", section(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def rows() -> list[Row]:
    listed = re.findall(r"^\| `(/\S*)` \| ([^|]+) \| `(.+)` \|$", section(), re.MULTILINE)
    return [Row(*row) for row in listed]


@pytest.fixture(scope="module")
def recorder(url: str) -> Iterator[Recorder]:
    with recording(url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(block("python"), names)
    return names


def case(row: Row) -> Any:
    marks = pytest.mark.asks_the_hub if row.client == "litellm (TEI)" else ()
    return pytest.param(row, id=f"{row.route}-{row.client}", marks=marks)


@pytest.mark.parametrize("row", map(case, rows()))
def test_the_call_works(
    row: Row,
    recorder: Recorder,
    imported: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("image.png").write_bytes(png())
    Path("sound.wav").write_bytes(wav())
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
    code = f'{block("javascript")}\nconst URL = "{url}";\nif (!(await {call})) process.exit(1);'
    # npm's packages are looked for from the working directory.
    argv = [str(environment / "bin" / "node"), "--input-type=module", "-e", code]
    done = subprocess.run(argv, cwd=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
