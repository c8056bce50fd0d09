"""``trb client``: a typed client of an endpoint, and calls to paste."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base import files, user_file
from triton_repo_builder.base.declaration import Topic, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import Choice, FilePath, Switch, Text
from triton_repo_builder.cli import console, declared
from triton_repo_builder.cli.options import DEFAULT_REPOSITORY, DEFAULT_URL, Place

if TYPE_CHECKING:
    from triton_repo_builder.run.codegen.example import Example

LANGUAGES = ("openai-curl", "openai-python", "openai-javascript", "generate", "curl", "python", "javascript")
"""Kinds of calls; the first three are for the gateway."""
BY_SUFFIX = {
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "javascript",
    ".sh": "curl",
}
"""Languages of files that are not Python."""


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The server, and the output to print or write."""

    url: str | None = option(
        None,
        Text(),
        Topic.RUNNING,
        "Ask this server instead of REPO; also the address in the calls.",
        default=f"a server on this machine that runs REPO, else {DEFAULT_URL}",
    )
    gateway: str | None = option(
        None,
        Text(),
        Topic.RUNNING,
        "Gateway (trb serve --openai, trb gateway), whose calls come first.",
        default="one on this machine with this repository",
        flag="--openai",
        metavar="URL",
    )
    output: Path | None = option(
        None,
        FilePath(folder=False),
        Topic.OUTPUT,
        "File for the Python client, or for the call in --language (default: by the name's end, .js or .sh).",
        also=("-o",),
    )
    language: str | None = option(
        None, Choice(LANGUAGES), Topic.OUTPUT, "Print only this call, without a heading."
    )
    file: Path | None = option(
        None, FilePath(folder=False), Topic.OUTPUT, "Image or sound that the calls send."
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

    Where a gateway runs, its calls come first: those of OpenAI's and Cohere's packages. Then the shortest:
    one item, by Triton's generate extension, if it takes these inputs. The others take a batch.
    With --output write a client module instead: one typed file, standard library only, that splits any
    number of rows into requests, keeps several under way, and also runs by itself.
    Inputs, outputs and the example come from the repository, or with --url from a running server.

    \b
    Examples:
      trb client bert
      trb client bert --output bert_client.py
      trb client bert my_repository --language javascript --output bert.js
      trb client vit --file photo.jpg
      trb client bert --url http://127.0.0.1:8000
      trb client bert --openai http://127.0.0.1:9000 --language openai-python
    """
    from triton_repo_builder.run.codegen import example, python_client, snippets

    base, request = _request(name, repo, options.url)
    if options.file is not None:
        request = example.of_file(request, options.file)
    output, language, quiet = options.output, options.language, options.as_json
    if output is not None:
        written = language or BY_SUFFIX.get(output.suffix.lower(), "python")
        if written == "python":
            text = python_client.typed(request, base)
        else:
            calls = _calls(request, base, repo, options)
            text = python_client.file_of({written: _call(calls, written, name)}, written, name)
        _write(output, text, force=options.force)
        console.echo(f"wrote {output}", err=quiet or language is not None)
        if not quiet or request.obstacle:  # the typed client may take what calls cannot
            if written == "python" and not language and output.stem.isidentifier():
                console.echo(f"\n{python_client.usage(request, output.stem)}", err=quiet)
            return 0
    calls = _calls(request, base, repo, options)
    if quiet:
        console.echo(json.dumps(calls, ensure_ascii=False))
    elif language is not None:
        console.echo(_call(calls, language, name))
    else:
        titles = snippets.titles(request)
        for called, text in calls.items():
            heading = ", ".join(filter(None, (_heading(called), titles.get(called))))
            console.echo(console.style(f"── {heading}", bold=True), f"\n\n{text}\n")
        if optional := request.endpoint.optional:
            console.echo(f"may be given too: {', '.join(sorted(optional))}")
        if request.rows:
            console.echo(
                "any number: --output client.py writes a Python client that splits them into requests"
            )
    return 0


def _request(name: str, repo: Path, url: str | None) -> tuple[str, Example]:
    """The server's address, and the endpoint with an example of a request."""
    from triton_repo_builder.run.codegen import example
    from triton_repo_builder.run.serve.loading import load_unload

    if url is not None:
        server = load_unload.find(url)
        return server.base, example.of_server(server.base, name, server.folder(name))
    console.recovered(repo, write=False)
    return load_unload.address(repo) or DEFAULT_URL, example.of_repository(repo, name)


def _calls(request: Example, base: str, repo: Path, options: ClientOptions) -> dict[str, str]:
    """The calls, the gateway's first."""
    from triton_repo_builder.run.codegen import gateway_calls, python_client
    from triton_repo_builder.run.serve import gateway_process

    url = options.gateway or gateway_process.beside(base)
    if not url and options.url is None:
        url = gateway_process.address(repo)
    gateway = gateway_calls.reached(url) if url else None
    if gateway is None and options.gateway is not None:
        raise TrbError(
            Code.UNREACHABLE,
            "no gateway answers",
            where=options.gateway,
            remedy="start one: trb serve --openai, or trb gateway",
        )
    return {**gateway_calls.calls(request, gateway), **python_client.calls(request, base)}


def _heading(called: str) -> str:
    from triton_repo_builder.run.codegen import gateway_calls

    if called in gateway_calls.LANGUAGES:
        return f"{called.removeprefix('openai-')}, {gateway_calls.TITLE}"
    return "curl" if called == "generate" else called


def _call(calls: Mapping[str, str], language: str, name: str) -> str:
    if language in calls:
        return calls[language]
    if language.startswith("openai-"):
        raise TrbError(
            Code.UNSUPPORTED_TYPE,
            "no gateway runs here, or OpenAI and Cohere have no call for this task",
            where=name,
            remedy="start one (trb serve --openai) or name it with --openai; use --language curl",
        )
    raise TrbError(
        Code.UNSUPPORTED_TYPE,
        "Triton's generate extension does not take these inputs",
        where=name,
        remedy="use --language curl",
    )


def _write(output: Path, text: str, *, force: bool) -> None:
    if output.exists() and not force and files.read(output) != text.encode():
        raise TrbError(Code.EDITED_FILE, "exists with other content", where=str(output), remedy="use --force")
    try:
        user_file.write(output, text.encode())
    except OSError as error:
        raise files.explain(error, output, how="with --output", kept="nothing was written") from error
