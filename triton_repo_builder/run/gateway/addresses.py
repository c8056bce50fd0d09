"""Checks of the addresses that a gateway is started with. All raise ``TrbError`` USAGE."""

from __future__ import annotations

import ipaddress
import re

from triton_repo_builder.base.errors import Code, TrbError

TLS = "grpcs://"
DNS = "dns:///"
"""Start of the address of all servers behind a name."""
ADDRESS = re.compile(r"(?:[^\s:/@\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
HTTP = ("http://", "https://")
LAST_PORT = 65_535
LAST_VERSION = 2**63 - 1


def check_grpc(flag: str, text: str, forms: str = "HOST:PORT") -> None:
    """Refuse anything but a gRPC address; ``forms``: what the option takes, in words."""
    if text.startswith(HTTP):
        raise _wrong(
            flag,
            f"'{text:.80}' is an HTTP URL, and the gateway speaks gRPC",
            f"write {forms}; Triton's gRPC port is 8001 by default",
        )
    match = ADDRESS.fullmatch(text.removeprefix(DNS if text.startswith(DNS) else TLS))
    if match is None or not 0 < int(match[1]) <= LAST_PORT:
        raise _wrong(flag, f"'{text:.80}' is not {forms}", "write for example 127.0.0.1:8001")


def check_shadow(target: str, share: float | None) -> None:
    """Refuse a target other than a server or a version, and a share that is none or without a target."""
    if share is not None and not 0 <= share <= 1:
        raise _wrong(
            "--share", f"{100 * share:g} % of the requests is not from 0 to 100 %", "write 5% or 0.05"
        )
    if not target:
        if share is not None:
            raise _wrong("--share", "there is no shadow", "add --shadow HOST:PORT")
    elif not (target.isascii() and target.isdecimal()):
        check_grpc("--shadow", target, "HOST:PORT or the number of a version")
    elif not 0 < int(target) <= LAST_VERSION:
        raise _wrong("--shadow", f"{target:.80} is not a version", "versions are numbers from 1")


def check_apart(target: str, triton: str) -> None:
    """Refuse a shadow at the gateway's own Triton."""
    if ":" in target and _place(target) == _place(triton):
        raise _wrong(
            "--shadow",
            f"{target:.80} is the server that the gateway itself asks",
            "name a second server, or a version",
        )


def _place(address: str) -> tuple[str, str]:
    """Host and port; all names of this machine are one."""
    host, _, port = address.removeprefix(TLS).removeprefix(DNS).rpartition(":")
    host = host.strip("[]").lower()
    try:
        number = ipaddress.ip_address(host)
        local = number.is_loopback or number.is_unspecified
    except ValueError:
        local = host == "localhost"
    return "localhost" if local else host, port


def _wrong(flag: str, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=flag, remedy=remedy)
