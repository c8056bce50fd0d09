"""Addresses of pushed repositories, parsed: a prefix in a bucket, or an image in a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from triton_repo_builder.base.errors import Code, TrbError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()=+,-]+(/[A-Za-z0-9!_.*'()=+,-]+)*")
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?")
_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A prefix in a bucket that holds revisions and the pointer to the current one."""

    scheme: str
    bucket: str
    prefix: str = ""
    endpoint: str = ""
    """``http://host:port`` of an S3 server other than the configured one."""
    revision: str = ""
    """Hex sha256; empty: the current one."""

    @property
    def root(self) -> str:
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def name(self) -> str:
        return self.root.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        # HTTP is the default, in Triton's own syntax as well.
        at = f"{self.endpoint.removeprefix('http://')}/" if self.endpoint else ""
        return f"{self.scheme}://{at}{self.root}" + (f"@sha256:{self.revision}" if self.revision else "")


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in a registry. A tag is the pointer, a digest is one revision."""

    registry: str
    repository: str
    tag: str = ""
    revision: str = ""

    @property
    def scheme(self) -> str:
        return "oci"

    @property
    def name(self) -> str:
        return self.repository.rsplit("/", 1)[-1]

    @property
    def reference(self) -> str:
        """The reference in the registry's API: the digest if given, else the tag."""
        return f"sha256:{self.revision}" if self.revision else self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.registry}/{self.repository}{tag}" + (
            f"@sha256:{self.revision}" if self.revision else ""
        )


def bucket(text: str, scheme: str, rest: str, revision: str, endpoint: str = "") -> Bucket:
    """Read ``BUCKET[/PREFIX]``. Raises BAD_LOCATION."""
    name, _, prefix = rest.partition("/")
    prefix = prefix.rstrip("/")
    if not _BUCKET.fullmatch(name):
        raise invalid(text, f"invalid bucket name '{name}'" if name else "has no bucket name")
    # Triton hands these paths on unquoted, and '..' is not a folder in a bucket.
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
        raise invalid(
            text, f"invalid prefix '{prefix}': use letters, digits, and !_.*'()=+,- between single slashes"
        )
    return Bucket(scheme=scheme, bucket=name, prefix=prefix, endpoint=endpoint, revision=revision)


def image(text: str, rest: str, revision: str) -> Image:
    """Read ``REGISTRY/NAME[:TAG]``. Raises BAD_LOCATION."""
    registry, _, name = rest.partition("/")
    if not _REGISTRY.fullmatch(registry) or not name:
        raise invalid(text, "needs a registry and an image name")
    name, colon, tag = name.partition(":")
    if not _NAME.fullmatch(name):
        raise invalid(
            text, f"invalid image name '{name}': use lower-case letters, digits, ._- between slashes"
        )
    if colon and not _TAG.fullmatch(tag):
        raise invalid(text, f"invalid tag '{tag}'")
    if not tag and not revision:
        tag = "latest"
    return Image(registry=registry, repository=name, tag=tag, revision=revision)


def invalid(text: str, message: str, remedy: str = "see 'trb push --help'") -> TrbError:
    """The error for an address that cannot be right."""
    return TrbError(Code.BAD_LOCATION, message, where=text, remedy=remedy)
