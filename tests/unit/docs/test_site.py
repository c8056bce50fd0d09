"""Each page of docs/ is in mkdocs.yml, at the end of docs/index.md and in llms.txt, once and in one order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
GROUPS = ("Tutorial", "How-to", "Reference", "Explanation")
FOLDERS = {"rules": "Reference", "benchmarks": "Explanation"}
"""Folders that the navigation takes in whole, by group; the other lists name at most their README.md."""


def pages(entry: Any) -> Iterator[str]:
    """The pages of a part of mkdocs.yml's navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(each)


def navigation() -> dict[str, list[str]]:
    """Pages and patterns by group."""
    home, *groups = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert list(pages(home)) == ["index.md"]
    return {name: list(pages(entry)) for group in groups for name, entry in group.items()}


def linked(text: str, mark: str, prefix: str = "") -> dict[str, list[str]]:
    """Pages that a text links to, by the headings of a level."""
    sections = re.split(rf"^{mark} (.+)\n", text, flags=re.MULTILINE)[1:]
    link = re.compile(rf"\]\({prefix}([^)#]+\.md)\)")
    return {name: link.findall(section) for name, section in zip(sections[::2], sections[1::2], strict=True)}


def test_every_page_is_in_the_navigation_once() -> None:
    named = [page for group in navigation().values() for page in group]
    folders = {page.removesuffix("/*.md") for page in named if page.endswith("/*.md")}
    assert folders == set(FOLDERS)
    single = [page for page in named if not page.endswith("/*.md")]
    assert len(single) == len(set(single))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"}
    assert set(single) == {page for page in written if page.split("/")[0] not in folders or page in single}


def test_the_groups_are_the_four_kinds_of_pages() -> None:
    groups = navigation()
    assert tuple(groups) == GROUPS
    for folder, group in FOLDERS.items():
        assert f"{folder}/*.md" in groups[group]


def test_the_index_and_llms_txt_have_the_same_pages_in_the_same_order() -> None:
    expected = {
        name: [page for page in group if not page.endswith("/*.md")] for name, group in navigation().items()
    }
    index = (DOCS / "index.md").read_text()
    assert linked(index[index.index("\n## All pages\n") :], "###") == expected
    listed = linked((ROOT / "llms.txt").read_text(), "##", "docs/")
    assert listed.pop("Start") == ["index.md"]
    assert listed == expected


def test_every_question_of_the_cookbook_is_in_its_list() -> None:
    listed = linked((DOCS / "cookbook" / "README.md").read_text(), "##")
    questions = [page for section in listed.values() for page in section]
    in_navigation = [page for page in navigation()["How-to"] if page.startswith("cookbook/")]
    assert ["README.md", *questions] == [page.removeprefix("cookbook/") for page in in_navigation]
