"""Refusals of ``make docs``, and ``make docs-version``: on a small site with this one's settings and hook."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INDEX = (
    "# Small\n\n## A part\n\n[a part](#a-part), [the readme](../README.md), [a folder](../examples/small)\n"
)

TABLE = "\n| option |\n|---|\n| `a\\|b` |\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one page, in git."""
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    files = {
        "mkdocs.yml": f"{settings}\nnav:\n  - Home: index.md\n",
        "README.md": "# Read me\n\n[a page](docs/index.md#a-part)\n",
        "llms.txt": "# Small\n\n> A site.\n\n## Start\n\n- [Home](docs/index.md)\n",
        "docs/index.md": INDEX + TABLE,
        "examples/small/settings.toml": "answer = 42\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(ROOT / "docs" / "site", tmp_path / "docs" / "site")
    for name in ("Makefile", ".gitignore", "constraints-docs.txt"):
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / ".venv-docs").symlink_to(ROOT / ".venv-docs")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    for key, value in {"user.name": "Jo", "user.email": "jo@example.org"}.items():
        git(tmp_path, "config", key, value)  # mike asks the repository only
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Small")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make, with the environment of this checkout as it is."""
    argv = ["make", "--no-print-directory", "--old-file", ".venv-docs/.ready", *arguments]
    return subprocess.run(argv, cwd=folder, check=False, capture_output=True, text=True)


def test_links_out_of_the_docs_lead_to_copies(checkout: Path) -> None:
    done = make(checkout, "docs")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    site = checkout / "site"
    assert (
        "(checkout/README.md), [a folder](checkout/examples/small/index.md)"
        in (site / "index.md").read_text()
    )
    assert (site / "checkout" / "README.md").read_text() == "# Read me\n\n[a page](../index.md#a-part)\n"
    assert (site / "checkout/examples/small/settings.toml").read_text() == "answer = 42\n"
    assert 'href="settings.toml"' in (site / "checkout/examples/small/index.html").read_text()
    assert (site / "llms.txt").read_text().endswith("- [Home](index.md)\n")
    assert (site / "llms-full.txt").read_text().startswith("# Small\n\n> A site.\n\n<!-- index.md -->")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("missing.md", "docs/index.md links to missing.md"),
        ("#no-such-part", "no such anchor"),
        ("../missing.toml", "docs/index.md links to ../missing.toml"),
        ("../../outside.md", "links to ../../outside.md"),
        ("/index.md", "links to /index.md"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(checkout: Path, link: str, message: str) -> None:
    page = checkout / "docs" / "index.md"
    page.write_text(f"{INDEX}\n[nowhere]({link})\n")
    done = make(checkout, "docs")
    assert done.returncode != 0
    assert message in done.stderr, done.stderr


def test_a_page_that_the_navigation_lacks_stops_the_build(checkout: Path) -> None:
    (checkout / "docs" / "other.md").write_text("# Other\n")
    done = make(checkout, "docs")
    assert done.returncode != 0
    assert "other.md" in done.stderr


def test_versions_stand_beside_each_other(checkout: Path) -> None:
    for version in ("0.1", "0.2"):
        done = make(checkout, "docs-version", f"VERSION={version}")
        assert done.returncode == 0, done.stderr
        page = checkout / "docs" / "index.md"
        page.write_text(f"{page.read_text()}\nSecond.\n")
    assert git(checkout, "branch", "--show-current").strip() == "main"
    versions = json.loads(git(checkout, "show", "gh-pages:versions.json"))
    assert [(each["version"], each["aliases"]) for each in versions] == [("0.2", ["latest"]), ("0.1", [])]
    files = git(checkout, "ls-tree", "-r", "--name-only", "gh-pages").split()
    assert {
        "index.html",
        "0.1/index.html",
        "0.2/llms.txt",
        "0.2/checkout/README.md",
        "latest/index.html",
    } <= set(files)
    assert "latest/" in git(checkout, "show", "gh-pages:index.html")
    assert "Second." in git(checkout, "show", "gh-pages:0.2/index.md")
    assert "Second." not in git(checkout, "show", "gh-pages:0.1/index.md")
    assert '"provider": "mike"' in git(checkout, "show", "gh-pages:0.2/index.html")  # asks for the others


def test_a_version_needs_its_name(checkout: Path) -> None:
    done = make(checkout, "docs-version")
    assert done.returncode != 0
    assert "name the version: make docs-version VERSION=0.2" in done.stderr
