"""Push a repository to a bucket or a registry, and pull it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton_repo_builder import check, repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.journal import between, recovery, staging, swap, turn
from triton_repo_builder.ship.stores import retention, signature, sigstore_bundle
from triton_repo_builder.ship.stores.az import AzureStore
from triton_repo_builder.ship.stores.gs import GoogleStore
from triton_repo_builder.ship.stores.location import invalid
from triton_repo_builder.ship.stores.registry import RegistryStore
from triton_repo_builder.ship.stores.retention import Pruned
from triton_repo_builder.ship.stores.revision import DIGEST, LocalRevision, collect
from triton_repo_builder.ship.stores.s3 import S3Store
from triton_repo_builder.ship.stores.signature import Subject
from triton_repo_builder.ship.stores.signing_keys import Signer, Trust
from triton_repo_builder.ship.stores.store import Location, Progress, Pulled, Pushed, Store, Stored

__all__ = [
    "STORES",
    "LocalRevision",
    "Location",
    "Pruned",
    "Pulled",
    "Pushed",
    "Stored",
    "counter",
    "parse",
    "prune",
    "pull",
    "push",
    "revisions",
    "store",
    "verified",
]

STORES: dict[str, type[Store]] = {
    "s3": S3Store,
    "gs": GoogleStore,
    "az": AzureStore,
    "oci": RegistryStore,
}
"""Stores by URL scheme. A store is one module and its entry here."""


_NOT_OF_FILES = (Code.ACCESS_DENIED, Code.STORAGE_MISSING, Code.STORAGE_UNREACHABLE)
"""Failures of a store that no change of the pushed files can cause."""


def parse(text: str) -> Location:
    """Read the URL of a pushed repository. Raises BAD_LOCATION."""
    forms = ", ".join(kind.FORMS for kind in STORES.values())
    remedy = f"use one of {forms}; with @sha256:… for one revision"
    scheme, separator, rest = text.partition("://")
    if not separator and Path(text.removeprefix("oci:")).is_dir():
        carry = "; a folder needs neither: see docs/deploy-oci.md, without a network or registry"
        raise invalid(text, "a folder of this machine, not a bucket or a registry", remedy + carry)
    if not separator or scheme not in STORES:
        raise invalid(text, f"trb cannot push to '{scheme}://'" if separator else "not a URL", remedy)
    rest, at, digest = rest.partition("@")
    match = DIGEST.fullmatch(digest)
    if at and not match:
        raise invalid(text, f"invalid digest '@{digest}': use @sha256: and 64 hex digits", remedy)
    try:
        return STORES[scheme].parse(text, rest, match[1] if match else "")
    except TrbError as error:
        raise invalid(text, error.message, remedy) from None


def store(location: Location) -> Store:
    """The store at this location; nothing is connected yet."""
    return STORES[location.scheme](location)


def push(
    root: Path,
    location: Location,
    progress: Progress,
    *,
    force: bool = False,
    dry_run: bool = False,
    signer: Signer | None = None,
    tell: Callable[[str], None] = lambda text: None,
    listed: Callable[[LocalRevision], None] = lambda local: None,
) -> Pushed:
    """Send a repository. ``listed`` gets its files before the store is asked for anything.

    Raises FAILED_CHECKS if the server would refuse it, unless ``force``. REPOSITORY_BUSY: another process has
    changed it before all was sent; the location is as before.
    """
    retention.refuse_pinned(location, "the pushed files determine it")
    if signer is not None:
        sigstore_bundle.require_library()  # before anything is sent
    with turn.taken(root, tell):
        between.refuse(root)
        repo = repository.read(root)
        if not repo.models:
            raise TrbError(
                Code.REPOSITORY_UNREADABLE,
                "has no models",
                where=str(root),
                remedy="name a folder of model directories",
            )
        accepted = check.refuse_errors(repo, "nothing was sent", "push it as it is", force=force)
        local = collect(root)
    listed(local)
    try:
        # Without the lock, which would keep builds and promotes waiting for a slow network.
        pushed = store(location).push(local, progress, dry_run=dry_run, signer=signer)
    except (TrbError, OSError) as error:
        if not (isinstance(error, TrbError) and error.code in _NOT_OF_FILES) and _changed(root, local):
            raise TrbError(
                Code.REPOSITORY_BUSY,
                f"was changed while it was pushed; {location} is as before",
                where=str(root),
                remedy="run the same command again once the other one has ended",
            ) from None
        raise
    return replace(pushed, accepted=accepted)


def _changed(root: Path, local: LocalRevision) -> bool:
    """Whether a repository's files have changed."""
    try:
        return collect(root).index != local.index
    except TrbError:
        return True


