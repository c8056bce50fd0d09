"""The hooks of mkdocs.yml, with which MkDocs builds the site of docs/.

- A link from docs/ to another file of the checkout (README.md, examples/) leads to a copy of it in the site.
- Each page has its Markdown beside it, and llms.txt and llms-full.txt at the root of the site list these.
- The rules of ``trb check`` and the benchmarks are taken into the navigation by folder.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

CHECKOUT = "checkout"
"""The folder of the site that has copies of files outside docs/."""
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)((?:#[^)\s]*)?)(?=\))")
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HERE = Path(__file__).parent


def on_config(config: MkDocsConfig) -> None:
    """Give headings the anchors that GitHub gives them, and fill in the navigation."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    config.extra["polyfills"] = ["assets/iframe-worker.js"]
    if "MIKE_DOCS_VERSION" in os.environ:  # mike, of make docs-version
        config.extra["version"] = {"provider": "mike"}
    config.nav = _filled(config.nav, Path(config.docs_dir))


def _filled(entry: Any, docs: Path) -> Any:
    """The navigation with the pages of a folder in place of ``FOLDER/*.md``, if nothing else names them."""
    if isinstance(entry, dict):
        return {title: _filled(each, docs) for title, each in entry.items()}
    if not isinstance(entry, list):
        return entry
    filled: list[Any] = []
    for each in entry:
        if isinstance(each, str) and each.endswith("/*.md"):
            pages = sorted(path.relative_to(docs).as_posix() for path in docs.glob(each))
            filled += [page for page in pages if page not in entry]
        else:
            filled.append(_filled(each, docs))
    return filled


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what pages link to outside docs/, and a page for each folder that a link leads to."""
    root, docs = _folders(config)
    files.append(_file(config, "assets/iframe-worker.js", (HERE / "iframe-worker.js").read_text()))
    pages = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    waiting = [target for page in (*pages, root / "llms.txt") for target in _targets(page, root)]
    done: set[Path] = set()
    while waiting:
        target = waiting.pop()
        if target in done or (docs in target.parents and not target.is_dir()):
            continue
        done.add(target)
        uri = _uri(target, root, docs)
        if target.is_dir() and (target / "README.md").exists():
            waiting.append(target / "README.md")
        elif target.is_dir():
            files.append(_file(config, uri, _list_of(target, root)))
            if docs not in target.parents:
                waiting += sorted(path for path in target.rglob("*") if path.is_file())
            continue
        files.append(_file(config, uri, target.read_bytes()))
        if target.suffix == ".md":
            waiting += _targets(target, root)


def _file(config: MkDocsConfig, uri: str, content: str | bytes) -> File:
    return File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def _folders(config: MkDocsConfig) -> tuple[Path, Path]:
    docs = Path(config.docs_dir)
    return docs.parent, docs


def _targets(page: Path, root: Path) -> list[Path]:
    """Files and folders of the checkout that a page links to."""
    targets = []
    for link, _ in LINK.findall(_prose(page.read_text())):
        target = Path(os.path.normpath(page.parent / link))
        if root not in target.parents or not target.exists():
            raise PluginError(f"{page.relative_to(root)} links to {link}, which is not in the checkout")
        targets.append(target)
    return targets


def _prose(markdown: str) -> str:
    """A page without its code."""
    return CODE.sub("", markdown)


def _uri(target: Path, root: Path, docs: Path) -> str:
    """The place of a file or a folder's list in the site."""
    inside = target == docs or docs in target.parents
    uri = (target.relative_to(docs) if inside else CHECKOUT / target.relative_to(root)).as_posix()
    if not target.is_dir():
        return uri
    return f"{uri}/README.md" if (target / "README.md").exists() else f"{uri}/index.md"


def _list_of(folder: Path, root: Path) -> str:
    """A page that lists a folder's files: pages by their titles, others by their paths."""
    lines = [f"# {folder.relative_to(root).as_posix().removeprefix('docs/')}", ""]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        lines.append(f"- [{_title(path) if path.suffix == '.md' else name}]({name})")
    return "\n".join(lines) + "\n"


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside docs/ to their copies in the site."""
    root, docs = _folders(config)
    uri = page.file.src_uri
    source = root / uri.removeprefix(f"{CHECKOUT}/") if uri.startswith(f"{CHECKOUT}/") else docs / uri
    return _turned(markdown, source, uri, config)


def _turned(markdown: str, source: Path, uri: str, config: MkDocsConfig) -> str:
    """Markdown of a file, with links as they are from a place in the site."""
    root, docs = _folders(config)

    def turned(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match[1]))
        return posixpath.relpath(_uri(target, root, docs), posixpath.dirname(uri) or ".") + match[2]

    parts, code = CODE.split(markdown), CODE.findall(markdown)
    turned_parts = [LINK.sub(turned, part) for part in parts]
    return "".join(part + block for part, block in zip(turned_parts, [*code, ""], strict=True))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    r"""Name the page's Markdown at its end. In code of a table ``\|`` is a bar, as on GitHub."""
    html = re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)
    name = posixpath.basename(page.file.src_uri)
    return f'{html}<p class="twin"><a href="{name}">This page as Markdown</a></p>'


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Write the page's Markdown beside it, and name it in the page's head."""
    twin = Path(config.site_dir, page.file.src_uri)
    twin.parent.mkdir(parents=True, exist_ok=True)
    twin.write_text(page.markdown or "")
    link = f'<link rel="alternate" type="text/markdown" href="{twin.name}">'
    return output.replace("</head>", f"{link}</head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and llms-full.txt with all pages that it names."""
    root, _ = _folders(config)
    site = Path(config.site_dir)
    llms = _turned((root / "llms.txt").read_text(), root / "llms.txt", "llms.txt", config)
    (site / "llms.txt").write_text(llms)
    full = [llms.partition("\n## ")[0]]
    full += [f"<!-- {uri} -->\n\n{(site / uri).read_text()}" for uri, _ in LINK.findall(llms)]
    (site / "llms-full.txt").write_text("\n\n".join(part.strip() for part in full) + "\n")
