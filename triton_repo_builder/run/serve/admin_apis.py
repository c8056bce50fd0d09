"""Access to Triton's administrative APIs.

A client that reaches them can load any model of the repository or one of its own, read the shared memory of
other clients, and write files through the log and the trace. On loopback they are open as in tritonserver
itself; on every other address they need a key, unless the user opens them.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import replace

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client.admin_key import HEADER
from triton_repo_builder.run.client.values import LOOPBACK
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.engine import Progress

APIS = ("model-repository", "shared-memory", "trace", "logging")
"""API names of Triton's options. Health, metadata, inference, statistics and configurations stay open."""


def restricted(options: ServeOptions, tell: Progress) -> ServeOptions:
    """The options with a key, if these APIs need one; a random key is known to this process only.

    Raises ``TrbError`` USAGE.
    """
    if options.admin_key and options.open_apis:
        raise TrbError(
            Code.USAGE,
            "a key restricts the administrative APIs, and this opens them",
            where="--open-apis",
            remedy="leave out --admin-key (and its environment variable), or --open-apis",
        )
    if is_loopback(options.host):
        return options
    if options.open_apis:
        tell(
            f"warning: listens on {options.host}: whoever reaches it can load and unload models, and use "
            "shared memory, trace and logging"
        )
        return options
    how = "need the key" if options.admin_key else "are closed: --admin-key FILE gives them a key"
    tell(
        f"warning: listens on {options.host}: whoever reaches it can send requests and read metrics, without "
        f"a password or encryption; model control, shared memory, trace and logging {how}"
    )
    return replace(options, admin_key=options.admin_key or secrets.token_urlsafe(32))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def arguments(options: ServeOptions) -> list[str]:
    """The options of tritonserver."""
    if not options.admin_key:
        return []
    restriction = f"{','.join(APIS)}:{HEADER}={options.admin_key}"
    return [f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}"]
