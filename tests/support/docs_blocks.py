"""The code blocks of the pages: where each stands, its language, and what kind of thing it is."""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import yaml

from triton_repo_builder.repository import pbtxt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    "aws|cd|curl|docker|git|helm|kubectl|make|model_signing|openssl|optimum-cli|oras|pip|printf|pytest|python3?"
    "|skopeo|tr|trb"
)
_FENCE = re.compile(r"^( *)(```+|~~~+) *(\S*)")
_ITEM = re.compile(r"^( *)(?:[-*]|\d+\.) ")
_COMMAND = re.compile(
    rf"^(?:\(?(?:{PROGRAMS}) |\(umask |export [A-Z]|[a-z]=\S+;|[A-Z_]+=\S+ |\.venv\S* |# (?!kustomization))",
    re.MULTILINE,
)
_LANGUAGES = {"sh": "commands", "bash": "commands", "console": "transcript", "js": "javascript"}


class Kind(str, Enum):
    """What a block is."""

    TRANSCRIPT = "transcript"
    COMMANDS = "commands"
    PYTHON = "python"
    JAVASCRIPT = "javascript"
    TOML = "toml"
    YAML = "yaml"
    JSON = "json"
    PBTXT = "pbtxt"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced or indented block of a page."""

    page: str
    line: int
    language: str
    text: str
    before: str
    """The block above it on the page, unless a heading is between them."""

    @property
    def kind(self) -> Kind:
        """By the language of its fence, or by what it reads like."""
        named = _LANGUAGES.get(self.language, self.language)
        if named in [kind.value for kind in Kind]:
            return Kind(named)
        guessed = _guess(self.text)
        answer = guessed is Kind.JSON and "curl " in self.before
        return Kind.OUTPUT if answer else guessed

    @property
    def where(self) -> str:
        """``PAGE:LINE: first line``."""
        return f"{self.page}:{self.line}: {self.text.strip().splitlines()[0]}"


def pages() -> tuple[Path, ...]:
    """Every page whose blocks are accounted for."""
    listed = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    return tuple(sorted((*listed, *(ROOT / "examples").rglob("README.md"))))


@cache
def inventory() -> tuple[Block, ...]:
    """All blocks of all pages."""
    return tuple(
        block for page in pages() for block in blocks(page.read_text(), page.relative_to(ROOT).as_posix())
    )


def blocks(text: str, page: str) -> Iterator[Block]:
    """The blocks of one page: between fences, or indented by four blanks more than the text around them."""
    lines = text.splitlines()
    number, margin, blank, before = 0, 0, True, ""
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.match(line):
            end = next(
                (
                    later
                    for later in range(number + 1, len(lines))
                    if lines[later].strip().startswith(fence[2]) and not lines[later].strip(" `~")
                ),
                len(lines),
            )
            body = lines[number + 1 : end]
            language = fence[3]
        elif blank and line.strip() and line.startswith(" " * (margin + 4)):
            end = next(
                later for later in range(number + 1, len(lines) + 1) if _ends(lines, later, margin + 4)
            )
            body, language = lines[number:end], ""
            end -= 1
        else:
            blank = not line.strip()
            if item := _ITEM.match(line):
                margin = len(item[0]) if not item[1] else margin
            elif line.strip() and not line.startswith(" "):
                margin = 0
            if line.startswith("#"):
                before = ""
            number += 1
            continue
        content = textwrap.dedent("\n".join(body)).strip("\n") + "\n"
        yield Block(page=page, line=number + 1, language=language, text=content, before=before)
        before, number, blank = content, end + 1, False


def _ends(lines: list[str], number: int, margin: int) -> bool:
    """Whether an indented block ends before this line: text with less indent follows, or nothing."""
    rest = next((line for line in lines[number:] if line.strip()), "")
    return number == len(lines) or not (
        lines[number].startswith(" " * margin)
        or (not lines[number].strip() and rest.startswith(" " * margin))
    )


def read_json(text: str) -> list[object]:
    """One document, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def _pbtxt(text: str) -> object:
    return pbtxt.parse(text)


def _mapping(text: str) -> object:
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise ValueError("not a mapping")
    return document


def _guess(text: str) -> Kind:
    if re.search(r"^\$ ", text, re.MULTILINE):
        return Kind.TRANSCRIPT
    if _COMMAND.match(text):
        return Kind.COMMANDS
    readers: tuple[tuple[Kind, Callable[[str], object], str], ...] = (
        (Kind.JSON, read_json, r"\s*[\[{]"),
        (Kind.TOML, tomllib.loads, r".*^(\[[\w.\"*-]+\]|\w+ = )"),
        (Kind.PYTHON, ast.parse, r".*^(import |from |def |class |[\w, ]+ = |print\()"),
        (Kind.PBTXT, _pbtxt, r"\w+ \{"),
        (Kind.YAML, _mapping, r"(#.*\n)?[a-zA-Z][\w.-]*:[ \n]"),
    )
    for kind, read, looks in readers:
        if re.match(looks, text, re.MULTILINE | re.DOTALL):
            try:
                read(text)
            except (ValueError, SyntaxError, yaml.YAMLError, pbtxt.PbtxtError):
                continue
            return kind
    return Kind.OUTPUT
