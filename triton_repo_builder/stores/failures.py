"""What a store's refusal means for the user: every library has its own exceptions for the same few causes."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores import tls

CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and a key, or AZURE_STORAGE_CONNECTION_STRING",
    "oci": "log in with 'docker login REGISTRY' (or podman, oras): trb uses what that stores",
}
ENDPOINT = {
    "s3": "check the network and AWS_ENDPOINT_URL, or write s3://HOST:PORT/BUCKET/PREFIX; with TLS s3://https://HOST:PORT/…",
    "gs": "check the network, and STORAGE_EMULATOR_HOST if that is set",
    "az": "check the network and AZURE_STORAGE_ACCOUNT_NAME",
    "oci": "check the network and the registry's name and port",
}
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
"""Bugs of ours keep their traceback; everything else a store can do to us is a failure to explain."""
_TALKATIVE = ("s3fs", "gcsfs", "adlfs", "google.auth", "azure")
_POOL = re.compile(r"^HTTPS?Connection(?:Pool)?\(.*?\): ")


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
    text = _said(error)
    code = str(getattr(error, "code", "") or getattr(error, "status", ""))
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return TrbError(
            Code.DISK_FULL, "the disk is full", where=where, remedy="free some space, or name another disk"
        )
    if found := tls.explained(text, scheme, where):
        return found
    if isinstance(error, FileNotFoundError) or code == "404":
        return TrbError(Code.STORAGE_MISSING, f"there is no such bucket: {text}", where=where, remedy=MISSING)
    denied = isinstance(error, PermissionError) or code in ("401", "403") or text.startswith("Forbidden: ")
    if denied or any(word in names for word in DENIED):
        own = CREDENTIALS.get(scheme, "check your credentials")
        remedy = PROFILE if "ProfileNotFound" in names else own
        return TrbError(Code.ACCESS_DENIED, f"may not be used: {text}", where=where, remedy=remedy)
    network = isinstance(error, ConnectionError | TimeoutError) or any(word in names for word in BUSY)
    if network or text.startswith("Invalid endpoint"):
        return TrbError(
            Code.STORAGE_UNREACHABLE,
            f"does not answer: {text}",
            where=where,
            remedy=ENDPOINT.get(scheme, "check the network and the address"),
        )
    return TrbError(
        Code.STORAGE_FAILED,
        f"refuses: {type(error).__name__}: {text}",
        where=where,
        remedy=AGAIN,
    )


def _said(error: Exception) -> str:
    """What a library says, without the layers that it says it through."""
    text = str(error)
    about = getattr(error, "kwargs", {})  # botocore's: the message has the URL, this the reason
    if about.get("error"):
        text = str(about["error"])
        if "host" not in text and about.get("endpoint_url"):
            text = f"{about['endpoint_url']}: {text}"
    elif error.args and getattr(error.args[0], "reason", None):  # requests around urllib3
        text = str(error.args[0].reason)
    return _POOL.sub("", " ".join(text.split()))[:300] or type(error).__name__
