"""How each block of the pages is accounted for: tests/data/docs_blocks.toml, read once.

``[[run]]`` is run and compared, ``[[claim]]`` belongs to another test, ``[[synopsis]]`` lists command lines
that are only parsed, ``[[cannot]]`` says why nothing runs it here. Blocks of settings need no entry: they are
parsed, and read by the code whose file they are (tests/support/docs_settings.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from functools import cache
from typing import Any

from tests.support.docs_blocks import ROOT, Block, Kind, inventory, tomllib

FILE = ROOT / "tests" / "data" / "docs_blocks.toml"
SETTINGS = (Kind.TOML, Kind.YAML, Kind.JSON, Kind.PBTXT)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Blocks of a page that are run in order, in one folder and one shell."""

    name: str
    page: str
    blocks: Sequence[str]
    """For each block a text that it alone holds (``^``: its beginning); of another page as ``PAGE::text``."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Folder of the run → where its model is from (tests/support/docs_scenes.py)."""
    setup: Sequence[str] = ()
    """Commands that the page takes for granted."""
    before: Mapping[str, str] = field(default_factory=dict)
    """A text of a command or of its shown output → what the reader does before, as a command."""
    replace: Mapping[str, str] = field(default_factory=dict)
    """A text that a page shortens → what a reader writes for it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """A text that a block holds → file to which the block is appended."""
    needs: Sequence[str] = ()
    """Markers beside ``server``: slow, docker, kubernetes, lfs."""
    env: Mapping[str, str] = field(default_factory=dict)
    s3: bool = False
    """Whether there is a bucket, s3://models."""
    measured: bool | Sequence[str] = False
    """Whether its numbers are measurements of one machine; or texts of the commands whose numbers are."""

    def measures(self, command: str) -> bool:
        """Whether the numbers that a command prints are measurements."""
        if isinstance(self.measured, bool):
            return self.measured
        return any(text in command for text in self.measured)

    def found(self) -> list[Block]:
        """The blocks in the order of the entry."""
        split = [text.rpartition("::") for text in self.blocks]
        return [_only(page or self.page, text) for page, _, text in split]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Blocks that a test of another file runs or compares."""

    page: str
    blocks: Sequence[str]
    """Texts of blocks; ``*`` is every block that nothing else accounts for."""
    test: str
    named: str = ""
    """Empty: that test takes the block from the page. Else it does the same itself; this text is in both."""


@dataclass(frozen=True, kw_only=True)
class Synopsis:
    """Commands that are alternatives or need what is not here: their programs and options must exist."""

    page: str
    blocks: Sequence[str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Cannot:
    """Blocks that nothing runs here."""

    page: str
    blocks: Sequence[str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The whole file."""

    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    synopses: tuple[Synopsis, ...]
    cannot: tuple[Cannot, ...]
    left_out: Mapping[str, str]
    """Beginning of a command → why no run starts it."""


@cache
def accounts() -> Accounts:
    """The file; an unknown key is an error."""
    document = tomllib.loads(FILE.read_text())
    made = {kind: tuple(_made(cls, table) for table in document.pop(kind, ())) for kind, cls in KINDS.items()}
    left_out = document.pop("left_out")
    assert not document, document
    return Accounts(
        runs=made["run"],
        claims=made["claim"],
        synopses=made["synopsis"],
        cannot=made["cannot"],
        left_out=left_out,
    )


KINDS: dict[str, Any] = {"run": Run, "claim": Claim, "synopsis": Synopsis, "cannot": Cannot}


def _made(cls: Any, table: dict[str, Any]) -> Any:
    unknown = table.keys() - {one.name for one in fields(cls)}
    assert not unknown, f"{FILE.name}: {unknown} in {table}"
    return cls(**table)


def _only(page: str, text: str) -> Block:
    """The block of a page that holds a text."""
    found = [block for block in inventory() if block.page == page and _holds(block, text)]
    assert len(found) == 1, f"{FILE.name}: {len(found)} blocks of {page} have {text!r}"
    return found[0]


def _holds(block: Block, text: str) -> bool:
    return block.text.startswith(text[1:]) if text.startswith("^") else text in block.text and text != "*"


def matching(page: str, texts: Sequence[str]) -> Iterator[tuple[str, Block]]:
    """(text, block) of each block of the page, or pages, that holds one of the texts."""
    for block in inventory():
        if fnmatch(block.page, page):
            yield from ((text, block) for text in texts if _holds(block, text))


def accounted() -> dict[Block, str]:
    """Block → run, claim, alike, synopsis, settings or cannot. Blocks that are not in it are unknown."""
    entries = accounts()
    found: dict[Block, str] = {}
    others: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("claim", entries.claims),
        ("synopsis", entries.synopses),
        ("cannot", entries.cannot),
    )
    for run in entries.runs:
        found |= dict.fromkeys(run.found(), "run")
    for kind, listed in others:
        for one in listed:
            how = "alike" if kind == "claim" and one.named else kind
            found = dict.fromkeys((block for _, block in matching(one.page, one.blocks)), how) | found
    whole = [(claim.page, "claim") for claim in entries.claims if "*" in claim.blocks]
    whole += [(synopsis.page, "synopsis") for synopsis in entries.synopses if "*" in synopsis.blocks]
    for block in inventory():
        kind = next((kind for page, kind in whole if fnmatch(block.page, page)), "")
        if block not in found and kind:
            found[block] = kind
        elif block not in found and block.kind in SETTINGS:
            found[block] = "settings"
    return found
