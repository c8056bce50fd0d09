"""The protocol of a store, results of push and pull, and remedies if a kind of store refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores.revision import LocalRevision
from triton_repo_builder.ship.stores.signature import Subject
from triton_repo_builder.ship.stores.signing_keys import Signer

Progress = Callable[[str, int, int], None]
"""Receives the current file or blob, the bytes done and the bytes of the whole."""


class Location(Protocol):
    """An address of one kind of store, parsed."""

    @property
    def scheme(self) -> str:
        """Key of the kind of store in STORES."""

    @property
    def name(self) -> str:
        """A short name for people."""

    @property
    def revision(self) -> str:
        """Hex sha256; empty: the current one."""


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Remedies for the failures that every kind of store has."""

    credentials: str
    unreachable: str
    ca_variables: tuple[str, ...] = ("SSL_CERT_FILE",)
    """Variables that name a file of CA certificates; the first that is set counts."""
    plain_http: str = "check the port"
    """The server there does not speak TLS."""
    tries: int = 0
    """How often, at least, the library itself sends a request that a 5xx or a dropped connection ends;
    0: ``retries`` does."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """Result of a push; a dry run reports what it would do."""

    location: str
    """The pointer: what ``trb pull`` and ``trb serve`` take to get the current revision."""
    revision: str
    """``sha256:…``."""
    pinned: str
    """Address of exactly this revision, whatever is pushed later."""
    previous: str
    """The revision that was current; empty if there was none, or it cannot be read."""
    files: int
    bytes: int
    sent: tuple[str, ...]
    """Uploaded files (bucket) or blobs (registry). The others were already stored and intact."""
    sent_bytes: int
    labels: dict[str, str]
    copied: tuple[str, ...] = ()
    """Files that the bucket itself copied from the revision before."""
    accepted: tuple[str, ...] = ()
    """Errors of ``trb check`` that --force let pass, a line each."""
    signed_by: str = ""
    """Fingerprint of the key of --sign."""
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A revision in a store."""

    revision: str
    """``sha256:…``."""
    pushed: str
    """When it last became current: UTC, ISO 8601; empty if the store does not know."""
    bytes: int
    labels: dict[str, str]
    signed_by: tuple[str, ...]
    """Fingerprints that its signatures state; nothing was verified."""
    holds: tuple[str, ...]
    """Why no prune may remove it: ``current``, ``previous``, ``tag NAME``."""


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """Result of a pull."""

    location: str
    revision: str
    files: int
    bytes: int
    target: str
    changed: bool = True
    signed_by: str = ""
    """Fingerprint of the allowed key whose signature was verified; empty if none was asked for."""


class Store(Protocol):
    """A place that keeps revisions and a pointer to the current one."""

    FORMS: ClassVar[str]
    """Syntax of its addresses."""
    HINTS: ClassVar[Hints]

    def __init__(self, location: Any) -> None:
        """``location`` is a result of ``parse``; nothing is connected yet."""

    @classmethod
    def parse(cls, text: str, rest: str, revision: str) -> Location:
        """Read the address ``text``: ``rest`` is its part between ``://`` and ``@sha256:``."""

    def push(
        self,
        local: LocalRevision,
        progress: Progress,
        *,
        dry_run: bool = False,
        signer: Signer | None = None,
    ) -> Pushed:
        """Send what is missing, verify what arrived, sign it, then move the pointer."""

    def subject(self) -> Subject:
        """The digests that a signature of the location's revision covers. Raises NOT_PUSHED."""

    def signature(self, subject: Subject, key: str) -> bytes | None:
        """The stored signature by the key of this ``id``, not verified; read without a listing."""

    def signers(self, subject: Subject) -> tuple[str, ...]:
        """Ids of the keys whose signatures are stored, valid or not."""

    def revisions(self) -> tuple[Stored, ...]:
        """Every whole revision, the newest first. Raises NOT_PUSHED."""

    def remove(self, revision: str) -> bool:
        """Remove a revision, its index or manifest first; False if meanwhile it became current."""

    def leftovers(self) -> tuple[str, ...]:
        """Revisions whose removal was begun and killed; ``remove`` ends it."""

    def pull(self, target: Path, progress: Progress) -> Pulled:
        """Write the revision's files below ``target``, an empty folder, each verified."""

    def serve_from(self, target: Path, progress: Progress) -> str:
        """URL from which Triton itself reads the models; empty if it cannot, then nothing is written.

        Below ``target`` are then the files that describe the models, verified, and empty ones for the rest.
        """


def overtaken(where: str, now: str, pinned: str) -> TrbError:
    """Two pushes moved the pointer at the same moment, and the other one came last."""
    return TrbError(
        Code.STORAGE_FAILED,
        f"another push made {now or 'nothing'} the current revision at the same moment",
        where=where,
        remedy=f"run the same command again to make it this one: {pinned}, which is there and whole",
    )
