"""The prompt that sentence-transformers puts before every text ("query: ").

Its config_sentence_transformers.json lists ``prompts`` by name; ``default_prompt_name`` is the one that
``encode`` uses (https://sbert.net/examples/sentence_transformer/applications/computing-embeddings/README.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.text import cut, some
from triton_repo_builder.endpoint.tasks.task import (
    Encoded,
    Encoding,
    Example,
    TaskPlan,
    rows_of_texts,
)
from triton_repo_builder.model.read.options import BuildOptions, usage
from triton_repo_builder.model.read.source import Source

FILE = "config_sentence_transformers.json"
LONGEST = 100_000
"""Characters of a prompt: it is tokenized and sent with every text."""
NOT_FOUND = f"no {FILE} was found beside the model"
MODEL_FOLDER = "the original with --from-model FOLDER"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The prefix of every text; empty: none."""

    text: str = ""
    notes: tuple[str, ...] = ()
    by_name: Mapping[str, str] = field(default_factory=dict)
    """All prompts of the file, for clients that choose one for each request."""
    pooled: bool = True
    """Whether the prompt's tokens count in the embedding (``include_prompt``)."""

    @property
    def encoding(self) -> Encoding:
        """Parameters of the tokenizer model."""
        return Encoding(parameters=(("prompt", self.text),)) if self.text else Encoding()

    @property
    def facts(self) -> tuple[tuple[str, Any], ...]:
        """Facts for the manifest."""
        text = (("prompt", self.text),) if self.text else ()
        by_name = (("prompts", dict(self.by_name)),) if self.by_name else ()
        some_text = self.text or any(self.by_name.values())
        return (*text, *by_name, *((("include_prompt", False),) if some_text and not self.pooled else ()))

    def encode(self, library: Any, example: Example, limit: int | None) -> list[Encoded]:
        """One row as sentence-transformers makes it: prompt and text are one text."""
        return rows_of_texts(library, {"TEXT": (self.text + example["TEXT"][0],)}, limit)


def read(source: Source, options: BuildOptions) -> Prompt:
    """The prompt by ``--prompt``, else the file's default. Raises ``TrbError``."""
    saved = source.settings(FILE)
    listed = _listed(source, saved)
    option = options.prompt
    _check_length(source, listed, option)
    if option is not None:
        if option in listed:
            return Prompt(text=listed[option], notes=_note(listed[option]), by_name=listed)
        if option.replace("_", "").replace("-", "").isalnum():
            names = (
                f"use one of {some([f'{name:.60}' for name in listed])}"
                if listed
                else f"take {FILE} from {MODEL_FOLDER}"
            )
            raise usage(
                "prompt",
                f"{FILE} lists no prompt '{option}'" if saved else f"'{option}' is a name, and {NOT_FOUND}",
                f"{names}; or give the text, which has a space or a colon: --prompt '{option}: '",
            )
        return Prompt(text=option, notes=_note(option), by_name=listed)
    default = _default(source, saved)
    if default is None:
        named = some([f"{name:.60}" for name, text in listed.items() if text])
        note = f"the prompts {named} of {FILE} are not used: none is the default, --prompt NAME takes one"
        return Prompt(notes=(note,) if named else (), by_name=listed)
    if default not in listed:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"default_prompt_name is '{default:.60}', and prompts has no such entry",
            where=str(source.folder / FILE),
            remedy="correct the file, or give --prompt (--prompt '' for none)",
        )
    return Prompt(text=listed[default], notes=_note(listed[default]), by_name=listed)


def refuse(source: Source, task: str) -> None:
    """``TrbError`` if the files want a prompt that the task would leave out."""
    saved = source.settings(FILE)
    if (name := _default(source, saved)) and _listed(source, saved).get(name):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"prompt '{saved['default_prompt_name']}' is not supported for the task {task}",
            where=str(source.folder / FILE),
            remedy="remove default_prompt_name there, and let clients send it with their texts",
        )


def tokens(source: Source, text: str) -> int:
    """Tokens of a row that are the prompt's, by sentence-transformers' rule: without a special last one."""
    row = source.tokenizer_spec.library.encode(text)
    return len(row.ids) - (row.special_tokens_mask[-1] if row.ids else 0)


def check_room(source: Source, task: TaskPlan, limit: int | None) -> None:
    """``TrbError`` USAGE if the prompt leaves no token of a text within ``limit``."""
    text = dict(task.encoding.parameters).get("prompt", "")
    if text and limit and (used := tokens(source, text)) + 2 > limit:
        raise usage(
            "prompt",
            f"{text[:40]!r} takes {used} of the {limit} tokens of a row: no text is left beside its end",
            "shorten it, or raise --max-length",
        )


def _listed(source: Source, saved: Mapping[str, Any]) -> Mapping[str, str]:
    listed = saved.get("prompts") or {}
    if isinstance(listed, dict) and all(isinstance(text, str | None) for text in listed.values()):
        return {name: text or "" for name, text in listed.items()}
    raise TrbError(
        Code.TASK_UNCLEAR,
        "prompts does not give a text for each name",
        where=str(source.folder / FILE),
        remedy="get the original file again from the model's source",
    )


def _check_length(source: Source, listed: Mapping[str, str], option: str | None) -> None:
    if option is not None and len(option) > LONGEST:
        message = f"is a text of {len(option):,} characters: at most {LONGEST:,} are read"
        raise usage("prompt", message, "shorten it")
    for name, text in listed.items():
        if len(text) > LONGEST:
            raise TrbError(
                Code.TASK_UNCLEAR,
                f"the prompt {cut(name)} has {len(text):,} characters: at most {LONGEST:,} are read",
                where=str(source.folder / FILE),
                remedy="get the original file again from the model's source",
            )


def _default(source: Source, saved: Mapping[str, Any]) -> str | None:
    default = saved.get("default_prompt_name")
    if default is None or isinstance(default, str):
        return default
    raise TrbError(
        Code.TASK_UNCLEAR,
        "default_prompt_name is not a name",
        where=str(source.folder / FILE),
        remedy="correct the file",
    )


def _note(text: str) -> tuple[str, ...]:
    return (f"prompt {cut(text, 1000)} goes before every text",) if text else ()
