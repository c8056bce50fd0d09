"""Errors of huggingface_hub as errors of a user. Its classes are compared by their names: which library it
speaks HTTP with, and what that raises, differs by its release."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import first_line
from triton_repo_builder.model.read.hub_name import HubName

CHECK = "check the name; for a private model log in (hf auth login) or set HF_TOKEN"
NETWORK = (
    "check the network and HF_ENDPOINT, then try again; what is in the cache is built with HF_HUB_OFFLINE=1"
)


@contextmanager
def explained(name: HubName, endpoint: str, cache: Path) -> Iterator[None]:
    """Raise the library's errors as ``TrbError``."""
    try:
        yield
    except TrbError:
        raise
    except Exception as error:
        raise refused(error, name, endpoint, cache) from None


def refused(error: Exception, name: HubName, endpoint: str, cache: Path) -> TrbError:
    """The error for one of the library."""
    host = urlsplit(endpoint).netloc or endpoint

    def told(code: Code, message: str, remedy: str, where: str = str(name)) -> TrbError:
        return TrbError(code, message, where=where, remedy=remedy)

    if (isinstance(error, OSError) and files.is_full(error)) or "os error 28" in str(error):
        return files.explain(
            OSError(errno.ENOSPC, ""), cache, how="with HF_HUB_CACHE", kept="nothing was built"
        )
    if isinstance(error, OSError) and (error.filename or error.errno in (errno.EACCES, errno.EROFS)):
        return files.explain(error, cache, how="with HF_HUB_CACHE")
    kinds = {each.__name__ for each in type(error).__mro__}
    cause = error.__cause__
    if "LocalEntryNotFoundError" in kinds and isinstance(cause, Exception):
        return refused(cause, name, endpoint, cache)
    if "GatedRepoError" in kinds:
        page = f"{endpoint}/{name.model}"
        accept = f"accept its conditions at {page}, then log in (hf auth login) or set HF_TOKEN"
        return told(
            Code.ACCESS_DENIED, f"{host} gives this model only to users who accepted its conditions", accept
        )
    if "RevisionNotFoundError" in kinds:
        return told(Code.NOT_FOUND, f"{host} has no such revision of it", "check what follows the @")
    if "RepositoryNotFoundError" in kinds:
        message = f"no such folder here, and {host} has no such model, or none that you may see"
        return told(Code.NOT_FOUND, message, CHECK)
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status in (401, 403):
        return told(
            Code.ACCESS_DENIED, f"{host} refuses the token ({status})", "set another HF_TOKEN, or log in anew"
        )
    if status is not None:
        said = first_line(getattr(error, "server_message", None) or "")
        return told(
            Code.STORAGE_FAILED, f"{host} answers {status}{f': {said}' if said else ''}", "try again later"
        )
    reason = first_line(error) or type(error).__name__
    if "Consistency check" in reason:
        return told(Code.DOWNLOAD_FAILED, f"a file arrived cut off: {reason}", "try again")
    if kinds & {"HTTPError", "OSError", "LocalEntryNotFoundError"}:
        return told(Code.STORAGE_UNREACHABLE, f"{host} cannot be reached: {reason}", NETWORK)
    return told(Code.DOWNLOAD_FAILED, f"cannot be fetched: {type(error).__name__}: {reason}", "try again")
