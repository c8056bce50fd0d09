"""Every curl call of docs/api.md, as it stands there but for the address."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import tiny_sounds

pytestmark = [pytest.mark.server, pytest.mark.gateway]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
CALLS = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if "curl" in block
]


@pytest.mark.parametrize("call", CALLS, ids=[re.findall(r"9000(\S+)", call)[0] for call in CALLS])
def test_the_call_works(gateway: str, tmp_path: Path, call: str) -> None:
    (tmp_path / "speech.wav").write_bytes(tiny_sounds.wav(tiny_sounds.noise(33_333)))
    line = call.replace("curl -s ", "curl -sS --fail-with-body ").replace("localhost:9000", gateway)
    ended = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
    assert ended.stdout.strip()


def test_the_page_has_calls() -> None:
    assert len(CALLS) >= 6
