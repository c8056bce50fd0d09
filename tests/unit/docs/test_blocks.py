"""Every code block of every page is run, belongs to a test, is parsed, or is in a list with the reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from click import Context

from tests.support.docs_accounts import Claim, Synopsis, accounted, accounts, matching
from tests.support.docs_blocks import ROOT, Kind, blocks, inventory, tomllib
from tests.support.docs_compare import difference
from tests.support.docs_settings import read
from tests.support.docs_shell import Step, steps
from triton_repo_builder.cli import COMMANDS, group

MOST_THAT_CANNOT_RUN = 32
SETTINGS = [block for block, how in accounted().items() if how == "settings"]


def test_every_block_is_accounted_for() -> None:
    entries = accounted()
    unknown = [f"{block.kind.value:10} {block.where}" for block in inventory() if block not in entries]
    counts = Counter(entries.values())
    print(f"{len(inventory())} blocks: {dict(counts)}")  # noqa: T201 (pytest -rP shows it)
    assert unknown == [], "say in tests/data/docs_blocks.toml who runs them (docs/testing.md)"
    assert counts["cannot"] <= MOST_THAT_CANNOT_RUN


@pytest.mark.parametrize("block", SETTINGS, ids=[f"{block.page}:{block.line}" for block in SETTINGS])
def test_settings_are_read_by_their_reader(block: object, tmp_path: Path) -> None:
    read(block, tmp_path)  # type: ignore[arg-type]


def test_every_entry_names_blocks_that_are_there() -> None:
    entries = accounts()
    for run in entries.runs:
        run.found()
    stale = [
        f"{one.page}: {text}"
        for one in (*entries.claims, *entries.synopses, *entries.cannot)
        for text in one.blocks
        if text != "*" and text not in {found for found, _ in matching(one.page, one.blocks)}
    ]
    assert stale == []
    for one in (*entries.synopses, *entries.cannot):
        found = [text for text, _ in matching(one.page, one.blocks)]
        assert [text for text in one.blocks if found.count(text) > 1] == [], "a text of one block alone"


@pytest.mark.parametrize("claim", accounts().claims, ids=lambda claim: f"{claim.page}:{claim.blocks[0][:40]}")
def test_a_claim_is_true(claim: Claim) -> None:
    """The test exists, and its folder names the page or a text of the block."""
    file, _, name = claim.test.partition("::")
    functions = {
        node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")
    }
    assert name in functions, claim.test
    said = claim.named or Path(claim.page).name
    nearby = [ROOT / file] if not claim.named else [*(ROOT / file).parent.glob("*.*")]
    assert any(said in path.read_text(errors="replace") for path in nearby if path.is_file()), said
    if claim.named:
        assert any(said in block.text for _, block in matching(claim.page, claim.blocks)), said


@pytest.mark.parametrize("synopsis", accounts().synopses, ids=lambda one: f"{one.page}:{one.blocks[0][:40]}")
def test_the_programs_of_a_synopsis_exist(synopsis: Synopsis) -> None:
    """Options of ``trb`` are the subject of test_docs_commands.py."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for _, block in matching(synopsis.page, synopsis.blocks):
        for step in steps(block.text, prompts=block.kind is Kind.TRANSCRIPT):
            words = step.command.split()
            if words[0] == "make":
                assert words[1] in targets, step
            elif words[0] == "trb":
                assert words[1] in COMMANDS and group.get_command(Context(group), words[1]), step
            elif words[:2] == ["pip", "install"]:
                named = re.findall(r"(?:triton_repo_builder|'\.)\[([\w,]+)\]", step.command)
                assert all(extra in extras for group_ in named for extra in group_.split(",")), step
            else:
                files = [word for word in words if word.startswith(("benchmarks/", "tests.", "examples/"))]
                assert all(
                    (ROOT / file).exists() or (ROOT / f"{file.replace('.', '/')}.py").exists()
                    for file in files
                )


def test_blocks_of_a_page() -> None:
    page = "# A\n\n    $ trb check\n    fine\n\n- item\n\n      [build]\n      name = 1\n\n"
    page += "```sh\ntrb serve\n```\n\ntext\n"
    found = [(block.line, block.kind, block.text) for block in blocks(page, "a.md")]
    assert found == [
        (3, Kind.TRANSCRIPT, "$ trb check\nfine\n"),
        (8, Kind.TOML, "[build]\nname = 1\n"),
        (11, Kind.COMMANDS, "trb serve\n"),
    ]


def test_steps_of_a_transcript() -> None:
    text = "$ cat <<'END'\na\nEND\na\n$ curl x \\\n  -d 'b\nc'\n"
    assert [*steps(text, prompts=True)] == [
        Step("cat <<'END'\na\nEND", "a"),
        Step("curl x \\\n  -d 'b\nc'", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("passed 12 in 3 ms", "passed 12 in 400 ms\n", True),
        ("passed 12", "passed 13", False),
        ("score 0.98207", "score 0.98208", True),
        ("score 0.982", "score 0.731", False),
        ("a\n[…]\nb", "a\nmore\nand more\nb\n", True),
        ("a\nb", "a\nmore\nb", False),
        ("sha256:e76d03b566da", "sha256:1b64ee1b369b", True),
        ("http://localhost:8000 serves", "http://127.0.0.1:43119 serves", True),
        ('{"a":[1,2],\n "b":…}', '{"a":[1,2],"b":[3]}', True),
        ("wrote    deploy.toml", "wrote    deploy.tom", False),
        ("stopped demo (7445)\nend", "stopped demo (89)\nend", True),
        ("3 of (12)", "3 of (13)", False),
        ("grpc   3%   no, ±23%\nend", "grpc   3%   yes\nend", True),
        ("68K a", "72K a", True),
    ],
)
def test_what_counts_as_the_same_output(shown: str, printed: str, same: bool) -> None:
    assert (difference(shown, printed) == "") is same


def test_measurements_are_any_numbers() -> None:
    assert difference("rows 12 of 3", "rows 9 of 4", measured=True) == ""
    assert difference("rows 12 of 3", "lines 9 of 4", measured=True) != ""
    busy = "note: other programs used 80% of this machine's CPU\n"
    assert difference(f"rows 12\n{busy}end", "rows 9\nend", measured=True) == ""
    assert difference("rows 12\nend", "rows 9\nnote: something else\nend", measured=True) != ""
