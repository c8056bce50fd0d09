"""``trb check``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import Choice, FilePath, FilePaths, Names, Number, Switch, Text
from triton_repo_builder.base.text import counted
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, FILLED

if TYPE_CHECKING:
    from triton_repo_builder.base.releases import Release
    from triton_repo_builder.check.finding import Finding
    from triton_repo_builder.check.settings import CheckSettings
    from triton_repo_builder.repository import Repository

FORMATS = ("text", "json", "sarif", "github", "junit")
CONFIG = Path("trb.toml")


@dataclass(frozen=True, kw_only=True)
class TeamOptions:
    """Options that the [check] table of a trb.toml also accepts."""

    triton_release: str | None = option(
        None,
        Text(),
        Topic.SERVER,
        "Check for this release.",
        default="the one that manifest.json states, else the embedded server's",
        metavar="YY.MM",
    )
    select: tuple[str, ...] = option(
        (), Names(), Topic.CHECKS, "Show these findings only: 'onnx-*,config-syntax'.", metavar="CODES"
    )
    ignore: tuple[str, ...] = option((), Names(), Topic.CHECKS, "Leave these findings out.", metavar="CODES")
    policies: tuple[Path, ...] = option(
        (), FilePaths(), Topic.CHECKS, "TOML file of policies; repeatable.", flag="--policy"
    )
    baseline: Path | None = option(
        None, FilePath(), Topic.CHECKS, "Accept the findings of this file.", metavar="FILE"
    )
    modules: tuple[str, ...] = option(
        (),
        Names(),
        Topic.SERVER,
        "Python modules of the image, its requirements.txt, or its name:tag.",
        metavar="NAMES",
    )
    backends: tuple[str, ...] = option(
        (), Names(), Topic.SERVER, "Backends of the image.", default="the stock image's", metavar="NAMES"
    )
    gpus: int | None = option(None, Number(0), Topic.SERVER, "GPUs of the machine that serves.")
    config: Path | None = option(
        None, FilePath(), Topic.CHECKS, "The [check] table of this file.", default="trb.toml", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of one run."""

    since: str | None = option(
        None, Text(), Topic.CHECKS, "Only models that differ from this git revision.", metavar="REVISION"
    )
    live: str | None = option(
        None, Text(), Topic.CHECKS, "Compare with the server that runs there, too.", metavar="URL"
    )
    strict: bool = option(False, Switch(), Topic.CHECKS, "Exit 1 on warnings as well.")
    allow_empty: bool = option(False, Switch(), Topic.CHECKS, "A repository without models is no error.")
    fix: bool = option(False, Switch(), Topic.OUTPUT, "Show corrections that have one safe form, as a diff.")
    write: bool = option(False, Switch(), Topic.OUTPUT, "Of --fix: write them, too.")
    write_baseline: Path | None = option(
        None, FilePath(), Topic.OUTPUT, "Write the findings to it; exit 0.", metavar="FILE"
    )
    explain: str | None = option(
        None, Text(), Topic.OUTPUT, "Print what a finding means, with examples.", metavar="CODE"
    )
    format: str = option("text", Choice(FORMATS), Topic.OUTPUT, "")
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the findings as a JSON list.", flag="--json")


