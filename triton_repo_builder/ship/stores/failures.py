"""Errors for a store's failures: each library has its own exceptions for the same few causes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.files import is_full
from triton_repo_builder.base.text import shortened
from triton_repo_builder.ship.stores import retries
from triton_repo_builder.ship.stores.store import Hints

MISSING = "make it first: trb makes no bucket, as only you know its region and who may read it"
PROFILE = "name a profile of ~/.aws/config in AWS_PROFILE, or unset it"
AGAIN = "run the same command again: what has arrived is not sent twice; the server's log may say why"
DENIED = (
    *("NoCredential", "Credential", "Authentication", "Forbidden", "Unauthorized", "RefreshError"),
    *("ProfileNotFound", "SSOToken", "TokenRetrieval"),
)
BUSY = (
    *("Connection", "Connect", "Timeout", "ServiceRequest", "Transport", "HTTPClient", "DNS"),
    *("Chunked", "Payload"),
)
BUGS = (TypeError, AttributeError, KeyError, AssertionError, NameError)
"""Bugs of trb, which keep their traceback; all other exceptions are explained as failures of the store."""
_WHY = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_NO_BUNDLE = ("CA certificate bundle", "NO_CERTIFICATE_OR_CRL_FOUND", "PEM lib")
_POOL = re.compile(r"^HTTPS?Connection(?:Pool)?\(.*?\): ")


@contextmanager
def explained(hints: Hints, where: str) -> Iterator[None]:
    """Turn the libraries' exceptions into one ``TrbError`` with the code of its cause."""
    try:
        yield
    except TrbError:
        raise
    except Exception as error:
        # A full disk is one of this machine: whoever writes there knows which, and what to do.
        if isinstance(error, BUGS) or (isinstance(error, OSError) and is_full(error)):
            raise
        raise explain(error, hints, where) from error


def explain(error: Exception, hints: Hints, where: str) -> TrbError:
    """A library's exception as a ``TrbError`` with the code of its cause."""
    text = _reason(error)
    code = str(getattr(error, "code", "") or getattr(error, "status", ""))
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return TrbError(
            Code.DISK_FULL, "the disk is full", where=where, remedy="free some space, or name another disk"
        )
    if untrusted := _of_tls(text, hints, where):
        return untrusted
    if isinstance(error, FileNotFoundError) or code == "404":
        return TrbError(Code.STORAGE_MISSING, f"there is no such bucket: {text}", where=where, remedy=MISSING)
    denied = isinstance(error, PermissionError) or code in ("401", "403") or text.startswith("Forbidden: ")
    if denied or any(word in names for word in DENIED):
        remedy = PROFILE if "ProfileNotFound" in names else hints.credentials
        return TrbError(Code.ACCESS_DENIED, f"access denied: {text}", where=where, remedy=remedy)
    often = retries.tried(error, hints.tries)
    network = isinstance(error, ConnectionError | TimeoutError) or any(word in names for word in BUSY)
    if network or text.startswith("Invalid endpoint"):
        return TrbError(
            Code.STORAGE_UNREACHABLE,
            f"does not answer: {text}{often}",
            where=where,
            remedy=hints.unreachable,
        )
    return TrbError(
        Code.STORAGE_FAILED,
        f"failed: {type(error).__name__}: {text}{often}",
        where=where,
        remedy=AGAIN,
    )


def _reason(error: Exception) -> str:
    """The library's own message, without the layers around it."""
    text = str(error)
    about = getattr(error, "kwargs", {})  # botocore's: the message has the URL, this the reason
    if about.get("error"):
        text = str(about["error"])
        if "host" not in text and about.get("endpoint_url"):
            text = f"{about['endpoint_url']}: {text}"
    elif error.args and getattr(error.args[0], "reason", None):  # requests around urllib3
        text = str(error.args[0].reason)
    return shortened(_POOL.sub("", " ".join(text.split())), 300) or type(error).__name__


def _of_tls(text: str, hints: Hints, where: str) -> TrbError | None:
    """The error for a library's message about TLS, else None."""
    bundle = next((name for name in hints.ca_variables if os.environ.get(name)), "")
    value = os.environ.get(bundle, "")
    if any(word in text for word in _NO_BUNDLE) or ("[Errno 2]" in text and bundle and _gone(value)):
        problem = "names no file" if _gone(value) else "holds no certificate"
        message, remedy = f"{bundle} {problem}: {value}", f"name a PEM file of CA certificates in {bundle}"
    elif why := _WHY.search(text):
        message, remedy = f"its certificate is not trusted: {why[1]}", _trust_remedy(why[1], hints)
    elif any(word in text for word in _NO_TLS):
        message, remedy = "does not speak TLS, plain HTTP perhaps", hints.plain_http
    else:
        return None
    return TrbError(Code.STORAGE_UNREACHABLE, message, where=where, remedy=remedy)


def _gone(path: str) -> bool:
    return not Path(path).exists()


def _trust_remedy(why: str, hints: Hints) -> str:
    if "mismatch" in why:
        return "use a name or an address that the certificate is made for"
    if "expired" in why or "not yet valid" in why:
        return "renew the server's certificate, or set the clock of this machine"
    return f"if the server is yours, name its CA's certificate: {hints.ca_variables[0]}=FILE.pem"
