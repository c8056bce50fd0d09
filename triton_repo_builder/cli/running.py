"""Which running server a command means."""

from __future__ import annotations

DEFAULT = "http://127.0.0.1:8000"
HELP = "HTTP address of the server.  [default: the one in the background, else 127.0.0.1:8000]"


def url(given: str | None) -> str:
    """The URL given, else that of the only server in the background, else Triton's own port here."""
    from triton_repo_builder.errors import Code, TrbError
    from triton_repo_builder.serve.background import registry

    if given is not None:
        return given
    running, _ = registry.sweep()
    if len(running) > 1:
        listed = ", ".join(f"{server.urls['http']} ({server.name})" for server in running)
        raise TrbError(
            Code.USAGE,
            f"{len(running)} servers run in the background: {listed}",
            remedy="name one with --url",
        )
    return running[0].urls["http"] if running else DEFAULT