def revisions(location: Location) -> tuple[Stored, ...]:
    """Every revision at a location, the newest first. Raises NOT_PUSHED."""
    retention.refuse_pinned(location, "a list is of all of them")
    return store(location).revisions()


def prune(location: Location, keep: int, progress: Progress, *, dry_run: bool = False) -> Pruned:
    """Remove all but the ``keep`` newest revisions and those that something refers to."""
    retention.refuse_pinned(location, "the newest ones are kept")
    return retention.prune(store(location), location, keep, progress, dry_run=dry_run)


def verified(location: Location, trust: Trust) -> tuple[Location, str]:
    """The pinned address of the revision that an allowed key signed, and that key's fingerprint.

    This address keeps naming the verified revision even if the pointer moves meanwhile. Raises
    BAD_SIGNATURE.
    """
    place = store(location)
    subject = place.subject()

    def read(key: str) -> bytes | None:
        return place.signature(subject, key)

    key = signature.require(subject, trust, read, str(location), lambda: place.signers(subject))
    return _at(location, subject), key.fingerprint


def counter(location: Location, trust: Trust) -> int:
    """The highest counter that an allowed key signed for a revision; 0 if none did."""
    place = store(location)
    subject = place.subject()
    documents = ((key, place.signature(subject, key.id) or b"") for key in trust.keys)
    return max(signature.counter(subject, key, document) for key, document in documents)


def pinned(location: Location, trust: Trust | None) -> Location:
    """The address of the revision that is current now, with ``trust`` of a signed one.

    Raises NOT_PUSHED, BAD_SIGNATURE.
    """
    if trust is not None:
        return verified(location, trust)[0]
    return _at(location, store(location).subject())


def _at(location: Any, subject: Subject) -> Location:
    """The address of one revision; every kind of address is a dataclass."""
    return replace(location, revision=subject.digest)  # type: ignore[no-any-return]


def pull(
    location: Location, target: Path, progress: Progress, *, force: bool = False, trust: Trust | None = None
) -> Pulled:
    """Bring a revision into a folder: whole, verified, or not at all; with ``trust`` only a signed one.

    A folder with anything else in it is replaced only with ``force``; one that already holds this revision
    stays untouched.
    """
    named, signed_by = location, ""
    if trust is not None:
        location, signed_by = verified(location, trust)
    recovery.recover(target)
    with staging.staging(target, how="as FOLDER") as stage:
        full = target.exists() and (not target.is_dir() or any(target.iterdir()))
        new = stage / swap.NEW
        new.mkdir()
        pulled = replace(
            store(location).pull(new, progress),
            location=str(named).partition("@")[0],
            target=str(target),
            signed_by=signed_by,
        )
        if full and target.is_dir() and collect(target).index == collect(new).index:
            return replace(pulled, changed=False)
        if (target / ".git").exists():
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "is the top of a git work tree, whose history would be lost; nothing was touched",
                where=str(target),
                remedy="name a folder in it",
            )
        if full and not force:
            raise TrbError(
                Code.OUTPUT_FOREIGN,
                "contains something else; nothing was touched",
                where=str(target),
                remedy="name an empty or a new folder, or replace what is there with --force",
            )
        with staging.exclusive(target) if target.exists() else contextlib.nullcontext():
            swap.replace(stage, target)
    return pulled
