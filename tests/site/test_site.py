"""The site that ``make docs`` built, as files and in a browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browser import Browser, chromium

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """What a page loads and links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


def pages() -> list[Path]:
    """Every page; 404.html is served at any address, so its links begin with the site's root."""
    return [path for path in sorted(SITE.rglob("*.html")) if path.name != "404.html"]


def without_targets(page: Path) -> str:
    """A page whose links are masked: some lead to copies in the site."""
    return re.sub(r"\]\([^)\s]+\)", "]()", page.read_text()).strip()


def test_every_page_of_the_docs_is_there_with_its_markdown() -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        twin = SITE / source.relative_to(ROOT / "docs")
        page = twin.with_name("index.html" if twin.name == "README.md" else f"{twin.stem}.html")
        assert f'<link rel="alternate" type="text/markdown" href="{twin.name}">' in page.read_text()
        assert without_targets(twin) == without_targets(source)


def test_links_of_the_markdown_lead_to_files_of_the_site() -> None:
    texts = [SITE / "llms.txt", *SITE.rglob("*.md")]
    assert len(texts) > 100
    broken = [
        f"{path.relative_to(SITE)}: {link}"
        for path in texts
        for link in LINK.findall(CODE.sub("", path.read_text()))
        if not (path.parent / link).is_file()
    ]
    assert broken == []


def test_llms_full_has_every_page_that_llms_txt_names() -> None:
    full, llms = (SITE / "llms-full.txt").read_text(), (SITE / "llms.txt").read_text()
    named = LINK.findall(llms)
    assert len(named) > 50
    for uri in named:
        assert (SITE / uri).read_text().strip() in full, uri


def test_links_and_anchors_of_the_pages_lead_somewhere() -> None:
    parsed = {path: Page(path) for path in pages()}
    broken = []
    for path, page in parsed.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address)).resolve() if address else path
            anchors = parsed[target].anchors if target in parsed else {anchor}
            if not target.is_file() or (anchor and unquote(anchor) not in anchors):
                broken.append(f"{path.relative_to(SITE)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in pages():
        for address in Page(path).loads:
            target = (path.parent / unquote(address)).resolve()
            assert target.is_relative_to(SITE) and target.is_file(), f"{path}: {address}"
    for style in SITE.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", style.read_text()), style


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The site's address on a server of its own."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as running:
        running.size(1280, 900)
        yield running


def complaints(browser: Browser) -> list[str]:
    """Errors of a page. The theme looks for a sitemap beside each page, which is only at the root."""
    sitemap = any(each.endswith("sitemap.xml") for each in browser.requests)
    failed = "Failed to load resource" if sitemap else "-"
    return [each for each in browser.complaints if "sitemap.xml" not in each and not each.startswith(failed)]


def visit(browser: Browser, address: str) -> None:
    browser.do("Page.navigate", url="about:blank")
    browser.requests.clear()
    browser.complaints.clear()
    browser.do("Page.navigate", url=address)
    browser.until(f"location.href === {address!r} && document.readyState === 'complete'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "cookbook/mixed-lengths.html", "checkout/index.html"])
def test_pages_load_in_a_browser(browser: Browser, url: str, name: str, scheme: str) -> None:
    browser.scheme(scheme)
    visit(browser, url + name)
    palette = {"light": "default", "dark": "slate"}[scheme]
    browser.until(f"document.body.getAttribute('data-md-color-scheme') === {palette!r}")
    assert complaints(browser) == []
    assert [each for each in browser.requests if not each.startswith((url, "data:"))] == []


@pytest.mark.parametrize("served", [True, False], ids=["served", "from a folder"])
def test_the_search_finds_a_page_without_a_network(browser: Browser, url: str, served: bool) -> None:
    base = url if served else SITE.as_uri() + "/"
    visit(browser, urljoin(base, "index.html"))
    browser.js("document.querySelector('.md-search__input').focus()")
    browser.until("document.activeElement.matches('.md-search__input')")
    browser.do("Input.insertText", text="unable to create shared memory")
    browser.do("Input.dispatchKeyEvent", type="keyUp", key="y")  # the search begins as a key is released
    browser.until("document.querySelector('.md-search-result__item a')")
    found = browser.js("[...document.querySelectorAll('.md-search-result__item a')].map((each) => each.href)")
    assert any("cookbook/shared-memory.html" in each for each in found), found
    assert complaints(browser) == []
    assert [each for each in browser.requests if not each.startswith((base, "data:"))] == []
