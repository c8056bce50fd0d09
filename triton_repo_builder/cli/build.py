"""``trb build``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.cli import build_report, console, declared
from triton_repo_builder.cli.build_options import NEXT, RunOptions, build_options

if TYPE_CHECKING:
    from triton_repo_builder.produce.build import Build
    from triton_repo_builder.produce.write.publish import Publication


@click.command("build", cls=declared.TopicCommand)
@build_options
@declared.options(run=RunOptions)
def command(run: RunOptions, **flags: Any) -> int:
    """Turn an ONNX model into a Triton model repository.

    With --all every model below a folder: its endpoint is named by its path there, a trb.toml in its folder
    holds options of its own, equal tokenizers are stored once. A model that fails does not stop the others.

    \b
    Examples:
      trb build --model bert.onnx --batching on
      trb build --model exported/minilm --name minilm --max-batch-size 64
      trb build --model intfloat/multilingual-e5-small
      trb build --model my-finetuned-bert --convert
      trb build --model resnet.onnx --task tensor --instances 4
      trb build --model bert.onnx --device gpu --explain
      trb build --config trb.toml --diff
      trb build --all exported --output model_repository
    """
    from triton_repo_builder.model.read import trb_toml
    from triton_repo_builder.model.read.options import usage

    if run.config is None and (default := Path("trb.toml")).exists():
        run = replace(run, config=default)
        whose = "the trb.toml of this folder, which --config did not name,"
        trb_toml.refuse_reach(
            trb_toml.read_toml(default), Path(), whose, "if you trust it: --config trb.toml"
        )
    if run.folder is not None:
        from triton_repo_builder.cli import build_all

        if run.convert:
            raise usage("convert", "does not apply to --all", "run trb convert on each model first")
        if run.explain:
            raise usage("explain", "does not apply to --all", "use --json, which has every setting")
        if flags["precision"] not in (None, "keep"):
            remedy = "run trb optimize on a model, and build the folder that it writes"
            raise usage("precision", "does not apply to --all", remedy)
        if run.keep or flags["version"] == NEXT:
            name = "keep" if run.keep else "version"
            raise usage(name, "does not apply to --all", "build that model by itself")
        return build_all.run(run.folder, flags, run)
    if run.fail_fast:
        raise usage("fail_fast", "applies only to --all", "leave it out")
    return _build_one(flags, run)


def _build_one(flags: dict[str, Any], run: RunOptions) -> int:
    from contextlib import ExitStack, nullcontext
    from tempfile import TemporaryDirectory

    from triton_repo_builder.cli import hub, release
    from triton_repo_builder.model.read import source, trb_toml
    from triton_repo_builder.model.read.options import KEEP
    from triton_repo_builder.produce import build, keep_edits
    from triton_repo_builder.produce.write import publish, versions
    from triton_repo_builder.repository.journal import turn

    add = flags["version"] == NEXT
    if (
        run.keep
        and flags["version"] is None
        and not (run.config and "version" in trb_toml.read_toml(run.config))
    ):
        raise click.UsageError("--keep goes with --version next (or --version N).")
    options = trb_toml.merge({**flags, "version": None if add else flags["version"]}, run.config)
    output = options.output
    console.recovered(output, write=run.writes, whole=True)
    options = release.resolved(options)
    convert_notes: tuple[str, ...] = ()
    if run.convert:
        from triton_repo_builder.cli import convert

        options, convert_notes = convert.for_build(options)
    options, origin_notes = hub.fetched(options)
    name = options.name or (
        source.default_name(source.model_file(options.model, options.file)) if add else ""
    )
    with ExitStack() as stack, console.status() as progress:
        notes = (*convert_notes, *origin_notes)
        if options.precision != KEEP:
            from triton_repo_builder.measure.optimize import precision

            folder = Path(stack.enter_context(TemporaryDirectory(prefix="trb-precision-")))
            options, precision_notes = precision.applied(options, folder, progress)
            notes += precision_notes
        while True:
            if add:
                options = replace(options, version=versions.following(output, name))
            built = build.build(options, progress)
            progress("comparing with the repository")
            with turn.at_output(output, console.line, how=publish.HOW) if run.writes else nullcontext():
                if run.writes:
                    console.recovered(output, whole=True)
                    if add and versions.following(output, name) != built.version:
                        console.line(
                            f"version {built.version} was added by another trb: building the next one"
                        )
                        continue
                built = replace(built, notes=(*notes, *built.notes))
                built = keep_edits.keep(built, output, force=run.force)
                built, publication, same = _compared(built, output, run, serve=not add)
                if run.writes and same is None:
                    progress("writing")
                    publish.publish(publication)
                removed: tuple[int, ...] = ()
                if run.keep and same is None:
                    built, publication, removed = _pruned(built, publication, run.keep, write=run.writes)
            break
    if run.as_json:
        report = build_report.as_json(
            built, publication, written=run.writes, identical_to=same, removed_versions=removed
        )
        console.echo(report)
    elif run.diff:
        shown = publish.diff(publication)
        console.echo(shown or "no change", nl=not shown)
    else:
        build_report.print_build(built, publication, written=run.writes)
    if run.explain and not run.as_json:
        build_report.print_settings(built)
    return 0


def _compared(
    built: Build, output: Path, run: RunOptions, *, serve: bool
) -> tuple[Build, Publication, int | None]:
    """The publication to write, and the existing version of equal content, if any."""
    from triton_repo_builder.produce.write import identical, publish, versions

    same = None if run.writes and run.force else identical.twin(built, output)
    if same is not None:
        return _as_it_is(built, output, same), publish.nothing(output), same
    built = versions.place(built, output, serve=serve, force=run.force)
    return built, publish.prepare(built, output, force=run.overwrites), None


def _as_it_is(built: Build, output: Path, version: int) -> Build:
    """The existing endpoint, with a note that the build adds nothing."""

    from triton_repo_builder.produce.write import versions
    from triton_repo_builder.repository import manifest

    recorded = manifest.read(output)
    assert recorded is not None
    entry = recorded.endpoints[built.name]
    serve = f"; '{versions.promotion(built.name, version, output)}' serves it"
    note = (
        f"version {version} of '{built.name}' has the same content: no version was added (--force adds one)"
        f"{serve if version != entry.served.version else ''}"
    )
    return replace(built, version=version, entry=entry, notes=(*built.notes, note))


def _pruned(
    built: Build, publication: Publication, keep: int, *, write: bool
) -> tuple[Build, Publication, tuple[int, ...]]:
    """Remove older versions, or only list them: the result of both steps, and the versions.

    With ``write`` the build itself is already written, and the error of a failure says so.
    """
    import json

    from triton_repo_builder.base.errors import TrbError
    from triton_repo_builder.produce.write import prune
    from triton_repo_builder.repository import Manifest

    name, output = built.name, publication.output
    recorded = None if write else Manifest.of_json(json.loads(publication.manifest))
    try:
        pruning = prune.plan(output, (name,), keep, recorded=recorded, built=built.version)
        if write:
            prune.write(pruning)
    except TrbError as error:
        if write:
            reason = error.message.removesuffix("; the repository is unchanged")
            error.message = (
                f"version {built.version} is built, but no older one was removed (--keep): {reason}"
            )
        raise
    verb = "removed" if write else "would remove"
    notes = [f"{verb} version {version} (--keep)" for version in pruning.removed[name]]
    notes += [f"{file} was edited: its version is kept (--keep)" for file in pruning.edited]
    built = replace(built, entry=pruning.manifest.endpoints[name], notes=(*built.notes, *notes))
    return built, prune.with_build(publication, pruning), pruning.removed[name]
