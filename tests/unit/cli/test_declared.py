"""click's flags of declared options: the objects that a command gets, and the flags that give them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from triton_repo_builder import cli
from triton_repo_builder.base.declaration import Topic, declare, declared, nested, option
from triton_repo_builder.base.option_values import (
    Choice,
    FilePath,
    Names,
    Number,
    Numbers,
    Off,
    Seconds,
    Switch,
    Text,
    Words,
)
from triton_repo_builder.cli.declared import TopicCommand, arguments, is_default, options
from triton_repo_builder.cli.engines import EngineOptions
from triton_repo_builder.cli.following import RevisionOptions
from triton_repo_builder.cli.serve import ProcessOptions
from triton_repo_builder.cli.serve_openai import OpenAIOptions
from triton_repo_builder.run.gateway.options import GatewayOptions, ShadowOptions
from triton_repo_builder.run.options import ContainerOptions, ServeOptions


@dataclass(frozen=True, kw_only=True)
class Inner:
    words: tuple[str, ...] = option((), Words(), Topic.LOAD, "Words.", flag="--say")


@dataclass(frozen=True, kw_only=True)
class Sample:
    size: int = field(metadata=declare(Number(0, 9), Topic.LOAD, "Size."))
    way: str = option("on", Choice(("on", "off")), Topic.LOAD, "Way.")
    names: tuple[str, ...] = option((), Names(), Topic.LOAD, "Name.", flag="--name")
    counts: tuple[int, ...] = option((1, 4), Numbers(int), Topic.LOAD, "Counts.")
    time: float = option(2.0, Seconds(), Topic.LOAD, "Time.", default="2s")
    cases: bool = option(True, Off(), Topic.CHECKS, "No cases.", flag="--no-cases")
    verbose: bool = option(False, Switch(), Topic.OUTPUT, "Verbose.", also=("-v",))
    inner: Inner = nested(Inner)
    derived: int = 0

    def checked(self) -> Sample:
        if self.way == "off" and self.verbose:
            raise click.UsageError("--way off says nothing.")
        return self


def parsed(cls: type[Any], *argv: str) -> Any:
    results = []

    @click.command(cls=TopicCommand)
    @click.argument("place", default="")
    @options(sample=cls)
    def command(place: str, sample: Any) -> None:
        results.append(sample)

    done = CliRunner().invoke(command, argv, standalone_mode=False)
    if done.exception:
        raise done.exception
    return results[0] if results else done.output


def test_a_command_gets_an_object_with_the_defaults_of_its_fields() -> None:
    assert parsed(Sample, "--size", "3") == Sample(size=3)
    flags = ("--size=3", "--way=off", "--name=a", "--name=b,c", "--counts=4,2", "--time=1m", "--no-cases")
    assert parsed(Sample, *flags, "--say", "x,y") == Sample(
        size=3,
        way="off",
        names=("a", "b,c"),
        counts=(4, 2),
        time=60.0,
        cases=False,
        inner=Inner(words=("x", "y")),
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "Missing option '--size'"),
        (("--size=10",), "not in the range"),
        (("--size=1", "--time=2w"), "'2w' is not a time like 2s, 500ms or 6h"),
        (("--size=1", "--way=off", "-v"), "says nothing"),
    ],
)
def test_values_out_of_range_and_contradictions_are_refused(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parsed(Sample, *argv)
    assert message in caught.value.format_message()


def test_help_has_a_section_for_each_topic_and_no_row_for_arguments() -> None:
    output = parsed(Sample, "--help")
    headings = [line for line in output.splitlines() if line.endswith(":") and line[0] not in " U"]
    assert headings == [f"{topic.value}:" for topic in (Topic.LOAD, Topic.CHECKS, Topic.OUTPUT)]
    assert "[default: on]" in output
    assert output.count("2s]") == 1
    assert "[PLACE]" not in output.split("\n", 1)[1]


def test_is_default_tells_a_default_from_the_same_value_on_the_command_line() -> None:
    seen = []

    @click.command()
    @options(sample=Inner)
    def command(sample: Inner) -> None:
        seen.append(is_default("say"))

    for argv in ((), ("--say", "")):
        CliRunner().invoke(command, argv)
    assert seen == [True, False]


CHANGED = (
    EngineOptions(name="docker", host="0.0.0.0", container=ContainerOptions(image="a:1", user="image")),
    ServeOptions(http_port=0, models=("a", "b"), verbose=True, load_timeout=9.5, log_file=Path("/logs/log")),
    RevisionOptions(verify=True, public_keys=Path("/keys"), follow=True, interval=7.0),
    ProcessOptions(restarts=0, admin_key=Path("/key")),
    OpenAIOptions(on=True, port=0, gateway=GatewayOptions(page=False, shadow=ShadowOptions(target="2"))),
    OpenAIOptions(gateway=GatewayOptions(trace="http://a:4318/v1/traces", trace_rate=0, log_format="json")),
)


@pytest.mark.parametrize("changed", CHANGED)
def test_the_flags_of_a_server_in_the_background_give_the_same_options(changed: Any) -> None:
    assert [*arguments(type(changed)())] == []
    assert parsed(type(changed), *arguments(changed)) == changed


def test_paths_in_flags_are_absolute() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Place:
        place: Path | None = option(None, FilePath(), Topic.OUTPUT, "Place.")
        text: str = option("", Text(), Topic.OUTPUT, "Text.")

    assert [*arguments(Place(place=Path("a"), text="b"))] == [f"--place={Path('a').absolute()}", "--text=b"]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_command_takes_more_than_six_parameters(name: str) -> None:
    command = cli.group.get_command(click.Context(cli.group), name)
    assert command is not None
    for each in [command, *getattr(command, "commands", {}).values()]:
        function = getattr(each.callback, "__wrapped__", each.callback)
        assert function.__code__.co_argcount <= 6, each.name


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_flag_of_a_command_means_two_things(name: str) -> None:
    command = cli.group.get_command(click.Context(cli.group), name)
    assert command is not None
    flags = [flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)]
    assert sorted(flags) == sorted({*flags})


def test_every_declared_option_has_a_flag_of_its_own() -> None:
    flags = [flag for flag, _, _ in declared(Sample)]
    assert flags == ["--size", "--way", "--name", "--counts", "--time", "--no-cases", "--verbose", "--say"]
