"""Where a pushed repository lies, as the user writes it: a bucket (s3, gs, az) or an image in a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from triton_repo_builder.errors import Code, TrbError

BUCKETS = ("s3", "gs", "az")
SCHEMES = (*BUCKETS, "oci")
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
FORMS = (
    "s3://BUCKET/PREFIX, s3://HOST:PORT/BUCKET/PREFIX (as Triton writes it), gs://BUCKET/PREFIX, "
    "az://CONTAINER/PREFIX or oci://REGISTRY/NAME:TAG, each with @sha256:… for one revision"
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()=+,-]+(/[A-Za-z0-9!_.*'()=+,-]+)*")
_HOST = re.compile(r"(?:(https?)://)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/(.*)", re.DOTALL)
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
    """Hex sha256; empty: the one that the pointer names."""

    @property
    def root(self) -> str:
        """``bucket/prefix``."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def name(self) -> str:
        """A short name for people."""
        return self.root.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        # HTTP goes without saying, in Triton's own syntax as well.
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
    def name(self) -> str:
        """A short name for people."""
        return self.repository.rsplit("/", 1)[-1]

    @property
    def reference(self) -> str:
        """What the registry's API calls it: the digest if one is given, else the tag."""
        return f"sha256:{self.revision}" if self.revision else self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.registry}/{self.repository}{tag}" + (
            f"@sha256:{self.revision}" if self.revision else ""
        )


Location = Bucket | Image


def parse(text: str) -> Location:
    """Read a URL. Raises ``TrbError`` BAD_LOCATION that says which part is wrong."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _bad(text, f"'{scheme}://' is no place that trb can push to" if separator else "is no URL")
    rest, at, digest = rest.partition("@")
    match = DIGEST.fullmatch(digest)
    if at and not match:
        raise _bad(text, f"'@{digest}' is no digest: @sha256: and 64 hex digits")
    revision = match[1] if match else ""
    return _image(text, rest, revision) if scheme == "oci" else _bucket(text, scheme, rest, revision)


def _bucket(text: str, scheme: str, rest: str, revision: str) -> Bucket:
    endpoint = ""
    host = _HOST.fullmatch(rest)
    if host:
        if scheme != "s3":
            raise _bad(text, f"{scheme}:// takes no host and port")
        endpoint, rest = f"{host[1] or 'http'}://{host[2]}:{host[3]}", host[4]
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.rstrip("/")
    if not _BUCKET.fullmatch(bucket):
        raise _bad(text, f"'{bucket}' is no name of a bucket" if bucket else "names no bucket")
    # Triton hands these paths on unquoted, and '..' is no folder in a bucket.
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
        raise _bad(text, f"'{prefix}' is no prefix: letters, digits, and !_.*'()=+,- between single slashes")
    return Bucket(scheme=scheme, bucket=bucket, prefix=prefix, endpoint=endpoint, revision=revision)


def _image(text: str, rest: str, revision: str) -> Image:
    registry, _, name = rest.partition("/")
    if not _REGISTRY.fullmatch(registry) or not name:
        raise _bad(text, "names no registry and image")
    name, colon, tag = name.partition(":")
    if not _NAME.fullmatch(name):
        raise _bad(text, f"'{name}' is no name of an image: lower-case letters, digits, ._- between slashes")
    if colon and not _TAG.fullmatch(tag):
        raise _bad(text, f"'{tag}' is no tag")
    if not tag and not revision:
        tag = "latest"
    return Image(registry=registry, repository=name, tag=tag, revision=revision)


def _bad(text: str, what: str) -> TrbError:
    return TrbError(Code.BAD_LOCATION, what, where=text, remedy=f"give one of {FORMS}")