@click.command(name="check", short_help="Lint any Triton model repository.", cls=declared.TopicCommand)
@click.argument("repos", metavar="[REPO]...", type=FILLED, nargs=-1)
@declared.options(team=TeamOptions, options=CheckOptions)
def command(repos: tuple[str, ...], team: TeamOptions, options: CheckOptions) -> int:
    """Lint Triton model repositories, made by trb or by hand; needs no server.

    Reads every config.pbtxt, the graphs, the Python sources and the manifest, and reports everything that
    the server would refuse, with its own message and a fix. REPO is a folder (by default model_repository) or
    a URL such as s3://bucket/models. Exits 1 on errors. All findings: docs/checks.md.

    \b
    Examples:
      trb check
      trb check /srv/models --triton-release 25.03 --strict
      trb check --since origin/main --format github
      trb check --baseline known.json --policy policies.toml
      trb check --fix
      trb check --explain ensemble-shape
      trb check --live http://localhost:8000
      trb check --json | jq '.[] | select(.severity == "error")'
    """
    import gc

    from triton_repo_builder import check
    from triton_repo_builder.base import files, releases
    from triton_repo_builder.check import baseline
    from triton_repo_builder.check.finding import below
    from triton_repo_builder.check.formats import FORMATS as RENDERERS
    from triton_repo_builder.check.result import Report

    # What is read stays until the end: looking for garbage in it took a third of the time.
    gc.set_threshold(100_000)
    if options.explain:
        from triton_repo_builder.check import explain as pages

        console.echo(pages.page(options.explain).rstrip("\n"))
        return 0
    _refuse(repos, options)
    settings = _settings(team)
    name = team.triton_release or settings.release
    stated = releases.get(name) if name and name != releases.AUTO else None
    with contextlib.ExitStack() as stack:
        reported: list[Finding] = []
        texts: dict[str, str] = {}
        models, accepted = 0, 0
        entries = baseline.read(settings.baseline) if settings.baseline else None
        kept: list[Finding] = []
        for place in repos or (str(DEFAULT_REPOSITORY),):
            read = stack.enter_context(_opened(place))
            release = stated or check.built_for(read) or releases.default()
            only = _changed(read, options.since)
            findings = check.check(read, release, image=settings.image, policies=settings.policies, only=only)
            findings += _empty(read, allow_empty=options.allow_empty or only is not None)
            findings += _live(read, options.live)
            findings = settings.selection.of(findings, read)
            models += sum(only is None or model.name in only for model in read.models)
            folder = f"{_spelt(place)}/" if len(repos) > 1 else ""
            kept += [finding.relative_to(read.path, folder) for finding in findings]
            if entries is not None:
                fresh = baseline.new(findings, entries, read.path, folder)
                accepted += len(findings) - len(fresh)
                findings = fresh
            base = f"{place.rstrip('/')}/" if "://" in place else below(read.path)
            findings = [finding.relative_to(read.path, base) for finding in findings]
            texts |= {base + path.removeprefix(below(read.path)): text for path, text in _texts(read).items()}
            if options.fix:
                _fix(read, settings, release, only, write=options.write)
            reported += findings
    if options.write_baseline:
        files.write(options.write_baseline, baseline.render(kept).encode())
        console.echo(f"{counted(len(kept), 'finding')} accepted in {options.write_baseline}")
        return 0
    report = Report(findings=tuple(reported), models=models, accepted=accepted, texts=texts, colour=_colour())
    if not options.fix:
        _echo(RENDERERS["json" if options.as_json else options.format](report))
    return int(any(options.strict or finding.severity == "error" for finding in reported))


def _spelt(place: str) -> str:
    """Name of a repository in a baseline: equal for all spellings from the same folder."""
    return place.rstrip("/") if "://" in place else os.path.normpath(place)


def _refuse(repos: tuple[str, ...], options: CheckOptions) -> None:
    """Refuse ``--write`` without ``--fix`` or for a URL, and an invalid ``--live``."""
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.cli.options import addresses

    if options.live is not None:
        addresses(options.live, option="--live")

    if options.write and not options.fix:
        raise TrbError(Code.USAGE, "--write writes the corrections of --fix", remedy="add --fix")
    if remote := next((place for place in repos if options.write and "://" in place), None):
        raise TrbError(
            Code.USAGE,
            "--fix --write changes files of this machine only",
            where=remote,
            remedy="correct the repository that was pushed, then push it again",
        )


