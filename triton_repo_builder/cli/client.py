"""``trb client``: a typed client of an endpoint, and calls to paste."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from triton_repo_builder.base import files, user_file
from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import Choice, FilePath, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, DEFAULT_URL, Place

LANGUAGES = {
    "generate": "curl, one item",
    "curl": "curl",
    "python": "python",
    "javascript": "javascript",
}
"""Kinds of calls, with their headings."""


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The server, and the output to print or write."""

    url: str | None = option(
        None, Text(), Topic.RUNNING, "Ask this server instead of REPO; also the address in the calls."
    )
    output: Path | None = option(
        None, FilePath(folder=False), Topic.OUTPUT, "File for the Python client.", also=("-o",)
    )
    language: str | None = option(
        None, Choice(tuple(LANGUAGES)), Topic.OUTPUT, "Print only this call, without a heading."
    )
    force: bool = option(False, Switch(), Topic.OUTPUT, "Overwrite --output.")
    as_json: bool = option(
        False, Switch(), Topic.OUTPUT, "Print the calls as one JSON object.", flag="--json"
    )


@click.command("client", cls=declared.TopicCommand)
@click.argument("name")
@click.argument("repo", type=Place(), default=DEFAULT_REPOSITORY)
@declared.options(options=ClientOptions)
def command(name: str, repo: Path, options: ClientOptions) -> int:
    """Print how to call the endpoint NAME of REPO (default: model_repository): curl, Python, JavaScript.

    The first call is the shortest: one item, by Triton's generate extension, if it takes these inputs.
    With --output also write a client module: one typed file, standard library only, that also runs by itself.
    Inputs, outputs and the example come from the repository, or with --url from a running server.

    \b
    Examples:
      trb client bert
      trb client bert --output bert_client.py
      trb client bert my_repository --language javascript
      trb client bert --url http://127.0.0.1:8000
    """
    from triton_repo_builder.run.codegen import example, python_client
    from triton_repo_builder.run.serve.loading import load_unload

    output, language = options.output, options.language
    if options.url is not None:
        server = load_unload.find(options.url)
        base, model_example = server.base, example.of_server(server.base, name, server.folder(name))
    else:
        console.recovered(repo, write=False)
        base, model_example = DEFAULT_URL, example.of_repository(repo, name)
    if output is not None:
        _write(output, python_client.typed(model_example, base), force=options.force)
        console.echo(f"wrote {output}", err=options.as_json or language is not None)
        if model_example.obstacle:
            return 0
    calls = python_client.calls(model_example, base)
    if options.as_json:
        console.echo(json.dumps(calls, ensure_ascii=False))
    elif language is not None:
        if language not in calls:
            raise TrbError(
                Code.UNSUPPORTED_TYPE,
                "Triton's generate extension does not take these inputs",
                where=name,
                remedy="use --language curl",
            )
        console.echo(calls[language])
    else:
        for called, text in calls.items():
            console.echo(console.style(f"── {LANGUAGES[called]}", bold=True), f"\n\n{text}\n")
    return 0


def _write(output: Path, text: str, *, force: bool) -> None:
    if output.exists() and not force and files.read(output) != text.encode():
        raise TrbError(Code.EDITED_FILE, "exists with other content", where=str(output), remedy="use --force")
    try:
        user_file.write(output, text.encode())
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept="nothing was written") from error
