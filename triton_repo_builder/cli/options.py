"""Options of several commands: kinds of values, defaults, and the server to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base import option_values as values
from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.cli.usage_errors import Misuse

if TYPE_CHECKING:
    from triton_repo_builder.run.client import Urls

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

DEFAULT_REPOSITORY = Path("model_repository")
DEFAULT_URL = "http://127.0.0.1:8000"
HTTP_PORT = 8000
LAST_HTTP_PORT = 65533
"""The highest port that has two ports above it."""
VARIABLE = "TRB_ADMIN_KEY_FILE"
"""Environment variable for --admin-key."""


class Place(click.Path):
    """A path. An empty one (an unset shell variable) is refused: to click it is the current folder."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A ``Path``."""
        if not str(value):
            self.fail("the path is empty (a shell variable that is not set?)", param, ctx)
        return super().convert(value, param, ctx)


class Real(click.FloatRange):
    """A finite number in a range. click's comparisons would accept NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A ``float``."""
        number = super().convert(value, param, ctx)
        if not -values.LIMIT <= number <= values.LIMIT:
            self.fail(f"'{value}' is not a number below {values.LIMIT:,}", param, ctx)
        return number


class Parsed(ParamType):
    """A click type that reads a text as the declared value."""

    def __init__(self, value: values.Value) -> None:
        self._value, self.name = value, value.expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, of a text."""
        try:
            return self._value.parse(value) if isinstance(value, str) else value
        except values.InvalidValue as error:
            raise Misuse(error.message, remedy=error.remedy, ctx=ctx, param=param) from None


FILLED = Parsed(values.Filled())
SIGNATURE_HELP = "Refuse what no key of this file signed: public keys in PEM."


class Repo(Place):
    """A folder, or the URL of a pushed repository."""

    name = "repo"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A ``Path`` or a ``Location``."""
        if not isinstance(value, str) or "://" not in value:
            return super().convert(value, param, ctx) if isinstance(value, (str, Path)) else value
        from triton_repo_builder.ship import stores

        return stores.parse(value)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server, and the key of its administrative APIs."""

    url: str | None = option(
        None,
        values.Filled(),
        Topic.RUNNING,
        "HTTP address of the server.",
        default="the one in the background, else 127.0.0.1:8000",
    )
    admin_key: Path | None = option(
        None,
        values.FilePath(),
        Topic.RUNNING,
        "File with the server's admin key, if it wants one.",
        metavar="FILE",
        envvar=VARIABLE,
    )

    def send_key(self, url: str | None = None) -> None:
        """Send the admin key, if there is one, to the server until the command ends."""
        url = url or self.url
        if self.admin_key is None or url is None:
            return
        from triton_repo_builder.run.client import admin_key

        admin_key.remember(url, admin_key.read(self.admin_key))
        click.get_current_context().call_on_close(lambda: admin_key.forget(url))

    def reached(self) -> str:
        """The address; the key is sent with its requests."""
        url = server_url(self.url)
        self.send_key(url)
        return url


@dataclass(frozen=True, kw_only=True)
class Address(Server):
    """A running server, instead of one that the command starts."""

    url: str | None = option(
        None,
        values.Text(),
        Topic.RUNNING,
        "HTTP url of a running server; without it, one is started and stopped again.",
    )
    grpc_url: str | None = option(
        None,
        values.Text(),
        Topic.RUNNING,
        "Its gRPC address.",
        default="of what 'trb serve --detach' started there, else the url's port + 1; 8001 for a url "
        "without a port",
    )

    def checked(self) -> Address:
        """The address. Raises ``UsageError``."""
        if self.grpc_url and not self.url:
            raise click.UsageError("--grpc-url goes with --url.")
        return self

    def urls(self) -> Urls:
        """All addresses. Raises ``BadParameter``."""
        return addresses(self.url or "", self.grpc_url)


def server_url(url: str | None) -> str:
    """``url`` if set, else the URL of the only server in the background, else Triton's default."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.run.serve.background import registry

    if url is not None:
        return url
    running, _ = registry.sweep()
    if len(running) > 1:
        listed = ", ".join(f"{server.urls['http']} ({server.name})" for server in running)
        raise TrbError(
            Code.USAGE,
            f"{len(running)} servers run in the background: {listed}",
            remedy="name one with --url",
        )
    return running[0].urls["http"] if running else DEFAULT_URL


METRICS_PAGE = "of what 'trb serve' started there, else the URL's port + 2"
"""Default of ``--metrics-url`` in the help."""


def addresses(
    url: str, grpc_url: str | None = None, metrics_url: str | None = None, *, option: str = "--url"
) -> Urls:
    """All addresses of the server at an HTTP URL. Raises ``BadParameter`` of that option for an invalid one.

    Triton's own ports are 8000, 8001, 8002: servers at other ports mostly keep that distance. A guess, which
    bench and smoke check before they rely on it.
    """
    from urllib.parse import urlsplit

    from triton_repo_builder.run.client.values import LOOPBACK, Urls

    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        host, port, valid = parts.hostname, parts.port, parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        host, port, valid = None, None, False
    if not host or not valid:
        raise click.BadParameter(f"'{url}' is not a URL like http://localhost:8000", param_hint=option)
    urls = _background(port or 80) if host in LOOPBACK and not (grpc_url and metrics_url) else {}
    secure = "grpcs://" if parts.scheme == "https" else ""
    name = f"[{host}]" if ":" in host else host
    first = port if port and port <= LAST_HTTP_PORT else HTTP_PORT
    return Urls(
        http=full,
        grpc=grpc_url or urls.get("grpc") or f"{secure}{name}:{first + 1}",
        metrics=metrics_url or urls.get("metrics") or f"http://{name}:{first + 2}/metrics",
    )


def _background(port: int) -> dict[str, str]:
    """Addresses of the server in the background with this HTTP port; empty if there is none."""
    from urllib.parse import urlsplit

    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.run.serve.background import registry

    try:
        entries = registry.unswept()
    except TrbError:  # without a folder for state files no server can be known
        return {}
    return next((entry.urls for entry in entries if urlsplit(entry.urls["http"]).port == port), {})
