"""A page for each rule: its meaning, a faulty example, its correction and the server's message.

The examples are data (``examples/CODE.toml``), which the tests start on a real server; docs/rules/ and
``trb check --explain`` are made from them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base import files, releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import load_toml
from triton_repo_builder.check.codes import CODES

FOLDER = Path(__file__).with_name("examples")
JUDGED = {
    "server": "The server refuses the first of the two and loads the second, in a test.",
    "completing": "A server that completes configurations refuses the first and loads the second, in a test.",
    "loads": "The server loads both, in a test; the first does not do what was meant.",
    "request": "The server loads both, in a test; with the first a request of two rows fails.",
    "cpp": "The onnxruntime backend refuses the first and loads the second. The tests' server has trb's own "
    "onnxruntime backend; that the C++ one of the stock image says the same was seen on 24.10.",
    "cpp-only": "The C++ onnxruntime backend of 24.10 refused the first and loaded the second when it was "
    "tried. The tests' server has a newer ONNX Runtime, which loads both.",
    "cpp-loads": "The onnxruntime backend loads both, in a test; the first does not do what was meant.",
    "dies": "The server died of the first when it was tried, so that no test repeats it; the second loads.",
    "hangs": "The server hung on the first when it was tried, so that no test repeats it; the second loads.",
    "newer": "The embedded server is too old to know the field, so that no test judges it: the words are "
    "those of the newer release's source.",
    "source": "The embedded server does not have the backend, so that no test judges it: the words are those "
    "of the backend's source.",
}
NONE = "No server judges this."


@dataclass(frozen=True, kw_only=True)
class Example:
    """A repository as texts by path: ``.onnx.txt`` is a graph in ONNX's syntax, ``-> x`` a link to ``x``."""

    judged: str
    says: str
    release: str
    bad: Mapping[str, str]
    good: Mapping[str, str]


def example(code: str) -> Example | None:
    """The example of a rule, if files can show it."""
    file = FOLDER / f"{code}.toml"
    if not file.is_file():
        return None
    document = load_toml(file.read_text(encoding="utf-8"))
    removed = document.get("removed", ())
    kept = {name: text for name, text in document["bad"].items() if name not in removed}
    return Example(
        judged=document["judged"],
        says=document["says"],
        release=document.get("release", releases.default().name),
        bad=document["bad"],
        good={**kept, **document["good"]},
    )


def page(code: str) -> str:
    """The page of a rule, in Markdown. Raises USAGE for a code that does not exist."""
    if code not in CODES:
        near = difflib.get_close_matches(code, CODES, 1)
        remedy = f"did you mean '{near[0]}'?" if near else "docs/checks.md lists all codes"
        raise TrbError(Code.USAGE, f"no finding has the code '{code}'", remedy=remedy)
    entry, shown = CODES[code], example(code)
    lines = [
        f"# {code}",
        "",
        f"{entry.severity}, {entry.group}",
        "",
        entry.meaning,
        "",
        f"**Fix:** {entry.remedy}",
    ]
    if shown is None:
        return "\n".join([*lines, "", NONE]) + "\n"
    says = "The server says" if shown.judged in ("server", "cpp", "cpp-only", "completing") else "trb says"
    release = "" if shown.release == releases.default().name else f" (release {shown.release})"
    lines += ["", f"## Example{release}", "", *_files(shown.bad), f"{says}:", "", *_fenced(shown.says), ""]
    changed = {name: text for name, text in shown.good.items() if shown.bad.get(name) != text}
    gone = [f"`{name}` is gone." for name in shown.bad if name not in shown.good]
    lines += ["## Mended", "", *_files(changed), *(f"{line}\n" for line in gone), JUDGED[shown.judged]]
    return "\n".join(lines) + "\n"


def _files(files: Mapping[str, str]) -> Iterator[str]:
    for name, text in files.items():
        if name.endswith("/"):
            yield f"`{name}`, an empty folder\n"
        elif text.startswith("-> "):
            yield f"`{name}`, a link to `{text[3:]}`\n"
        elif not text.strip():
            yield f"`{name}`, an empty file\n"
        else:
            yield from (f"`{name}`:", "", *_fenced(text), "")


def _fenced(text: str) -> list[str]:
    return ["```", *text.rstrip("\n").split("\n"), "```"]


def write(folder: Path) -> None:
    """Write docs/rules/ anew."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for code in CODES:
        files.write(folder / f"{code}.md", page(code).encode())
