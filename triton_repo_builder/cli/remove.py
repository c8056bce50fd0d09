"""``trb remove``: remove endpoints, or older versions of them, from a repository."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Number, Switch
from triton_repo_builder.cli import build_report, console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY

if TYPE_CHECKING:
    from triton_repo_builder.produce.write.prune import Pruning
    from triton_repo_builder.produce.write.publish import Publication


@dataclass(frozen=True, kw_only=True)
class RemoveOptions:
    """The repository, limits of the removal, and its report."""

    output: Path = option(
        DEFAULT_REPOSITORY,
        FilePath(),
        Topic.REPOSITORY,
        "Repository.",
        default=str(DEFAULT_REPOSITORY),
        also=("-o",),
    )
    keep: int | None = option(
        None,
        Number(),
        Topic.REPOSITORY,
        "Remove only older versions: all but the newest N, the served one and the one before.",
        metavar="N",
    )
    force: bool = option(
        False, Switch(), Topic.REPOSITORY, "Also remove files that were edited since trb wrote them."
    )
    dry_run: bool = option(False, Switch(), Topic.REPORT, "List what would be removed; remove nothing.")
    as_json: bool = option(False, Switch(), Topic.REPORT, "Print the result as JSON.", flag="--json")


@click.command("remove", cls=declared.TopicCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@declared.options(options=RemoveOptions)
def command(names: tuple[str, ...], options: RemoveOptions) -> int:
    """Remove endpoints that trb built, with their models, from a repository; all or nothing.

    A tokenizer that other endpoints share stays. So do your own files in those directories. With --keep the
    endpoints stay, and only older versions are removed; a version with files that you edited or added stays.
    A running server is not notified: use trb unload first, unless you only remove versions with --keep.

    \b
    Examples:
      trb remove bert
      trb remove bert resnet --output my_repository --dry-run
      trb remove bert --keep 2
    """
    from triton_repo_builder.produce.write import prune, publish, remove
    from triton_repo_builder.repository.journal import turn

    names, output, write = tuple(dict.fromkeys(names)), options.output, not options.dry_run
    pruning = None
    with turn.taken(output, console.line) if write else nullcontext():
        console.recovered(output, write=write, whole=True)
        if options.keep is not None:
            pruning = prune.plan(output, names, options.keep, force=options.force)
            publication = pruning.publication
            if write:
                prune.write(pruning)
        else:
            publication = remove.remove(output, names, force=options.force or not write)
            if write:
                publish.publish(publication)
    if options.as_json:
        console.echo(_json(names, publication, pruning, written=write))
        return 0
    if pruning is not None:
        _print_versions(pruning, written=write)
    if write:
        console.echo(f"{output}: {build_report.changed(publication.changes)}")
    else:
        build_report.print_dry_run(publication.changes)
    return 0


def _print_versions(pruning: Pruning, *, written: bool) -> None:
    """Print the versions that go and stay, for each endpoint."""
    for file in pruning.edited:
        console.note(f"{file} was edited: its version is kept")
    for name, removed in pruning.removed.items():
        entry = pruning.manifest.endpoints[name]
        action = f"{'removed' if written else 'would remove'} {_numbered(removed)}" if removed else ""
        console.echo(
            f"{name}: {action or 'no version to remove'}; {_numbered(sorted(entry.versions))} "
            f"{'stays' if len(entry.versions) == 1 else 'stay'}, {entry.served.version} is served"
        )


def _numbered(versions: Sequence[int]) -> str:
    """``version 4``, ``versions 4, 5``."""
    return f"version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))}"


def _json(names: Sequence[str], publication: Publication, pruning: Pruning | None, *, written: bool) -> str:
    removed: Mapping[str, Sequence[int]]
    if pruning is not None:
        removed = pruning.removed
    else:
        removed = {name: sorted(publication.before.endpoints[name].versions) for name in names}
    document = {
        **build_report.summary(publication, written=written),
        "removed_versions": removed,
        "kept_for_edits": pruning.edited if pruning is not None else (),
    }
    return json.dumps(document, indent=1)
