"""Every curl call of docs/api.md, as it stands there but for the address, and the answer below it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import tiny_sounds

from tests.support.docs_blocks import Kind, inventory
from tests.support.docs_compare import difference

pytestmark = [pytest.mark.server, pytest.mark.gateway]

BLOCKS = [block for block in inventory() if block.page == "docs/api.md"]
CALLS = [block.text for block in BLOCKS if block.language == "sh" and "curl" in block.text]
ANSWERS = {block.before: block.text for block in BLOCKS if block.kind is Kind.OUTPUT}


@pytest.mark.parametrize("call", CALLS, ids=[re.findall(r"9000(\S+)", call)[0] for call in CALLS])
def test_the_call_works(gateway: str, tmp_path: Path, call: str) -> None:
    (tmp_path / "speech.wav").write_bytes(tiny_sounds.wav(tiny_sounds.noise(33_333)))
    line = call.replace("curl -s ", "curl -sS --fail-with-body ").replace("localhost:9000", gateway)
    ended = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
    # The page's minilm is all-MiniLM-L6-v2, the one here is small and has other numbers.
    assert difference(ANSWERS[call], ended.stdout, measured="minilm" in call) == ""


def test_the_page_has_calls() -> None:
    assert len(CALLS) >= 6