def _settings(team: TeamOptions) -> CheckSettings:
    """Settings of trb.toml, overridden by the flags; ignored codes add up."""
    from triton_repo_builder.check import settings

    file = team.config or (CONFIG if CONFIG.exists() else None)
    read = settings.read(file, named=team.config is not None)
    flags = settings.select(_split(team.select) or read.selection.select, _split(team.ignore))
    image = settings.image(_split(team.backends), _split(team.modules), team.gpus)
    rules = (*read.policies, *settings.read_policies(team.policies))
    settings.check_selected(flags.select, rules)
    return replace(
        read,
        selection=replace(
            read.selection, select=flags.select, ignore=(*read.selection.ignore, *flags.ignore)
        ),
        image=replace(
            read.image,
            backends=image.backends or read.image.backends,
            modules=image.modules or read.image.modules,
            gpus=read.image.gpus if team.gpus is None else team.gpus,
        ),
        baseline=team.baseline or read.baseline,
        policies=rules,
    )


def _split(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Names of an option that may be repeated, each time with several names."""
    return tuple(part.strip() for names in texts for part in names.split(",") if part.strip())


@contextlib.contextmanager
def _opened(place: str) -> Iterator[Repository]:
    """The repository in a folder, or in a store for the duration of the check."""
    from triton_repo_builder import repository
    from triton_repo_builder.check import backends

    if "://" not in place:
        backends.refuse_model(Path(place))
        console.recovered(Path(place), write=False, whole=True)
        yield repository.read(Path(place), lenient=True)
        return
    from triton_repo_builder.ship import stores
    from triton_repo_builder.ship.stores import open as stores_open

    with (
        console.progress("bytes") as progress,
        stores_open.copied(stores.parse(place), progress) as copied,
    ):
        yield repository.read(copied, lenient=True)


def _changed(read: Repository, since: str | None) -> set[str] | None:
    if since is None:
        return None
    from triton_repo_builder.ship.vcs import changed

    return changed.entries(read, since)


def _empty(read: Repository, *, allow_empty: bool) -> list[Finding]:
    from triton_repo_builder.check.context import report

    if read.models or allow_empty:
        return []
    return [
        report("repository-empty", str(read.path), "no model is in this repository").found_in(read.path, ())
    ]


def _live(read: Repository, url: str | None) -> list[Finding]:
    if url is None:
        return []
    from triton_repo_builder.ship.deploy import live_check

    return live_check.check(read, url)


def _texts(read: Repository) -> dict[str, str]:
    from triton_repo_builder.repository import CONFIG

    return {str(model.path / CONFIG): model.text for model in read.models if model.text is not None}


def _fix(
    read: Repository, settings: CheckSettings, release: Release, only: set[str] | None, *, write: bool
) -> None:
    """Print the corrections; write them with ``write``."""
    from triton_repo_builder import check
    from triton_repo_builder.check import fixes

    texts = {path: fixes.exact(path) for path in _texts(read)}

    def judged(changed: Mapping[str, str]) -> list[Finding]:
        return check.check(read.with_texts(changed), release, image=settings.image, only=only)

    changed = fixes.correct(texts, judged, lambda findings: settings.selection.of(findings, read))
    for path, text in changed.items():
        shown = fixes.diff(path, texts[path], text)
        if sys.stdout.isatty():
            _echo(shown.rstrip("\n"))
        else:  # a patch, to the byte
            console.patch(shown.encode("utf-8", "surrogateescape"))
    if write:
        fixes.write(changed)
    action = "corrected" if write else "would change; write them with --fix --write"
    console.echo(f"{read.path}: {counted(len(changed), 'file')} {action}", err=True)
    if left := len(settings.selection.of(judged({**texts, **changed}), read)):
        rest = f"{counted(left, 'finding')} without a safe correction: see 'trb check' and 'trb doctor'"
        console.echo(f"{read.path}: {rest}", err=True)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _echo(text: str) -> None:
    """Print a report, with ``printable`` names and our own colours."""
    console.echo(console.Styled(text.encode("utf-8", "backslashreplace").decode("utf-8")))
