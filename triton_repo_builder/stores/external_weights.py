"""Files that lie outside git, by URL: ``file://``, ``https://``, and what fsspec knows (``s3://``, ``gs://``).

Each lies under its own sha256, so nothing is ever overwritten and two versions never meet.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from triton_repo_builder import files, repository
from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores import failures

WEB = ("http", "https")
PATIENCE = 60.0
"""Seconds without a byte."""
WRITE = "check that you may write there, then commit again"
READ = "check the address, the network and your credentials, then try again"
NETWORK = "check the address and the network, and AWS_ENDPOINT_URL for s3://"
_EXTRAS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_NAMES = {"gcs": "gs", "abfs": "az"}
"""Schemes that are others' second names."""


def check(url: str) -> None:
    """``TrbError`` USAGE where no file could lie below this URL."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _bad(url, f"is no URL: {error}", "correct it: SCHEME://HOST_OR_BUCKET/PATH") from None
    if not parts.scheme:
        raise _bad(url, "has no scheme", f"a folder is written as {Path(url).absolute().as_uri()}")
    if parts.scheme == "file":
        _local(url)
    elif not parts.netloc:
        raise _bad(url, "names no host or bucket", "correct it: SCHEME://HOST_OR_BUCKET/PATH")
    if parts.scheme in ("file", *WEB) and (parts.query or parts.fragment or url[-1:] in "?#"):
        raise _bad(url, "has a '?' or '#', behind which no path can be", "write them as %3F and %23")


def put(file: Path, url: str, sha256: str) -> bool:
    """Copy a file to ``url``; False where this very content lies there. Raises ``TrbError`` DOWNLOAD_FAILED.

    What lies there is read, before and after: neither its name nor its size proves anything.
    """
    with _explained(url, WRITE):
        if _scheme(url) in WEB:
            _on_the_web(file, url, sha256)
            return False
        if _sha256(url) == sha256:
            return False
        _write(file, url)
        arrived = _sha256(url)
        if arrived != sha256:
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"has sha256 {arrived} after trb wrote {sha256} there",
                where=url,
                remedy="see what else writes there, then commit again",
            )
    return True


def _write(file: Path, url: str) -> None:
    if _scheme(url) != "file":
        remote, path = _remote(url)
        remote.put_file(str(file), path)
        return
    target = _local(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
        fresh = Path(scratch) / "file"
        shutil.copyfile(file, fresh)
        fresh.replace(target)


def _on_the_web(file: Path, url: str, sha256: str) -> None:
    remedy = f"put {file} there under this name, then commit again"
    try:
        found = _sha256(url)
    except urllib.error.HTTPError as error:
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"is not there (HTTP {error.code}), and trb cannot upload to a web server",
            where=url,
            remedy=remedy,
        ) from None
    if found != sha256:
        raise TrbError(
            Code.DOWNLOAD_FAILED,
            f"is another file (its sha256 is {found}), and trb cannot upload to a web server",
            where=url,
            remedy=remedy,
        )


def _sha256(url: str) -> str:
    """Of what lies there; empty where a place that we can write to has nothing."""
    digest = hashlib.sha256()
    try:
        with _open(url) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def fetch(root: Path, manifest: Mapping[str, Any], tell: Callable[[str], None]) -> tuple[list[str], int]:
    """Get every file that has a URL and is not there as it should be: names fetched, number that were there.

    A file appears whole and verified, or not at all. Raises ``TrbError`` DOWNLOAD_FAILED.
    """
    fetched, present = [], 0
    wanted = {name: fact for name, fact in sorted(manifest["files"].items()) if "url" in fact}
    for name in wanted:
        _check_inside(root, name)
    for name, fact in wanted.items():
        target, url, sha256 = root / name, str(fact["url"]), str(fact["sha256"])
        with _explained(url, READ):
            if (
                target.is_file()
                and target.stat().st_size == fact["bytes"]
                and files.hash_file(target) == sha256
            ):
                present += 1
                continue
            tell(f"{name} from {url}")
            _get(url, target, sha256)
        fetched.append(name)
    return fetched, present


def _check_inside(root: Path, name: str) -> None:
    """Whoever wrote the manifest chose the name: nothing may be written outside of the repository."""
    parts = PurePosixPath(name).parts
    leads_out = not parts or name.startswith("/") or ".." in parts or "\\" in name
    if leads_out or not (root / name).parent.resolve().is_relative_to(root.resolve()):
        raise TrbError(
            Code.REPOSITORY_UNREADABLE,
            f"lists a file outside of the repository: {name!r}",
            where=str(root / repository.MANIFEST),
            remedy="do not use this repository: somebody tampered with it",
        )


def _get(url: str, target: Path, sha256: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
        fresh = Path(scratch) / "file"
        with _open(url) as source, fresh.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        found = files.hash_file(fresh)
        if found != sha256:
            raise TrbError(
                Code.DOWNLOAD_FAILED,
                f"has sha256 {found}, the manifest says {sha256}: the file here is as it was",
                where=url,
                remedy="put the right file there, or commit the repository again from where it was built",
            )
        fresh.replace(target)


@contextmanager
def _open(url: str) -> Iterator[IO[bytes]]:
    scheme = _scheme(url)
    if scheme == "file":
        with _local(url).open("rb") as stream:
            yield stream
    elif scheme in WEB:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            yield answer
    else:
        remote, path = _remote(url)
        with remote.open(path, "rb") as stream:
            yield stream


def _scheme(url: str) -> str:
    return urllib.parse.urlsplit(url).scheme


def _local(url: str) -> Path:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        remedy = f"a folder of this machine is written with three slashes: file:///{parts.netloc}{parts.path}"
        raise _bad(url, f"names a machine, '{parts.netloc}'", remedy)
    return Path(urllib.request.url2pathname(parts.path))


def _remote(url: str) -> tuple[Any, str]:
    scheme = _scheme(url)
    try:
        import fsspec

        failures.quiet()
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        known = scheme in _EXTRAS
        raise TrbError(
            Code.ENGINE_MISSING if known else Code.USAGE,
            f"cannot be reached: {error}",
            where=url,
            remedy=f"pip install {_EXTRAS[scheme]}"
            if known
            else "use file://, https://, s3://, gs:// or az://",
        ) from None
    remote, path = fsspec.core.url_to_fs(url)
    return remote, str(path)


@contextmanager
def _explained(url: str, remedy: str) -> Iterator[None]:
    """Turn what a place, or the library that talks to it, does to us into one ``TrbError``."""
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
    here = isinstance(error, OSError) and error.filename and not isinstance(error, urllib.error.HTTPError)
    if number in (errno.ENOSPC, errno.EDQUOT) or not (here or scheme in ("file", *WEB)):
        said = failures.explain(error, _NAMES.get(scheme, scheme), url)
        if said.code == Code.DISK_FULL:
            return said
        if isinstance(error, FileNotFoundError) and remedy == READ:
            return TrbError(Code.DOWNLOAD_FAILED, f"is not there: {error}", where=url, remedy=READ)
        whose = {Code.ACCESS_DENIED: said.remedy, Code.STORAGE_MISSING: said.remedy}
        general = failures.ENDPOINT.values()  # they tell how to write the address of a store to push to
        whose[Code.STORAGE_UNREACHABLE] = NETWORK if said.remedy in general else said.remedy
        return TrbError(Code.DOWNLOAD_FAILED, said.message, where=url, remedy=whose.get(said.code, remedy))
    if isinstance(error, http.client.InvalidURL | ValueError):
        reason = f"is no URL that can be asked for: {error}"
        remedy = "write it as a browser shows it: blanks and special letters as %20 and so on"
    elif isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        reason = f"is answered by something that speaks no HTTP: {type(error).__name__} {error}".rstrip()
    elif isinstance(error, urllib.error.HTTPError):
        reason = f"failed: HTTP {error.code} {error.reason}"
    else:
        reason = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
        reason = f"failed: {reason}" + (f": {getattr(error, 'filename', '')}" if here else "")
    return TrbError(Code.DOWNLOAD_FAILED, reason, where=url, remedy=remedy)


def _bad(url: str, what: str, remedy: str) -> TrbError:
    return TrbError(Code.USAGE, what, where=url, remedy=remedy)
