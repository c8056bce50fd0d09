"""Files outside git, by URL: ``file://``, ``https://``, and the stores' schemes (``s3://``, ``gs://``, ``az://``).

Each is stored under its own sha256, so nothing is ever overwritten and two versions never meet.
"""

from __future__ import annotations

import errno
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.base import files, transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.repository.manifest import FileRecord
from triton_repo_builder.ship.stores import STORES, failures, filesystem, retries
from triton_repo_builder.ship.stores.store import Hints

WEB = ("http", "https")
PATIENCE = 60.0
"""Seconds without a byte."""
WRITE = "check that you may write there, then commit again"
READ = "check the address, the network and your credentials, then try again"
NETWORK = "check the address and the network, and AWS_ENDPOINT_URL for s3://"
ALIASES = {"gcs": "gs", "abfs": "az"}
"""Aliases in fsspec for a scheme of STORES."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects only to web servers, and never from TLS to plain HTTP."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        fp.close()  # its body, which urllib reads whole, may have no end
        if _scheme(newurl) not in WEB or (_scheme(newurl) == "http" and req.type == "https"):
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"redirects to {newurl[:200]!r}",
                where=req.full_url,
                remedy="name the address where the file really is",
            )
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and urllib.parse.urlsplit(newurl).netloc != req.host:
            followed.remove_header("Authorization")  # it is for the server that was asked
        return followed


_WEB = urllib.request.OpenerDirector()
for _handler in (
    *(urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler),
    *(_Redirects, urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPErrorProcessor),
):
    _WEB.add_handler(_handler())


def check(url: str) -> None:
    """Raise USAGE if no file can have an address below this URL."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _bad(url, f"not a URL: {error}", "correct it: SCHEME://HOST_OR_BUCKET/PATH") from None
    if not parts.scheme:
        raise _bad(url, "has no scheme", f"write a folder as {Path(url).absolute().as_uri()}")
    if parts.scheme == "file":
        _local(url)
    elif not parts.netloc:
        raise _bad(url, "has no host or bucket", "correct it: SCHEME://HOST_OR_BUCKET/PATH")
    if parts.scheme in ("file", *WEB) and (parts.query or parts.fragment or url[-1:] in "?#"):
        raise _bad(url, "contains '?' or '#'", "percent-encode them as %3F and %23")


def put(file: Path, url: str, sha256: str) -> bool:
    """Copy a file to ``url``; False if it is there already. Raises ``TrbError`` DOWNLOAD_FAILED.

    The stored file is read, before and after: neither its name nor its size proves anything.
    """
    with _explained(url, WRITE):
        if _scheme(url) in WEB:
            _check_on_the_web(file, url, sha256)
            return False
        if _sha256(url) == sha256:
            return False
        _write(file, url, sha256)
        arrived = _sha256(url)
        if arrived != sha256:
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"has sha256 {arrived} after trb wrote {sha256} there",
                where=url,
                remedy="see what else writes there, then commit again",
            )
    return True


def _write(file: Path, url: str, sha256: str) -> None:
    if _scheme(url) == "file":
        with files.opened(file) as stream:
            transfer.receive(transfer.blocks(stream), _local(url), sha256, file.stat().st_size, url)
    else:
        system, path = filesystem.connect(url)
        system.put_file(str(file), path)


def _check_on_the_web(file: Path, url: str, sha256: str) -> None:
    remedy = f"put {file} there under this name, then commit again"
    try:
        actual = _sha256(url)
    except urllib.error.HTTPError as error:
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"is not there (HTTP {error.code}), and trb cannot upload to a web server",
            where=url,
            remedy=remedy,
        ) from None
    if actual != sha256:
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"is another file (its sha256 is {actual}), and trb cannot upload to a web server",
            where=url,
            remedy=remedy,
        )


def _sha256(url: str) -> str:
    """Digest of the stored file; empty if a writable place does not have it."""
    try:
        return transfer.digest(_blocks(url))
    except FileNotFoundError:
        return ""


def fetch(root: Path, manifest: Manifest, tell: Callable[[str], None]) -> tuple[list[str], int]:
    """Get every file that has a URL and is missing or damaged: names fetched, number that were there.

    A file appears whole and verified, or not at all. Raises ``TrbError`` DOWNLOAD_FAILED.
    """
    fetched, present = [], 0
    external = {name: record for name, record in sorted(manifest.files.items()) if record.url}
    for name in external:
        transfer.check_inside(name, str(root / repository.MANIFEST), root)
    for name, record in external.items():
        target, url, sha256 = root / name, record.url, record.sha256
        with _explained(url, READ):
            if (
                target.is_file()
                and target.stat().st_size == record.bytes
                and files.hash_file(target) == sha256
            ):
                present += 1
                continue
            tell(f"{name} from {url}")
            actual = _receive(url, target, record)
        if actual != sha256:
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"has sha256 {actual}, the manifest says {sha256}: the local file is unchanged",
                where=url,
                remedy="put the right file there, or commit the repository again from where it was built",
            )
        fetched.append(name)
    return fetched, present


