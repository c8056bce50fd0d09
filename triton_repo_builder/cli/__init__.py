"""The ``trb`` command: turns errors into one message and an exit code, nothing else.

Commands live in one file each and are imported only when they run, so that ``trb --help`` and tab
completion answer at once.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from triton_repo_builder import __version__
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, Exit, TrbError
from triton_repo_builder.cli import console, interrupts, usage_errors

GROUPS = {
    "Build": {
        "inspect": "Show what a model file contains: inputs, outputs, batching, tokenizer, releases.",
        "optimize": "Write a smaller, faster file of a model, if its answers stay what they were.",
        "convert": "Convert PyTorch weights to ONNX, with PyTorch's own answers as proof.",
        "build": "Turn an ONNX model into a Triton model repository.",
        "accept": "Record hand edits, which later builds keep.",
        "remove": "Remove endpoints from a repository.",
        "check": "Lint any Triton model repository, without a server.",
        "doctor": "Say why it does not batch, is slow, idle, not ready, or answers otherwise; repair a copy.",
    },
    "Run": {
        "serve": "Run tritonserver on a repository until it is stopped.",
        "load": "Load models on a running server.",
        "unload": "Unload models of a running server.",
        "client": "Write a typed Python client; print curl, Python and JavaScript calls.",
        "status": "List the servers started with trb serve --detach.",
        "top": "Show live what servers do: requests, latency, queue, failures, texts, labels.",
        "gateway": "Answer OpenAI, Cohere, TEI and Hugging Face clients from a running server.",
        "logs": "Print the output of a server in the background.",
        "stop": "Stop a server in the background.",
        "demo": "Build, serve and test a small real model.",
    },
    "Prove": {
        "smoke": "Prove, through the server, that answers equal the original model's.",
        "bench": "Measure a server: throughput, latency, failures, batching, CPU.",
        "tune": "Search the best setting of an endpoint under a latency objective.",
        "plan": "Compute replicas and cost of a load under a latency objective; simulate fleets.",
        "diff": "Show what changes for a client between two versions.",
        "verify": "Prove that a server runs what a commit, a push or a folder says.",
        "drift": "Compare a server's texts and answers with the reference of the build.",
        "provenance": "Show where a repository, or a running server's models, come from.",
    },
    "Ship": {
        "commit": "Commit a repository to git, with its provenance.",
        "fetch": "Download and verify the weights that a commit left out.",
        "apply": "Make a running server serve what a folder, a URL or a commit says.",
        "promote": "Serve another version, tested before and after.",
        "rollback": "Serve the previous version again.",
        "push": "Upload a repository to a bucket or an OCI registry, atomically.",
        "pull": "Download a pushed repository into a folder, verified.",
        "deploy": "Say in one file how a repository is deployed: deploy.toml.",
        "export": "Write files for other tools: Compose, Swarm, Kubernetes, KServe, SageMaker, Prometheus.",
        "canary": "Let a new version take over step by step; it goes back by itself.",
        "image": "Build a slim Docker image with a tritonserver, from PyPI packages.",
    },
}
COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}


class LazyGroup(click.Group):
    """Imports ``cli/<command>.py`` only for that command; help lines come from COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module and return its ``command``."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"triton_repo_builder.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. A pipe whose reader went away (trb … | head) is not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing any of them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", about) for name, about in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, and suggest the nearest one for an unknown name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            remedy = f"did you mean trb {near[0]}?" if near else ""
            raise usage_errors.Misuse("no such command", where=args[0], remedy=remedy, ctx=ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="trb")
def group() -> None:
    """From an exported ONNX model to a verified NVIDIA Triton deployment.

    \b
    Examples:
      trb build --model exported/bert --batching on    write model_repository/
      trb serve                                        run it on a real tritonserver
      trb smoke                                        prove its answers
      trb demo                                         all of it, on a small real model

    Tab completion: eval "$(_TRB_COMPLETE=bash_source trb)" (or zsh_source, fish_source).
    """


def _folder_exists() -> bool:
    """Whether the current folder still exists."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _fail(error: TrbError, argv: list[str] | None) -> NoReturn:
    """Print a user's error, and exit with its code."""
    console.print_error(error)
    if "--json" in (sys.argv[1:] if argv is None else argv):
        console.print_json_error(error)
    sys.exit(int(error.code.exit))


def main(argv: list[str] | None = None) -> None:
    """Run ``trb`` and exit: a user's error with its own code, a bug with its traceback and 70."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  for as long as we run
    try:
        with interrupts.as_ctrl_c():
            code = group.main(args=argv, prog_name="trb", standalone_mode=False)
    except TrbError as error:
        _fail(error, argv)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 and newer
            console.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        words = [word for word in (sys.argv[1:] if argv is None else argv)[:1] if word in COMMANDS]
        _fail(usage_errors.explained(error, " ".join(("trb", *words))), argv)
    except (click.Abort, KeyboardInterrupt):
        console.echo("interrupted", err=True)
        sys.exit(int(Code.INTERRUPTED.exit))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            # Standard output is a file on a full disk, say; what trb writes itself is reported as such.
            where = f"{error.filename}: " if error.filename else ""
            code = Code.DISK_FULL if files.is_full(error) else Code.OUTPUT_NOT_WRITABLE
            message = f"{where}the output cannot be written: {error.strerror}"
            remedy = "free some space, or correct the disk, then run the same command again"
            console.print_error(TrbError(code, message, remedy=remedy))
            sys.exit(int(code.exit))
        if isinstance(error, FileNotFoundError) and not _folder_exists():
            console.print_error(
                TrbError(
                    Code.NOT_FOUND,
                    "the current folder does not exist any more",
                    remedy="change to another folder",
                )
            )
            sys.exit(int(Code.NOT_FOUND.exit))
        import traceback

        console.echo(traceback.format_exc(), err=True, nl=False)
        console.echo("This is a bug in trb: please report it with the lines above.", err=True)
        sys.exit(int(Exit.BUG))
    sys.exit(code if isinstance(code, int) else 0)
