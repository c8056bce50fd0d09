"""``trb doctor``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.option_values import FilePath, Names, Number, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, METRICS_PAGE, addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton_repo_builder.measure.doctor.cause import Answer, Cause
    from triton_repo_builder.measure.doctor.doctor import Repaired
    from triton_repo_builder.measure.doctor.expected import Comparison
    from triton_repo_builder.measure.doctor.facts import Facts
    from triton_repo_builder.measure.doctor.variants import Original

LOG = 32 << 20
"""Bytes of a log that are read, its last ones."""
MOST = 8
"""Lines of evidence that are shown; --json has all."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The questions, and further facts."""

    questions: tuple[str, ...] = option(
        (),
        Names(),
        Topic.CHECKS,
        "Answer only this: batching, first-request, shared-memory, gpu, answers, ready or "
        "requests; repeatable.",
        flag="--question",
        metavar="NAME",
        default="all seven, settings that are no fault by themselves left out",
    )
    log: Path | None = option(
        None,
        FilePath(),
        Topic.CHECKS,
        "The server's log or a client's error, whose messages are explained; needs neither REPO nor URL.",
        metavar="FILE",
    )
    expect: Path | None = option(
        None,
        FilePath(),
        Topic.CHECKS,
        "Compare the endpoint at URL with these vectors, and name the usual cause of a difference. A line "
        'for each text: {"text": "…", "vector": [0.1, …]}. Answers only answers if no question is named.',
        metavar="FILE",
    )
    model: Path | None = option(
        None,
        FilePath(),
        Topic.CHECKS,
        "With --expect: the original model, on which poolings, prompts and truncations are tried.",
        metavar="PATH",
    )
    endpoint: str | None = option(
        None,
        Text(),
        Topic.CHECKS,
        "With --expect: the endpoint to ask.",
        default="the only one of texts and vectors",
        metavar="NAME",
    )
    gpus: int | None = option(
        None,
        Number(0),
        Topic.SERVER,
        "GPUs of the machine that serves.",
        default="the server's, if it says so",
    )
    triton_release: str | None = option(
        None,
        Text(),
        Topic.SERVER,
        "Release that serves.",
        default="the server's, else the embedded one's",
        metavar="YY.MM",
    )
    metrics_url: str | None = option(
        None, Text(), Topic.RUNNING, "Metrics page of URL.", default=METRICS_PAGE
    )
    bench: bool = option(
        False,
        Switch(),
        Topic.MEASUREMENT,
        "Send requests: time first ones, compare rows, load endpoints without statistics.",
    )
    output: Path | None = option(
        None,
        FilePath(file=False),
        Topic.OUTPUT,
        "Write a repaired copy of REPO.",
        also=("-o",),
        metavar="DIR",
    )
    as_json: bool = option(False, Switch(), Topic.OUTPUT, "Print the answers as JSON.", flag="--json")


@click.command(name="doctor", short_help="Name causes; repair a copy.", cls=declared.TopicCommand)
@click.argument("places", metavar="[REPO|URL]...", nargs=-1)
@declared.options(options=DoctorOptions)
def command(places: tuple[str, ...], options: DoctorOptions) -> int:
    """Say why a model does not batch, starts slowly, lacks shared memory, leaves the GPU idle, answers
    otherwise, is not ready, or refuses a request.

    From facts only: the files of REPO, the statistics, configuration and metrics of the server at URL, its
    log. Both may be named, or one. What the facts do not tell is said, too. Exit code 1 if a cause was found.

    \b
    Examples:
      trb doctor                                      the files of ./model_repository
      trb doctor /srv/models --question batching
      trb doctor http://localhost:8000                what its statistics and metrics show
      trb doctor /srv/models http://localhost:8000 --bench
      trb doctor /srv/models --log server.log
      trb doctor http://localhost:8000 --expect notebook.jsonl --model exported/minilm
      trb doctor --log error.txt                      a message alone, without files or a server
      trb doctor /srv/models -o repaired              also write a repaired copy
      trb doctor --json | jq '.answers[].causes[] | {model, code, where}'
    """
    from triton_repo_builder.measure.doctor import doctor, messages
    from triton_repo_builder.measure.doctor.cause import QUESTIONS

    folder, url = _places(places, options)
    named = tuple(part.strip() for text in options.questions for part in text.split(",") if part.strip())
    if unknown := [name for name in named if name not in QUESTIONS]:
        raise click.BadParameter(
            f"'{unknown[0]}' is not one of {', '.join(QUESTIONS)}", param_hint="--question"
        )
    if options.output and folder is None:
        raise click.UsageError("-o writes a copy of a repository: name its folder, too.")
    if options.bench and url is None:
        raise click.UsageError("--bench sends requests to a server: name its URL.")
    if options.expect and url is None:
        raise click.UsageError("--expect compares with a server's answers: name its URL.")
    if (options.model or options.endpoint) and not options.expect:
        raise click.UsageError("--model and --endpoint belong to --expect.")
    if options.expect and not named:
        named = ("answers",)
    facts = _facts(folder, url, named, options)
    questions = named or tuple(QUESTIONS)
    log_alone = folder is None and url is None
    answers = doctor.diagnose(facts, questions)
    repaired = doctor.repair(facts, options.output, questions) if options.output else None
    causes = doctor.found(answers)
    if options.as_json:
        import json

        console.echo(json.dumps(_document(answers, repaired), ensure_ascii=False))
    else:
        if log_alone:
            answers = tuple(replace(answer, unknown=()) for answer in answers if answer.causes)
        _print(answers, repaired, files=not log_alone)
        if options.log and not any(messages.explained(facts.log)):
            console.echo(f"no known message in {options.log}")
    return int(bool(causes))


