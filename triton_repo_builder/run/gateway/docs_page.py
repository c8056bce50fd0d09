"""The page at ``/docs``: each route with requests that work when they are pasted into a shell.

Without Jinja, which the image with the gateway lacks: every text goes through ``escape``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from triton_repo_builder.run.gateway import openapi
from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.catalogue import Catalogue
from triton_repo_builder.run.gateway.examples import Example, examples

FILE = Path(__file__).resolve().parent / "page" / "docs.html"
PLACE = "<!-- routes -->"
TRY = '<a href="./">Try an endpoint</a>'
KEYED = (
    "<p>Requests need an API key: <code>export API_KEY=…</code>. <code>GET /v1/models</code> lists the names "
    "that MODEL stands for.</p>"
)


@dataclass(frozen=True, kw_only=True)
class DocsPage:
    """Settings of the gateway that the page shows."""

    address: str
    """The gateway's URL."""
    keyed: bool
    """Requests need an API key; then no endpoint is named, since a browser sends no key for a page."""
    page: bool
    """Whether there is a page at ``/``."""

    def render(self, routes: Iterable[Route], catalogue: Catalogue) -> str:
        """The HTML."""
        return _frame().replace(PLACE, "\n".join(self._lines(list(routes), catalogue)))

    def _lines(self, routes: Sequence[Route], catalogue: Catalogue) -> Iterator[str]:
        links = ['<a href="openapi.json">openapi.json</a>', *([TRY] if self.page else [])]
        yield f"<p>{' · '.join(links)}</p>"
        if self.keyed:
            yield KEYED
        for api, title in openapi.APIS.items():
            owned = [route for route in routes if route.api == api]
            if owned:
                yield f"<h2>{escape(title)}</h2>"
            for route in owned:
                yield from self._route(route, examples(route, catalogue, named=not self.keyed))

    def _route(self, route: Route, shown: Sequence[Example]) -> Iterator[str]:
        yield f"<h3><code>{route.method} {escape(openapi.template(route))}</code></h3>"
        yield f"<p>{escape(route.summary)}{_names(shown[0]) if len(shown) == 1 else ''}</p>"
        for each in shown:
            if not each.possible:
                needed = each.sample.needs or " or ".join(each.sample.tasks)
                yield f"<p>No endpoint here can answer it; it needs {escape(needed)}.</p>"
                continue
            if len(shown) > 1:
                yield f"<p>{escape(each.task)}{_names(each)}</p>"
            yield f'<pre tabindex="0"><code>{escape(each.curl(self.address, keyed=self.keyed))}</code></pre>'


@cache
def _frame() -> str:
    return FILE.read_text(encoding="utf-8")


def _names(example: Example) -> str:
    return f": {escape(', '.join(example.models))}" if example.models else ""
