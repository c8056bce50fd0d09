"""Line width of Markdown pages."""

from __future__ import annotations

import re
import textwrap

WIDTH, LONGEST = 120, 125
ITEM = re.compile(r" *(?:[-*+]|\d+[.)]) ")
STOP = re.compile(r"\s*$|[#>|]|```|<!--")
"""Lines that belong to no paragraph: blank lines, headings, quotes, tables, fences and comments."""


def wrapped(page: str) -> str:
    """The page with those paragraphs and list items wrapped that have a long line; all else stays."""
    lines: list[str] = []
    paragraph: list[str] = []
    fenced = False
    for line in page.split("\n"):
        fenced ^= line.startswith("```")
        code = line.startswith("    ") and not paragraph
        if fenced or code or STOP.match(line) or ITEM.match(line):
            lines += _wrapped(paragraph)
            paragraph = []
        if not (fenced or code or STOP.match(line)):
            paragraph.append(line)
        else:
            lines.append(line)
    return "\n".join([*lines, *_wrapped(paragraph)])


def _wrapped(paragraph: list[str]) -> list[str]:
    """The lines; wrapped if one is too long, and so that none but the first looks like a list item."""
    if all(len(line) <= LONGEST for line in paragraph):
        return paragraph
    item = ITEM.match(paragraph[0])
    indent = " " * item.end() if item else ""
    text = " ".join([paragraph[0], *(line.strip() for line in paragraph[1:])])
    for width in range(WIDTH, WIDTH // 2, -1):
        lines = textwrap.wrap(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        if not any(ITEM.match(line) or STOP.match(line.strip()) for line in lines[1:]):
            return lines
    return paragraph