def _places(places: tuple[str, ...], options: DoctorOptions) -> tuple[Path | None, str | None]:
    """The folder and the URL; the default repository if neither is named. A log may come without both."""
    urls = [place for place in places if place.startswith(("http://", "https://"))]
    folders = [place for place in places if place not in urls]
    if len(urls) > 1 or len(folders) > 1:
        raise click.UsageError("name one repository, one URL, or one of each.")
    if not places:
        return None if options.log and not options.output else DEFAULT_REPOSITORY, None
    return Path(folders[0]) if folders else None, urls[0] if urls else None


def _facts(folder: Path | None, url: str | None, named: tuple[str, ...], options: DoctorOptions) -> Facts:
    from triton_repo_builder import repository
    from triton_repo_builder.base import hardware, releases
    from triton_repo_builder.check import backends
    from triton_repo_builder.measure.doctor.facts import Facts

    read = None
    if folder is not None:
        backends.refuse_model(folder)
        console.recovered(folder, write=False, whole=True)
        read = repository.read(folder, lenient=True)
    gpus = options.gpus
    if gpus is None and url is None:
        gpus = len(hardware.here().gpus)
    facts = Facts(
        release=releases.get(options.triton_release) if options.triton_release else releases.default(),
        questions=frozenset(named),
        repository=read,
        log=_log(options.log),
        gpus=gpus,
        gpus_stated=options.gpus is not None,
    )
    if url is None:
        return facts
    from triton_repo_builder.measure.doctor import probe

    with console.status() as progress:
        facts = probe.asked(
            facts,
            addresses(url, None, options.metrics_url, option="URL"),
            measured=options.bench,
            progress=progress,
        )
        return replace(facts, expected=_expected(options, facts, progress)) if options.expect else facts


def _expected(options: DoctorOptions, facts: Facts, progress: Callable[[str], None]) -> Comparison:
    """The endpoint's vectors beside the user's."""
    from triton_repo_builder.measure.doctor import expected

    def original() -> Original:
        from triton_repo_builder.measure.doctor import variants

        assert options.model is not None
        return variants.load(options.model)

    assert options.expect is not None
    assert facts.snapshot is not None
    return expected.compare(
        options.expect,
        facts.snapshot,
        endpoint=options.endpoint or "",
        original=original if options.model else None,
        progress=progress,
    )


def _log(path: Path | None) -> str:
    from triton_repo_builder.base import files

    if path is None:
        return ""
    try:
        with files.opened(path) as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - LOG))
            return stream.read().decode("utf-8", "replace")
    except OSError as error:
        raise files.unreadable(path, error) from None


def _document(answers: tuple[Answer, ...], repaired: Repaired | None) -> dict[str, Any]:
    document: dict[str, Any] = {"answers": [answer.to_json() for answer in answers]}
    if repaired:
        document["repaired"] = {
            "path": str(repaired.path),
            "done": list(repaired.done),
            "left": [cause.to_json() for cause in repaired.left],
        }
    return document


def _print(answers: tuple[Answer, ...], repaired: Repaired | None, *, files: bool) -> None:
    from triton_repo_builder.measure.doctor.cause import QUESTIONS

    shown: set[Cause] = set()
    for answer in answers:
        console.echo(console.style(QUESTIONS[answer.question], bold=True))
        if not answer.causes:
            console.echo("  nothing found")
        for line in answer.measured:
            console.echo(f"  measured: {line}")
        for cause in answer.causes:
            if cause in shown:
                console.echo(f"  {cause.model or cause.where}: [{cause.code}], see above")
                continue
            shown.add(cause)
            _print_cause(cause, files=files)
        for line in answer.unknown:
            console.echo(console.style(f"  not known: {line}", dim=True))
    if repaired:
        console.echo(
            f"repaired copy: {repaired.path}" if repaired.done else f"copy without a change: {repaired.path}"
        )
        for line in repaired.done:
            console.echo(f"  {line}")
        for cause in repaired.left:
            console.echo(f"  left: {cause.where}: {cause.message} [{cause.code}]")


def _print_cause(cause: Cause, *, files: bool) -> None:
    console.echo(f"  {cause.where}: {cause.message} [{cause.code}]")
    for line in cause.evidence[:MOST]:
        console.echo(f"    {line}")
    console.echo(console.style("    fix: ", fg="green"), cause.remedy)
    if files and not cause.repairs:
        console.echo("    no repair of files is written for it")
