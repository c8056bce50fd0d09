"""Output of ``trb build``, for one endpoint and for many."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console

if TYPE_CHECKING:
    from triton_repo_builder.produce.build import Build
    from triton_repo_builder.produce.write.publish import Changes, Publication


def print_build(build: Build, publication: Publication, *, written: bool) -> None:
    """Print the notes, the models and the endpoint of one build, or with ``written=False`` a dry run."""
    changes = publication.changes
    for note in (*build.notes, *changes.notes):
        console.note(note)
    if not written:
        print_dry_run(changes)
        return
    console.echo(f"{publication.output}: {changed(changes)}")
    for model in build.plan.models:
        console.echo(f"  {model.name:<28} {model.about}")
    served = build.entry.served
    built = build.entry.versions.get(build.version, served)
    tensors = (*built.endpoint.inputs, *built.endpoint.outputs)
    shapes = ", ".join(f"{'optional ' if t.optional else ''}{t.name} {t}" for t in tensors)
    console.echo(f"endpoint {build.name}: {shapes}")
    console.echo(f"  for Triton {built.triton_release}: {build.release_why}")
    if built.facts:
        console.echo("  " + ", ".join(f"{key} {_plain(value)}" for key, value in built.facts.items()))
    if build.version != served.version:
        from triton_repo_builder.produce.write import versions

        promote = versions.promotion(build.name, build.version, publication.output)
        console.echo("next: ", _bold(promote), f" serves it in place of version {served.version}")
        return
    repository = shlex.quote(str(publication.output))
    smoke, serve = _bold(f"trb smoke {repository}"), _bold(f"trb serve {repository}")
    console.echo("next: ", smoke, " proves it, ", serve, " runs it")


def print_settings(build: Build) -> None:
    """Print the reason for the value of each setting."""
    for name, setting in build.settings.explained():
        console.echo(f"  {name} ", _bold(str(setting.value)), f": {setting.reason}")


def changed(changes: Changes) -> str:
    """``1 added, 2 changed, 3 removed``, ``unchanged``, or what changes in manifest.json alone."""
    if changes.record:
        return f"only manifest.json changes ({'; '.join(changes.record)})"
    if not changes:
        return "unchanged"
    return f"{len(changes.added)} added, {len(changes.changed)} changed, {len(changes.removed)} removed"


def print_dry_run(changes: Changes) -> None:
    """Print the changes of a build or removal."""
    for sign, paths in (("+", changes.added), ("~", changes.changed), ("-", changes.removed)):
        for path, count in _listed(paths).items():
            files = f" ({counted(count, 'file')})" if path.endswith("/") else ""
            console.echo(f"  {sign} {path}{files}")
    console.echo(f"dry run: {changed(changes)}; nothing was written")
    if changes.edited:
        listed = ", ".join(changes.edited[:5])
        console.echo(f"edited since trb wrote them; trb accept keeps the edit, --force replaces it: {listed}")


def _listed(paths: Sequence[str]) -> Mapping[str, int]:
    """Paths, with one line for all files of a vendored library: its folder, and how many files it has."""
    return Counter(path.split("/vendor/")[0] + "/vendor/" if "/vendor/" in path else path for path in paths)


def _bold(text: str) -> console.Styled:
    return console.style(text, bold=True)


def _plain(value: Any) -> str:
    """Text of a fact: yes, no, or the first items of a list or names of a table."""
    if isinstance(value, dict):
        value = list(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value[:4])) + (f" and {len(value) - 4} more" if len(value) > 4 else "")
    return repr(value) if isinstance(value, str) and value.strip() != value else str(value)


def as_json(
    build: Build,
    publication: Publication,
    *,
    written: bool,
    identical_to: int | None = None,
    removed_versions: Sequence[int] = (),
) -> str:
    """The result of one build, for ``--json``.

    ``identical_to``: the version of equal content; ``removed_versions``: what ``--keep`` deletes.
    """
    import json

    notes = [*build.notes, *publication.changes.notes]
    document = {
        **summary(publication, written=written),
        **about(build),
        "identical_to": identical_to,
        "removed_versions": list(removed_versions),
        "notes": notes,
    }
    return json.dumps(document, indent=1)


def summary(publication: Publication, *, written: bool) -> dict[str, Any]:
    """The changes of a build, for ``--json``."""
    changes = publication.changes
    return {
        "output": str(publication.output),
        "written": written,
        "changes": {"added": changes.added, "changed": changes.changed, "removed": changes.removed},
        "record": changes.record,
        "edited": changes.edited,
    }


def about(build: Build) -> dict[str, Any]:
    """An endpoint's settings and entry of the manifest, for ``--json``."""
    settings = {
        name: {"value": setting.value, "reason": setting.reason}
        for name, setting in build.settings.explained()
    }
    return {
        "endpoint": build.name,
        "settings": settings,
        **build.entry.to_json(),
        "triton_release_why": build.release_why,
        "notes": build.notes,
    }
