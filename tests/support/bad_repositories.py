"""Repositories with a fault, one TOML file each, with the findings that they must give.

``expected`` is the text of the findings, ``release`` the release that refuses the repository (the default one
if it is absent). ``[files]`` has texts by path as check/examples/ has them (tests/support/examples.py),
``[base64]`` the files that are no text.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import examples
from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.files import load_toml
from triton_repo_builder.base.releases import Release
from triton_repo_builder.check.finding import Finding

FOLDER = Path(__file__).parents[1] / "errors" / "repositories"
GOOD = FOLDER.with_name("accepted")
"""Repositories that look wrong and load: no error may be found in them."""
ACCEPTED = sorted(file.stem for file in GOOD.glob("*.toml"))
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))


@cache
def case(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """The document of a case."""
    return load_toml((folder / f"{name}.toml").read_text(encoding="utf-8"))


def lay_out(name: str, target: Path, folder: Path = FOLDER) -> Path:
    """Write one of the repositories to ``target``."""
    document = case(name, folder)
    examples.lay_out(document["files"], target)
    for path, content in document.get("base64", {}).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(base64.b64decode(content))
    return target


def files_named(name: str, *folders: Path) -> list[bytes]:
    """Contents of the files of that name in all cases of some folders."""
    cases = [case(file.stem, folder) for folder in folders for file in sorted(folder.glob("*.toml"))]
    texts = [text.encode() for each in cases for text in _named(each["files"], name)]
    return texts + [base64.b64decode(code) for each in cases for code in _named(each.get("base64", {}), name)]


def _named(files: dict[str, str], name: str) -> list[str]:
    return [content for path, content in files.items() if Path(path).name == name and path[-1] != "/"]


def release_of(name: str) -> Release:
    """The release that refuses a repository."""
    release = case(name).get("release")
    return releases.get(release) if release else releases.default()


def findings(path: Path, release: Release | None = None) -> list[Finding]:
    """Findings of ``trb check`` in a repository."""
    return check.check(repository.read(path, lenient=True), release or releases.default())


def write_expected(name: str, text: str) -> None:
    """Replace, or add, the expected text of a case."""
    file = FOLDER / f"{name}.toml"
    plain = "'''" not in text and not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ufeff]", text)
    value = f"'''\n{text}'''" if plain else json.dumps(text).replace("\x7f", r"\u007f")
    head, files, rest = file.read_text(encoding="utf-8").partition("[files]\n")
    kept = [line for line in head.splitlines(keepends=True) if line.startswith("release = ")]
    file.write_text(f"{''.join(kept)}expected = {value}\n\n{files}{rest}", encoding="utf-8")
