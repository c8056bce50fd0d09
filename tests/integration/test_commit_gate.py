"""The gate of a commit, as git starts it: with the file of the message as its argument."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship.vcs import gate
from triton_repo_builder.ship.vcs.git import Git

MESSAGE = "Déployer 'bert' [a-z]* $HOME \\n\n\n\n# kept, too  \n"
STRIPPED = "Déployer 'bert' [a-z]* $HOME \\n\n\n# kept, too\n"


@pytest.mark.parametrize(
    ("written", "passes"),
    [
        (STRIPPED, True),
        (f"{STRIPPED}\nTrb-Model: bert\n", True),
        ("", False),
        (None, False),
        (STRIPPED[:-2], False),
        (STRIPPED.replace("[a-z]*", "b"), False),
    ],
    ids=["whole", "with trailers", "empty", "no file", "cut short", "another"],
)
def test_only_a_message_that_begins_as_ours_passes(tmp_path: Path, written: str | None, passes: bool) -> None:
    Git(folder=tmp_path)("init", "-q")
    scratch = tmp_path / "its scratch"
    scratch.mkdir()
    file = tmp_path / "COMMIT_EDITMSG"
    if written is not None:
        file.write_text(written)
    command = gate.command(Git(folder=tmp_path), MESSAGE, "", scratch)
    done = subprocess.run(["sh", "-c", f'{command} "$@"', command, str(file)], cwd=tmp_path)
    assert (done.returncode == 0) is passes
    error = gate.refusal(scratch, tmp_path, ".")
    assert (error is None) is passes
    if error is not None:
        assert error.code is Code.GIT_REFUSED
        assert "could not write the message" in error.message
