"""``trb accept``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Switch, Text
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, Place

if TYPE_CHECKING:
    from triton_repo_builder.produce.accept import Acceptance, HandEdit, Recover
    from triton_repo_builder.repository.edits import Approval


@dataclass(frozen=True, kw_only=True)
class AcceptOptions:
    """The reason, and where the built text comes from."""

    why: str | None = option(None, Text(), Topic.REPOSITORY, "Reason for the edit, recorded with your name.")
    model: Path | None = option(
        None,
        FilePath(),
        Topic.REPOSITORY,
        "The model that the endpoint was built from: renders again what was built, if git does not have it.",
    )
    dry_run: bool = option(False, Switch(), Topic.REPORT, "Show the edits; record nothing.")
    as_json: bool = option(False, Switch(), Topic.REPORT, "Print the result as JSON.", flag="--json")


@click.command("accept", cls=declared.TopicCommand)
@click.argument("places", nargs=-1, type=Place(), metavar="[REPOSITORY] [FILES]...")
@declared.options(options=AcceptOptions)
def command(places: tuple[Path, ...], options: AcceptOptions) -> None:
    """Accept hand edits of files that trb wrote, and added files: FILES, or all in REPOSITORY.

    Shows each edit and records it in manifest.json, with your name and the reason. From then on check,
    verify, commit, serve, promote and apply take the edited file as right, and trb build applies the edit
    again. The diff is from what trb built: git has it if you committed that, else name the model with
    --model. Refuses what trb check finds wrong for Triton.

    \b
    Examples:
      trb accept --dry-run
      trb accept --why "two instances: the tokenizer was the bottleneck"
      trb accept --why "two instances" --model exported/minilm
      trb accept model_repository/bert_model/config.pbtxt --why "longer queue for the nightly batch"
    """
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.produce import accept
    from triton_repo_builder.repository.edits import Approval
    from triton_repo_builder.repository.journal import turn
    from triton_repo_builder.ship.vcs import earlier

    why = " ".join((options.why or "").split())
    if not why and not options.dry_run:
        raise TrbError(
            Code.USAGE,
            "is missing or empty",
            where="--why",
            remedy="say why the edit is right; --dry-run shows it",
        )
    root, names = _resolved(places)
    with nullcontext() if options.dry_run else turn.taken(root, console.line), console.status() as progress:
        console.recovered(root, write=not options.dry_run, whole=True)
        approval = Approval(by=earlier.user(root), why=why)
        progress("comparing with manifest.json")
        acceptance = accept.prepare(root, names, approval, _recover(root, options.model, progress))
        if acceptance.edits and not options.dry_run:
            accept.write(acceptance)
    if options.as_json:
        _print_json(acceptance, approval, written=not options.dry_run)
    else:
        _print(acceptance, approval, written=not options.dry_run)


def _resolved(places: tuple[Path, ...]) -> tuple[Path, tuple[str, ...]]:
    """The repository, and the paths of the files in it; a file names its repository by itself."""
    from triton_repo_builder.repository import MANIFEST

    if not places:
        return DEFAULT_REPOSITORY, ()
    first, *rest = places
    if (first / MANIFEST).is_file():
        return first, tuple(_inside(place, first) for place in rest)
    above = next((each for each in first.absolute().parents if (each / MANIFEST).is_file()), None)
    if above is None:
        default = (DEFAULT_REPOSITORY / first).exists()
        return (DEFAULT_REPOSITORY, tuple(map(Path.as_posix, places))) if default else (first, ())
    root = next((each for each in first.parents if each.absolute() == above), above)
    return root, tuple(_inside(place, root) for place in places)


def _inside(place: Path, root: Path) -> str:
    """A file's path in the repository; it may be stated from there, or from the current folder."""
    if place.absolute().is_relative_to(root.absolute()):
        return place.absolute().relative_to(root.absolute()).as_posix()
    return place.as_posix()


def _recover(root: Path, model: Path | None, progress: Callable[[str], None]) -> Recover:
    """Earlier contents from git, else rendered again."""
    from triton_repo_builder.produce.render_again import Renderer
    from triton_repo_builder.repository import manifest
    from triton_repo_builder.ship.vcs import earlier

    renderer = Renderer(manifest.read(root) or manifest.Manifest(), model, progress) if model else None

    def recover(path: str, matches: Callable[[bytes], bool]) -> bytes | None:
        data = earlier.content(root, path, matches)
        return renderer.content(path, matches) if data is None and renderer else data

    return recover


def _print(acceptance: Acceptance, approval: Approval, *, written: bool) -> None:
    root = acceptance.root
    if not acceptance.edits:
        console.echo(f"{root}: nothing to accept, every file is as recorded")
        return
    for each in acceptance.edits:
        _print_edit(each)
    number = counted(len(acceptance.edits), "edit")
    if written:
        kept = all(
            each.edit is None or each.edit.added or each.edit.diff is not None for each in acceptance.edits
        )
        after = "which trb build keeps" if kept else "of which trb build cannot keep those without a diff"
        console.echo(f"{root}: accepted {number} by {approval.by}, {after}")
    else:
        console.echo(f"{root}: dry run, {number} to accept; nothing was recorded")


def _print_edit(edited: HandEdit) -> None:
    if edited.edit is None:
        console.echo(f"{edited.path}: again as trb built it")
        return
    if edited.edit.added:
        console.echo(f"{edited.path}: added, {len(edited.data):,} bytes")
        return
    if edited.edit.diff is None:
        console.note(
            f"{edited.path}: no diff can be shown: what trb built is not in git; a later build has none to "
            "apply. Name the model that it was built from: trb accept … --model PATH (also later)"
        )
        return
    console.echo(f"--- {edited.path} (as trb built it)\n+++ {edited.path}")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in edited.edit.diff:
        console.echo(console.style(line, fg=colours.get(line[:1])))


def _print_json(acceptance: Acceptance, approval: Approval, *, written: bool) -> None:
    import json

    document = {
        "repository": str(acceptance.root),
        "written": written and bool(acceptance.edits),
        "by": approval.by,
        "why": approval.why,
        "edits": [
            {
                "path": each.path,
                "endpoint": each.places[0].endpoint,
                "version": each.places[0].entry.version,
                "added": each.edit is not None and each.edit.added,
                "built": (each.edit.built or None) if each.edit else None,
                "diff": list(each.edit.diff) if each.edit and each.edit.diff is not None else None,
            }
            for each in acceptance.edits
        ],
    }
    console.echo(json.dumps(document, indent=1, ensure_ascii=False))
