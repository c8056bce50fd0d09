"""docs/options.md is what the declarations in ``model/read/options.py`` and the tasks say.

``make golden`` (this file as a program) writes it anew.
"""

from pathlib import Path

import click

from triton_repo_builder.base.declaration import Topic
from triton_repo_builder.base.option_values import INT32, Choice, Number, Text
from triton_repo_builder.cli import declared, group
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.model.read.options import OPTIONS

FILE = Path(__file__).resolve().parents[3] / "docs" / "options.md"
HEAD = """# Options of `trb build`

Written by `make golden` from `triton_repo_builder/model/read/options.py`. A flag overrides trb.toml, that
overrides the default. In trb.toml an option stands in the table `[build]`, under its name without `--`:

    [build]
    model = "exported/bert"
    max-batch-size = 64
    batching = "on"
    label = {{ team = "search" }}

Paths there are relative to the file and, unless `--config` names it, inside its folder.
{flags} are flags only. Options marked ° are rarely needed.
"""


def page() -> str:
    command = group.get_command(click.Context(group), "build")
    assert command is not None
    only = ", ".join(
        f"`{parameter.opts[0]}`"
        for parameter in command.params
        if parameter.name not in OPTIONS and not getattr(parameter, "hidden", False)
    )
    sections = [HEAD.format(flags=only)]
    for topic in Topic:
        rows = [_row(name) for name, declared in OPTIONS.items() if declared.topic is topic]
        if rows:
            head = "| option | | value | default | applies to |\n|---|---|---|---|---|\n"
            sections.append(f"## {topic.value}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(sections)


def _row(name: str) -> str:
    declared = OPTIONS[name]
    command = group.get_command(click.Context(group), "build")
    assert command is not None
    parameter = next(parameter for parameter in command.params if parameter.name == name)
    flags = "<br>".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
    value = declared.metavar or declared.value.expected
    if isinstance(declared.value, Choice):
        value = ", ".join(declared.value.words)
    if type(declared.value) is Number:
        most = "or more" if declared.value.most == INT32 else f"to {declared.value.most}"
        value = f"{declared.value.least} {most}"
    words = declared.value.suggestions if isinstance(declared.value, Text) else ()
    usual = f" One of {', '.join(words)}." if words else ""
    cells = (
        flags + (" °" if declared.rare else ""),
        declared.help + usual,
        value,
        declared.default,
        _applies_to(name),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _applies_to(name: str) -> str:
    if name in tasks.KIND_OPTIONS:
        return ", ".join(f"{kind.value} models" for kind in tasks.KIND_OPTIONS[name])
    return ", ".join(task.NAME for task in tasks.TASKS.values() if name in task.OPTIONS)


def test_the_page_is_what_the_declarations_say() -> None:
    assert FILE.read_text() == page(), "run 'make golden'"


def test_options_that_tasks_and_kinds_name_exist() -> None:
    named = {name for task in tasks.TASKS.values() for name in task.OPTIONS} | tasks.KIND_OPTIONS.keys()
    assert named <= OPTIONS.keys()


def test_every_task_is_offered() -> None:
    value = OPTIONS["task"].value
    assert isinstance(value, Text)
    assert {*value.suggestions} == tasks.TASKS.keys()


def test_every_option_is_in_the_help_once() -> None:
    command = group.get_command(click.Context(group), "build")
    assert isinstance(command, declared.TopicCommand)
    text = command.get_help(click.Context(command, info_name="build"))
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    shown = [topic.value for topic in Topic if any(o.topic is topic and not o.rare for o in OPTIONS.values())]
    assert headings == [*shown, Topic.REPORT.value, declared.RARE]
    starts = [line.split()[:2] for line in text.splitlines() if line.startswith("  -")]
    for parameter in command.params:
        long = parameter.opts[0]
        assert sum(long in words for words in starts) == 1, parameter.name


if __name__ == "__main__":
    FILE.write_text(page())
