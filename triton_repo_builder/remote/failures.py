"""What a store's refusal means for the user: every library has its own exceptions for the same few causes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from triton_repo_builder.errors import Exit, TrbError

CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and a key, or AZURE_STORAGE_CONNECTION_STRING",
    "oci": "log in with 'docker login REGISTRY' (or podman, oras): trb uses what that stores",
}
ENDPOINT = {
    "s3": "check the network and AWS_ENDPOINT_URL, or write s3://HOST:PORT/BUCKET/PREFIX",
    "gs": "check the network and STORAGE_EMULATOR_HOST",
    "az": "check the network and AZURE_STORAGE_ACCOUNT_NAME",
    "oci": "check the network and the registry's name and port",
}
MISSING = "make it first: trb makes no bucket, as only you know its region and who may read it"
DENIED = (
    *("NoCredential", "Credential", "Authentication", "Forbidden", "Unauthorized", "RefreshError"),
    "ProfileNotFound",
)
BUSY = ("Connection", "Connect", "Timeout", "ServiceRequest", "Transport", "HTTPClient", "DNS")
BUGS = (TypeError, AttributeError, KeyError, AssertionError, NameError)
"""Bugs of ours keep their traceback; everything else a store can do to us is a failure to explain."""
_TALKATIVE = ("s3fs", "gcsfs", "adlfs", "google.auth", "azure")


def quiet() -> None:
    """What stops us comes back as an error: no library logs its retries, with tracebacks, besides."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def explained(scheme: str, where: str) -> Iterator[None]:
    """Turn what the libraries raise into one ``TrbError`` with the cause's own exit code."""
    try:
        yield
    except TrbError:
        raise
    except Exception as error:
        if isinstance(error, BUGS):
            raise
        raise explain(error, scheme, where) from error


def explain(error: Exception, scheme: str, where: str) -> TrbError:
    """What a library raised, as an error with the cause's own exit code."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    code = str(getattr(error, "code", "") or getattr(error, "status", ""))
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return TrbError(
            Exit.DISK_FULL, "the disk is full", where=where, remedy="free some space, or name another disk"
        )
    if isinstance(error, FileNotFoundError) or code == "404":
        return TrbError(Exit.STORAGE_MISSING, f"there is no such bucket: {text}", where=where, remedy=MISSING)
    denied = isinstance(error, PermissionError) or code in ("401", "403")
    if denied or any(word in names for word in DENIED):
        remedy = CREDENTIALS.get(scheme, "check your credentials")
        return TrbError(Exit.ACCESS_DENIED, f"may not be used: {text}", where=where, remedy=remedy)
    network = isinstance(error, ConnectionError | TimeoutError) or any(word in names for word in BUSY)
    if network:
        return TrbError(
            Exit.STORAGE_UNREACHABLE,
            f"does not answer: {text}",
            where=where,
            remedy=ENDPOINT.get(scheme, "check the network and the address"),
        )
    return TrbError(
        Exit.STORAGE_FAILED,
        f"refuses: {type(error).__name__}: {text}",
        where=where,
        remedy="run the same command again: what has arrived is not sent twice",
    )
