"""The calls at the top of docs/index.md, as they stand there but for the address, on the demo's endpoint."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ARGV, trb
from tests.support.serve_repository import environment, serve

pytestmark = pytest.mark.server
ROOT = Path(__file__).resolve().parents[2]
RUN = {
    "sh": ["bash", "-euc"],
    "python": [sys.executable, "-c"],
    "js": ["node", "--input-type=module", "-e"],
}


def blocks() -> list[tuple[str, str]]:
    """(language, code) of the blocks that answer the first question."""
    page = (ROOT / "docs" / "index.md").read_text()
    first = page[page.index("## How do I call it?") : page.index("## How do I embed 1,000 texts fast?")]
    return re.findall(r"^```(\w+)\n(.*?)^```", first, re.MULTILINE | re.DOTALL)


def test_every_call_of_the_index_runs(minilm_int8: Path, tmp_path: Path) -> None:
    repository = tmp_path / ".demo" / "model_repository"
    trb(
        "build",
        "--model",
        str(minilm_int8),
        "--name",
        "minilm",
        "--output",
        str(repository),
        "--batching",
        "on",
    )
    code = blocks()
    assert [language for language, _ in code] == ["sh", "sh", "sh", "python", "js"]
    said = []
    with serve(tmp_path, repository, "--json") as running:
        running.ready()
        for language, text in code:
            own = text.replace("http://127.0.0.1:8000", running.http)
            own = re.sub("^trb ", f"{shlex.join(ARGV)} ", own, flags=re.MULTILINE)
            done = subprocess.run(
                [*RUN[language], own],
                cwd=tmp_path,
                env={**environment(tmp_path), "PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path)))},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, (own, done.stderr)
            said.append(done.stdout)
    one, many, client, python, javascript = said
    assert one.count(",") > 384 > one.count(",") - 20
    assert '"shape":[2,384]' in many
    assert "wrote minilm_client.py" in client
    assert (python, javascript) == ("2 384\n", "2 384\n")
