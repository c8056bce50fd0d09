"""Writes terminal.svg: what the first commands of README.md print, recorded from a terminal.

.venv/bin/python docs/images/make_terminal.py MODEL    # a folder with all-MiniLM-L6-v2, as of 'trb demo'

tests/integration/test_terminal_picture.py compares it with what the commands print today.
"""

from __future__ import annotations

import html
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).with_name("terminal.svg")
ROOT = Path(__file__).resolve().parents[2]
WIDTH = 112
MODEL = "exported/minilm"
COMMANDS = (f"trb build --model {MODEL}", "trb smoke")
TRB = f"{sys.executable} -m triton_repo_builder"


def recorded(command: str, folder: Path) -> str:
    """Everything that a command prints on a terminal, without its progress."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    argv = ["bash", "-c", re.sub(r"^trb", TRB, command)]
    process = subprocess.Popen(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.PIPE
    )
    os.close(end)
    printed = b""
    while part := _read(terminal):
        printed += part
    os.close(terminal)
    _, messages = process.communicate()
    assert process.returncode == 0, (command, printed, messages)
    return printed.decode().replace("\r\n", "\n").strip("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so at the end of a terminal
        return b""


def record(model: Path) -> str:
    """Run the commands in an empty folder; returns the picture."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(model, folder / MODEL)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(recorded(command, folder)))
            console.print()
    picture = console.export_svg(title="from an exported model to proven answers", unique_id="terminal")
    # Without the fonts, which a reader's browser would load from elsewhere.
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def words(picture: str) -> Counter[str]:
    """The words that a picture shows, with numbers masked: times, ports and counts of executions vary."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    lines = " ".join(html.unescape(text) for text in texts).replace("\xa0", " ")
    return Counter(re.sub(r"\d[\d.,e-]*", "#", word) for word in lines.split())


if __name__ == "__main__":
    PICTURE.write_text(record(Path(sys.argv[1]).resolve()))
