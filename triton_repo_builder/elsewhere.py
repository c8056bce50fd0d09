"""Files that lie outside git, by URL: ``file://``, ``https://``, and what fsspec knows (``s3://``, ``gs://``).

Each lies under its own sha256, so nothing is ever overwritten and two versions never meet.
"""

from __future__ import annotations

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
from triton_repo_builder.errors import Exit, TrbError

WEB = ("http", "https")
PATIENCE = 60.0
"""Seconds without a byte."""
_EXTRAS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}


def put(file: Path, url: str) -> bool:
    """Copy a file to ``url``; False where it already lies there. Raises ``TrbError`` DOWNLOAD_FAILED."""
    scheme = urllib.parse.urlsplit(url).scheme
    try:
        if scheme in WEB:
            _there(url, file)
            return False
        if scheme == "file":
            target = _local(url)
            if target.is_file() and target.stat().st_size == file.stat().st_size:
                return False
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f".{target.name}.trb")
            shutil.copyfile(file, fresh)
            fresh.replace(target)
            return True
        remote, path = _remote(url)
        if remote.exists(path) and remote.size(path) == file.stat().st_size:
            return False
        remote.put_file(str(file), path)
        return True
    except OSError as error:
        raise _failed(url, error, "check that you may write there, then commit again") from None


def _there(url: str, file: Path) -> None:
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE):
            return
    except urllib.error.HTTPError as error:
        raise TrbError(
            Exit.DOWNLOAD_FAILED,
            f"is not there (HTTP {error.code}), and trb cannot upload to a web server",
            where=url,
            remedy=f"put {file} there under this name, then commit again",
        ) from None


def fetch(root: Path, manifest: Mapping[str, Any], tell: Callable[[str], None]) -> tuple[list[str], int]:
    """Get every file that has a URL and is not there as it should be: names fetched, number that were there.

    A file appears whole and verified, or not at all. Raises ``TrbError`` DOWNLOAD_FAILED.
    """
    fetched, present = [], 0
    wanted = {name: fact for name, fact in sorted(manifest["files"].items()) if "url" in fact}
    for name in wanted:
        _check_inside(root, name)
    for name, fact in wanted.items():
        target = root / name
        if (
            target.is_file()
            and target.stat().st_size == fact["bytes"]
            and files.hash_file(target) == fact["sha256"]
        ):
            present += 1
            continue
        tell(f"{name} from {fact['url']}")
        _get(str(fact["url"]), target, str(fact["sha256"]))
        fetched.append(name)
    return fetched, present


def _check_inside(root: Path, name: str) -> None:
    """Whoever wrote the manifest chose the name: nothing may be written outside of the repository."""
    parts = PurePosixPath(name).parts
    leads_out = not parts or name.startswith("/") or ".." in parts or "\\" in name
    if leads_out or not (root / name).parent.resolve().is_relative_to(root.resolve()):
        raise TrbError(
            Exit.REPOSITORY_UNREADABLE,
            f"lists a file outside of the repository: {name!r}",
            where=str(root / repository.MANIFEST),
            remedy="do not use this repository: somebody tampered with it",
        )


def _get(url: str, target: Path, sha256: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".trb-", dir=target.parent) as scratch:
            fresh = Path(scratch) / "file"
            with _open(url) as source, fresh.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            found = files.hash_file(fresh)
            if found != sha256:
                raise TrbError(
                    Exit.DOWNLOAD_FAILED,
                    f"has sha256 {found}, the manifest says {sha256}: nothing was changed here",
                    where=url,
                    remedy="put the right file there, or commit the repository again from where it was built",
                )
            fresh.replace(target)
    except OSError as error:
        raise _failed(
            url, error, "check the address, the network and your credentials, then try again"
        ) from None


@contextmanager
def _open(url: str) -> Iterator[IO[bytes]]:
    scheme = urllib.parse.urlsplit(url).scheme
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


def _local(url: str) -> Path:
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))


def _remote(url: str) -> tuple[Any, str]:
    scheme = urllib.parse.urlsplit(url).scheme
    package = _EXTRAS.get(scheme, "fsspec")
    try:
        import fsspec

        remote, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        known = scheme in _EXTRAS
        raise TrbError(
            Exit.ENGINE_MISSING if known else Exit.USAGE,
            f"cannot be reached: {error}",
            where=url,
            remedy=f"pip install {package}" if known else "use file://, https://, s3://, gs:// or az://",
        ) from None
    return remote, str(path)


def _failed(url: str, error: OSError, remedy: str) -> TrbError:
    reason = getattr(error, "reason", None) or error.strerror or error
    return TrbError(Exit.DOWNLOAD_FAILED, f"failed: {reason}", where=url, remedy=remedy)