def download(
    url: str,
    target: Path,
    tell: Callable[[int, int], None] = lambda done, total: None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write a file whose digest nobody states to a new path. Raises ``TrbError`` DOWNLOAD_FAILED.

    ``tell`` receives the bytes that have arrived, and all of them, 0 if unknown. ``headers``: for the web.
    """
    with _explained(url, READ), target.open("xb") as sink:
        done = 0
        for block in _blocks(url, headers):
            sink.write(block)
            done += len(block)
            tell(done, 0)


def document(url: str, headers: Mapping[str, str]) -> bytes:
    """A small answer of a web server. Raises ``urllib.error.HTTPError``, ``OSError``."""
    return transfer.document(_blocks(url, headers), url)


def pointers(root: Path, manifest: Manifest) -> list[str]:
    """Files that are pointers of git LFS, not what was built."""
    return [name for name, record in sorted(manifest.files.items()) if _is_pointer(root / name, record)]


def _is_pointer(file: Path, record: FileRecord) -> bool:
    if not file.is_file() or file.stat().st_size > min(files.LFS_POINTER_SIZE, record.bytes - 1):
        return False
    return bool(files.lfs_sha256(files.read(file)))


def _receive(url: str, target: Path, record: FileRecord) -> str:
    """Digest of what arrived; a web server is asked again, the libraries of buckets do that themselves."""

    def once() -> str:
        return transfer.receive(_blocks(url), target, record.sha256, record.bytes, url)

    return retries.patiently(once) if _scheme(url) in WEB else once()


def _blocks(url: str, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
    # Not all by fsspec: it comes with trb's [push], and files and web servers need nothing more.
    scheme = _scheme(url)
    if scheme == "file":
        with files.opened(_local(url)) as stream:
            yield from transfer.blocks(stream)
    elif scheme in WEB:
        with _WEB.open(urllib.request.Request(url, headers=dict(headers or {})), timeout=PATIENCE) as answer:
            left = int(answer.headers.get("Content-Length") or 0)
            for block in transfer.blocks(answer):
                left -= len(block)
                yield block
            if left > 0:  # urllib itself takes a connection that breaks off for the end
                raise http.client.IncompleteRead(b"", left)
    else:
        yield from filesystem.blocks(*filesystem.connect(url), url)


def _scheme(url: str) -> str:
    return urllib.parse.urlsplit(url).scheme


def _local(url: str) -> Path:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        remedy = f"a folder of this machine is written with three slashes: file:///{parts.netloc}{parts.path}"
        raise _bad(url, f"names a machine, '{parts.netloc}'", remedy)
    return Path(urllib.request.url2pathname(parts.path))


@contextmanager
def _explained(url: str, remedy: str) -> Iterator[None]:
    """Turn exceptions of a place, or of its library, into one ``TrbError``."""
    try:
        yield
    except TrbError:
        raise
    except Exception as error:
        if isinstance(error, failures.BUGS):
            raise
        raise _failed(url, error, remedy) from None


def _failed(url: str, error: Exception, remedy: str) -> TrbError:
    scheme = url.partition(":")[0].lower()
    number = error.errno if isinstance(error, OSError) else None
    local = isinstance(error, OSError) and error.filename and not isinstance(error, urllib.error.HTTPError)
    if number in (errno.ENOSPC, errno.EDQUOT) or not (local or scheme in ("file", *WEB)):
        return _of_store(url, error, _hints(scheme), remedy)
    if isinstance(error, http.client.InvalidURL | ValueError):
        reason = f"cannot be requested: {error}"
        remedy = "write it as a browser shows it: blanks and special letters as %20 and so on"
    elif isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        reason = f"the server there does not speak HTTP: {type(error).__name__} {error}".rstrip()
    elif isinstance(error, urllib.error.HTTPError):
        reason = f"failed: HTTP {error.code} {error.reason}"
    else:
        reason = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
        reason = f"failed: {reason}" + (f": {getattr(error, 'filename', '')}" if local else "")
    if scheme in WEB:
        reason += retries.tried(error)
    return TrbError(Code.DOWNLOAD_FAILED, reason, where=url, remedy=remedy)


def _hints(scheme: str) -> Hints:
    """The store's, but for how to write an address to push to."""
    store = STORES.get(ALIASES.get(scheme, scheme))
    return replace(
        store.HINTS if store else Hints(credentials=READ, unreachable=NETWORK), unreachable=NETWORK
    )


def _of_store(url: str, error: Exception, hints: Hints, remedy: str) -> TrbError:
    explained = failures.explain(error, hints, url)
    if explained.code == Code.DISK_FULL:
        return explained
    if isinstance(error, FileNotFoundError) and remedy == READ:
        return TrbError(Code.DOWNLOAD_FAILED, f"is not there: {error}", where=url, remedy=READ)
    if explained.code in (Code.ACCESS_DENIED, Code.STORAGE_MISSING, Code.STORAGE_UNREACHABLE):
        remedy = explained.remedy
    return TrbError(Code.DOWNLOAD_FAILED, explained.message, where=url, remedy=remedy)


def _bad(url: str, message: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, message, where=url, remedy=remedy)
