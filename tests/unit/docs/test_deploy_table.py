"""docs/deploy.toml.md is what the declarations in ``ship/targets/spec.py`` say.

``make golden`` (this file as a program) writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from triton_repo_builder.base.option_values import Bytes, Number, Real, Seconds, Share
from triton_repo_builder.ship.targets import spec, starter

FILE = Path(__file__).resolve().parents[3] / "docs" / "deploy.toml.md"
HEAD = """# Keys of `deploy.toml`

Written by `make golden` from `triton_repo_builder/ship/targets/spec.py`. `trb deploy init` writes the file
with every key and its meaning; `trb export` and `trb canary` read it. An unknown key is an error that names
the nearest one.

Paths are relative to the file. An empty text is the default. A time is a text such as `"90s"`, `"5m"` or
`"1h"`, a size a text such as `"512MiB"` or `"4GiB"`.
"""


def page() -> str:
    return "\n".join([HEAD, *_tables(spec.Spec, "")])


def _tables(kind: type, prefix: str) -> Iterator[str]:
    """The table of a dataclass, then those of its tables."""
    inner = [each for each in fields(kind) if "nested" in each.metadata]
    about = (kind.__doc__ or "").strip() if prefix else "Above the first table of the file."
    head = f"## `[{prefix[:-1]}]`" if prefix else "## The deployment"
    rows = [_row(each) for each in fields(kind) if "option" in each.metadata]
    columns = "| key | | value | default |\n|---|---|---|---|\n"
    yield f"{head}\n\n{about}\n\n{columns}" + "\n".join(rows) + "\n"
    for each in inner:
        yield from _tables(each.metadata["nested"], f"{prefix}{each.name}.")


def _row(each: Field[Any]) -> str:
    entry = each.metadata["option"]
    default = "needed"
    if each.default is not MISSING:
        written = starter.toml(each.default, entry.value)
        default = entry.default if entry.default and written == '""' else f"`{written}`"
    cells = (f"`{each.name}`", entry.help, _values(entry.value), default)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(value: Any) -> str:
    if isinstance(value, (Number, Real)):
        return f"{value.least:g} to {value.most:g}"
    if isinstance(value, Share):
        return "0 to 1"
    return str(value.expected)


def test_the_page_is_what_the_declarations_say() -> None:
    assert FILE.read_text() == page(), "run 'make golden'"


def test_times_and_sizes_are_shown_as_they_are_written() -> None:
    written = page()
    for kind, example in ((Seconds(), '`"300s"`'), (Bytes(), '`"4GiB"`')):
        assert kind.expected in written and example in written


if __name__ == "__main__":
    FILE.write_text(page())
