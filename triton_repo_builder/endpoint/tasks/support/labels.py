"""Labels and activation of a classifier, by config.json and the rules of transformers' pipelines."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.support import head_output
from triton_repo_builder.endpoint.tasks.task import probabilities
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source

FILE = "labels.txt"
TURNED = (
    "config.json has no id2label: the labels are those of its label2id (transformers does not "
    "read it, and calls them LABEL_0 and so on)"
)


def read(source: Source, logits: TensorSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(labels, notes): the names of the last axis of ``logits``. Raises ``TrbError`` TASK_UNCLEAR."""
    names = named(source)
    last = logits.dims[-1]
    width = last if last > 0 else len(names)
    if not width:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"no file says how many labels output '{logits.name}' has",
            where=str(source.path),
            remedy="name them with --labels FILE, or put config.json with its id2label beside the model",
        )
    if names and len(names) != width:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"config.json names {len(names)} labels, output '{logits.name}' has {width}",
            where=str(source.path),
            remedy="use the config.json that belongs to this model, or name the labels with --labels FILE",
        )
    if names:
        return names, () if source.config.get("id2label") else (TURNED,)
    if width in head_output.vocabularies(source):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"output '{logits.name}' has {width:,} scores, one for each token of the vocabulary, and no file "
            "names so many labels",
            where=str(source.path),
            remedy="use --task fill-mask, or name them with --labels FILE or in config.json (id2label)",
        )
    called = "LABEL_0" if width == 1 else f"LABEL_0 to LABEL_{width - 1}"
    example = ", ".join(f'"{number}": "NAME"' for number in range(min(width, 2)))
    return (
        tuple(f"LABEL_{number}" for number in range(width)),
        (
            f"no labels found in config.json: they are called {called}. Name them with --labels FILE (one a "
            f'line), or in the config.json beside the model: "id2label": {{{example}{", …" * (width > 2)}}}',
        ),
    )


def named(source: Source) -> tuple[str, ...]:
    """id2label sorted by number, not by spelling ("10" comes after "9")."""
    named = head_output.id2label(source.config) or {}
    try:
        numbers = {int(key): str(name) for key, name in named.items()}
    except (AttributeError, ValueError):
        numbers = {-1: ""}
    if sorted(numbers) != list(range(len(named))):
        raise TrbError(
            Code.TASK_UNCLEAR,
            "id2label in config.json does not name every label by its number",
            where=str(source.path.parent / "config.json"),
            remedy=f'its keys must be "0", "1" and so on; they are: {", ".join(map(str, named))}',
        )
    # One line each in labels.txt, and valid UTF-8: JSON may hold half of a surrogate pair.
    lines = (" ".join(numbers[number].splitlines()) for number in range(len(named)))
    return tuple(line.encode("utf-8", "replace").decode() for line in lines)


def activation(source: Source, output: str, width: int) -> tuple[str, str]:
    """The activation that makes scores of the output, and a note if the graph itself applies one already."""
    if note := probabilities(source.signature, output):
        return "none", note
    problem = source.config.get("problem_type")
    if problem == "regression":
        return "none", ""
    return ("sigmoid" if problem == "multi_label_classification" or width == 1 else "softmax"), ""
