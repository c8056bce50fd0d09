"""``trb push``: a repository to a bucket or a registry."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Filled, Place

if TYPE_CHECKING:
    from triton_repo_builder.ship.stores import Location, Pruned, Pushed, Stored


@click.command("push")
@click.argument("url", type=Filled())
@click.argument("repo", type=Place(), required=False)
@click.option("--force", is_flag=True, help="Push despite errors of trb check.")
@click.option(
    "--sign",
    "key_file",
    type=Place(dir_okay=False),
    metavar="KEYFILE",
    help="Sign the revision with this elliptic curve private key, in PEM.",
)
@click.option("--list", "listing", is_flag=True, help="List the revisions at URL; push nothing.")
@click.option("--prune", is_flag=True, help="Remove old revisions at URL; push nothing.")
@click.option("--keep", type=click.IntRange(1), help="Of --prune: how many of the newest revisions stay.")
@click.option("--dry-run", is_flag=True, help="Show what would be uploaded or removed; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    url: str,
    repo: Path | None,
    force: bool,
    key_file: Path | None,
    listing: bool,
    prune: bool,
    keep: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Upload REPO (default: model_repository) to URL, so that readers see the old revision or the new one.

    URL is s3://BUCKET/PREFIX, s3://HOST:PORT/BUCKET/PREFIX, gs://…, az://… or oci://REGISTRY/NAME:TAG. Each
    revision is stored under the digest of its content and never overwritten; a pointer (current.json, or the
    tag) moves last. Files already there are verified and not sent again. Credentials come from where the
    libraries look: environment, profiles, docker login. See docs/push.md.

    \b
    Examples:
      trb push s3://models/minilm
      trb push s3://127.0.0.1:9000/models/minilm my_repository --dry-run
      trb push oci://registry.example.com/models/minilm:1.4
      trb push s3://models/minilm --sign release_key
      trb push s3://models/minilm --list
      trb push s3://models/minilm --prune --keep 5
    """
    _check_options(repo, force, key_file, listing, prune, keep, dry_run)

    from triton_repo_builder.ship import stores

    location = stores.parse(url)
    if listing:
        return _list(location, as_json=as_json)
    if keep is not None:
        with console.progress("items") as progress:
            pruned = stores.prune(location, keep, progress, dry_run=dry_run)
        _print_pruned(pruned, as_json=as_json)
        return 0
    from triton_repo_builder.ship.stores import signing_keys

    signer = None if key_file is None else signing_keys.read_signer(key_file)
    repo = repo or DEFAULT_REPOSITORY
    console.recovered(repo, whole=True)
    with console.progress("bytes") as progress:
        pushed = stores.push(
            repo, location, progress, force=force, dry_run=dry_run, signer=signer, tell=console.line
        )
    if as_json:
        console.echo(json.dumps(asdict(pushed), ensure_ascii=False))
    else:
        _print(pushed)
    return 0


def _check_options(
    repo: Path | None,
    force: bool,
    key_file: Path | None,
    listing: bool,
    prune: bool,
    keep: int | None,
    dry_run: bool,
) -> None:
    """Raise ``UsageError`` for options that do not belong together."""
    if listing and prune:
        raise click.UsageError("--list and --prune are two different things: use one of them.")
    if prune != (keep is not None):
        raise click.UsageError("--prune and --keep N belong together.")
    pushing = {"REPO": repo is not None, "--force": force, "--sign": key_file is not None}
    wrong = [name for name, is_set in {**pushing, "--dry-run": dry_run and listing}.items() if is_set]
    if wrong and (listing or prune):
        raise click.UsageError(f"{'--list' if listing else '--prune'} does not go with {wrong[0]}.")


def _print(pushed: Pushed) -> None:
    for line in pushed.accepted:
        console.note(line)
    verb = "would send" if pushed.dry_run else "sent"
    what = f"{verb} {len(pushed.sent)} new, {pushed.sent_bytes:,} bytes" if pushed.sent else "nothing to send"
    copied = f", {len(pushed.copied)} copied within the bucket" if pushed.copied else ""
    console.echo(f"{counted(pushed.files, 'file')}, {pushed.bytes:,} bytes; {what}{copied}")
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

    found = stores.revisions(location)
    if as_json:
        listed = {"location": str(location), "revisions": [asdict(stored) for stored in found]}
        console.echo(json.dumps(listed, ensure_ascii=False))
    else:
        _table(found)
    return 0


def _table(found: tuple[Stored, ...]) -> None:
    rows = [
        (
            stored.revision,
            ", ".join(stored.holds),
            stored.pushed[:19].replace("T", " "),
            f"{stored.bytes:,}",
            stored.labels.get("trb.version", ""),
            "\n".join(_short(key) for key in stored.signed_by),
        )
        for stored in found
    ]
    columns = ("revision", "is", "pushed (UTC)", "bytes", "trb", "signed by (not verified)")
    console.table(columns, rows, right=("bytes",), whole=("revision", "pushed (UTC)"))


def _short(fingerprint: str) -> str:
    """As much of a fingerprint as people compare; --json has all of it."""
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
