"""``trb push``: a repository to a bucket or a registry."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Number, Switch
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, FILLED, Place

if TYPE_CHECKING:
    from triton_repo_builder.ship.stores import LocalRevision, Location, Pruned, Pushed, Stored

LARGEST = 10
"""Files that a dry run lists one by one."""


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """Options of pushing, and of other actions at the URL."""

    force: bool = option(False, Switch(), Topic.REPOSITORY, "Push despite errors of trb check.")
    key_file: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.REPOSITORY,
        "Sign the revision with this elliptic curve private key, in PEM.",
        flag="--sign",
        metavar="KEYFILE",
    )
    list: bool = option(False, Switch(), Topic.STORE, "List the revisions at URL; push nothing.")
    prune: bool = option(False, Switch(), Topic.STORE, "Remove old revisions at URL; push nothing.")
    keep: int | None = option(
        None, Number(), Topic.STORE, "Of --prune: how many of the newest revisions stay."
    )
    dry_run: bool = option(
        False, Switch(), Topic.OUTPUT, "Show what would be uploaded or removed; change nothing."
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the result as JSON.", flag="--json")

    def checked(self) -> PushOptions:
        """The options. Raises ``UsageError`` for incompatible ones."""
        if self.list and self.prune:
            raise click.UsageError("--list and --prune are two different things: use one of them.")
        if self.prune != (self.keep is not None):
            raise click.UsageError("--prune and --keep N belong together.")
        return self


@click.command("push", cls=declared.TopicCommand)
@click.argument("url", type=FILLED)
@click.argument("repo", type=Place(), required=False)
@declared.options(options=PushOptions)
def command(url: str, repo: Path | None, options: PushOptions) -> int:
    """Upload REPO (default: model_repository) to URL, so that readers see the old revision or the new one.

    URL is s3://BUCKET/PREFIX, s3://HOST:PORT/BUCKET/PREFIX, gs://…, az://… or oci://REGISTRY/NAME:TAG. Each
    revision is stored under the digest of its content and never overwritten; a pointer (current.json, or the
    tag) moves last. Files already there are verified and not sent again; --dry-run compares with them, too,
    so it needs the store and its credentials. These come from where the libraries look: environment,
    profiles, docker login. See docs/push.md.

    \b
    Examples:
      trb push s3://models/minilm
      trb push s3://127.0.0.1:9000/models/minilm my_repository --dry-run
      trb push oci://registry.example.com/models/minilm:1.4
      trb push s3://models/minilm --sign release_key
      trb push s3://models/minilm --list
      trb push s3://models/minilm --prune --keep 5
    """
    _check_combination(repo, options)
    as_json, dry_run = options.as_json, options.dry_run

    from triton_repo_builder.ship import stores

    location = stores.parse(url)
    if options.list:
        return _list(location, as_json=as_json)
    if options.keep is not None:
        with console.progress("items") as progress:
            pruned = stores.prune(location, options.keep, progress, dry_run=dry_run)
        _print_pruned(pruned, as_json=as_json)
        return 0
    from triton_repo_builder.ship.stores import signing_keys

    signer = None if options.key_file is None else signing_keys.read_signer(options.key_file)
    repo = repo or DEFAULT_REPOSITORY
    console.recovered(repo, whole=True)
    with console.progress("bytes") as progress:
        pushed = stores.push(
            repo,
            location,
            progress,
            force=options.force,
            dry_run=dry_run,
            signer=signer,
            tell=console.line,
            listed=_print_files if dry_run and not as_json else lambda local: None,
        )
    if as_json:
        console.echo(json.dumps(asdict(pushed), ensure_ascii=False))
    else:
        _print(pushed)
    return 0


def _check_combination(repo: Path | None, options: PushOptions) -> None:
    """Raise ``UsageError`` for options that need a push."""
    pushing = {
        "REPO": repo is not None,
        "--force": options.force,
        "--sign": options.key_file is not None,
        "--dry-run": options.dry_run and options.list,
    }
    wrong = [name for name, is_set in pushing.items() if is_set]
    if wrong and (options.list or options.prune):
        raise click.UsageError(f"{'--list' if options.list else '--prune'} does not go with {wrong[0]}.")


def _print_files(local: LocalRevision) -> None:
    """The files of a dry run: also shown if the store then cannot be reached."""
    entries = sorted(local.index.entries, key=lambda entry: (-entry.bytes, entry.path))
    width = len(f"{local.index.bytes:,}")
    for entry in entries[:LARGEST]:
        console.echo(f"{entry.bytes:>{width},}  {entry.path}")
    if rest := entries[LARGEST:]:
        console.echo(
            f"{sum(entry.bytes for entry in rest):>{width},}  in {counted(len(rest), 'smaller file')}"
        )
    console.echo(f"{local.index.bytes:>{width},}  in all, as revision sha256:{local.index.digest}")


def _print(pushed: Pushed) -> None:
    for line in pushed.accepted:
        console.note(line)
    verb = "would send" if pushed.dry_run else "sent"
    sent = f"{verb} {len(pushed.sent)} new, {pushed.sent_bytes:,} bytes" if pushed.sent else "nothing to send"
    copied = f", {len(pushed.copied)} copied within the bucket" if pushed.copied else ""
    console.echo(f"{counted(pushed.files, 'file')}, {pushed.bytes:,} bytes; {sent}{copied}")
    if pushed.dry_run:
        console.echo(f"the revision would be {pushed.revision}")
    elif pushed.previous == pushed.revision:
        console.echo(f"{pushed.location} is this revision already")
    else:
        console.echo(f"{pushed.location} is now {pushed.revision}")
    if pushed.signed_by:
        console.echo(f"{'would be signed' if pushed.dry_run else 'signed'} by {pushed.signed_by}")
    if not pushed.dry_run:
        console.echo(f"this revision for ever: {pushed.pinned}")
    if pushed.previous and pushed.previous != pushed.revision:
        console.echo(f"before: {pushed.previous}")


def _list(location: Location, *, as_json: bool) -> int:
    from triton_repo_builder.ship import stores

    revisions = stores.revisions(location)
    if as_json:
        listed = {"location": str(location), "revisions": [asdict(stored) for stored in revisions]}
        console.echo(json.dumps(listed, ensure_ascii=False))
    else:
        _table(revisions)
    return 0


def _table(revisions: tuple[Stored, ...]) -> None:
    rows = [
        (
            stored.revision,
            ", ".join(stored.holds),
            stored.pushed[:19].replace("T", " "),
            f"{stored.bytes:,}",
            stored.labels.get("trb.version", ""),
            "\n".join(_short(key) for key in stored.signed_by),
        )
        for stored in revisions
    ]
    columns = ("revision", "is", "pushed (UTC)", "bytes", "trb", "signed by (not verified)")
    console.table(columns, rows, right=("bytes",), whole=("revision", "pushed (UTC)"))


def _short(fingerprint: str) -> str:
    """Start of a fingerprint, as long as people compare; --json has all of it."""
    return f"{fingerprint[:23]}…" if len(fingerprint) > 24 else fingerprint


def _print_pruned(pruned: Pruned, *, as_json: bool) -> None:
    if as_json:
        console.echo(json.dumps({**asdict(pruned), "bytes": pruned.bytes}, ensure_ascii=False))
        return
    verb = "would remove" if pruned.dry_run else "removed"
    for stored in pruned.removed:
        console.echo(f"{verb} {stored.revision}, {stored.bytes:,} bytes")
    for revision in pruned.ended:
        console.echo(f"{verb} the rest of {revision}, which an earlier prune had begun")
    if not pruned.removed and not pruned.ended:
        console.echo("nothing to remove")
    console.echo(f"{counted(len(pruned.kept), 'revision')} {'would stay' if pruned.dry_run else 'left'}")
