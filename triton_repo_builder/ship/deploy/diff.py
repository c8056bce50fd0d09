"""Two versions of an endpoint compared, in words that a client's author understands."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from triton_repo_builder.base.files import DAMAGED
from triton_repo_builder.base.text import counted, some
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.edits import Edit
from triton_repo_builder.repository.interface import Tensor
from triton_repo_builder.ship.deploy.snapshot import Snapshot

BREAKING = "breaking"
"""A client that was right may now be refused or misread the answer."""
ANSWERS = "answers"
"""Old clients get other values for the same requests."""
COMPATIBLE = "compatible"
"""New possibilities; old clients notice nothing."""
OPERATION = "operation"
"""Speed and resources."""
ORIGIN = "origin"
EFFECTS = (BREAKING, ANSWERS, COMPATIBLE, OPERATION, ORIGIN)
_DESCRIBED = ("labels", "padding")
VECTOR = "embedding"
"""The output of endpoints that give one vector for each text or image."""
COMPARABLE = 0.999
"""Cosine of two vectors of one text from which on they may share one index."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that changes."""

    endpoint: str
    effect: str
    about: str
    """inputs, outputs, labels, batching, weights …"""
    text: str

    def to_json(self) -> dict[str, str]:
        """For a program."""
        return asdict(self)


def compare(old: Mapping[str, Snapshot], new: Mapping[str, Snapshot]) -> list[Difference]:
    """Everything that changes from ``old`` to ``new``, what breaks clients first."""
    pairs = [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]
    if len(old) == len(new) == 1 and not {*old} & {*new}:
        pairs = [(next(iter(new)), next(iter(old.values())), next(iter(new.values())))]
    differences = [each for name, before, after in pairs for each in _endpoint(name, before, after)]
    return sorted(differences, key=lambda difference: (difference.endpoint, EFFECTS.index(difference.effect)))


def _endpoint(name: str, old: Snapshot | None, new: Snapshot | None) -> Iterator[Difference]:
    if old is None or new is None:
        effect, text = (COMPATIBLE, "is new") if old is None else (BREAKING, "is gone: requests get 404")
        yield Difference(endpoint=name, effect=effect, about="endpoint", text=text)
        return
    for effect, about, text in _differences(old, new):
        yield Difference(endpoint=name, effect=effect, about=about, text=text)


def _differences(old: Snapshot, new: Snapshot) -> Iterator[tuple[str, str, str]]:
    if old.endpoint.name != new.endpoint.name:
        yield BREAKING, "endpoint", f"is called {new.endpoint.name}, no longer {old.endpoint.name}"
    yield from _inputs(old.endpoint.inputs, new.endpoint.inputs)
    yield from _outputs(old.endpoint.outputs, new.endpoint.outputs)
    yield from _labels(old.facts.get("labels", ()), new.facts.get("labels", ()))
    rows, rows_now = old.endpoint.max_batch_size, new.endpoint.max_batch_size
    if rows != rows_now:
        fewer = rows_now < rows
        text = f"a request may carry {counted(rows_now or 1, 'row')}, before {rows or 1}"
        yield (BREAKING if fewer else COMPATIBLE), "batching", text
    yield from _sources(old, new)
    for key in sorted({*old.facts, *new.facts} - {*_DESCRIBED}):
        before, after = old.facts.get(key), new.facts.get(key)
        if before != after:
            yield ANSWERS, key, f"{_word(before)} → {_word(after)}"
    yield from _vectors(old.cases, new.cases)
    yield from _settings(old, new)
    yield from _origin(old, new)


def _inputs(old: Sequence[Tensor], new: Sequence[Tensor]) -> Iterator[tuple[str, str, str]]:
    before, after = ({port.name: port for port in ports} for ports in (old, new))
    for name in sorted({*before, *after}):
        if name not in after:
            yield BREAKING, "inputs", f"{name} is no longer accepted"
        elif name not in before:
            yield BREAKING, "inputs", f"{name} {after[name]} must now be sent, too"
        elif before[name] != after[name]:
            wider = before[name].datatype == after[name].datatype and _covers(after[name], before[name])
            text = f"{name} is {after[name]}, before {before[name]}"
            yield (COMPATIBLE if wider else BREAKING), "inputs", text


def _covers(wide: Tensor, narrow: Tensor) -> bool:
    """Whether every shape that ``narrow`` takes is one that ``wide`` takes."""
    return len(wide.shape) == len(narrow.shape) and all(
        w in (-1, n) for w, n in zip(wide.shape, narrow.shape, strict=True)
    )


def _outputs(old: Sequence[Tensor], new: Sequence[Tensor]) -> Iterator[tuple[str, str, str]]:
    before, after = ({port.name: port for port in ports} for ports in (old, new))
    for name in sorted({*before, *after}):
        if name not in after:
            yield BREAKING, "outputs", f"{name} is no longer returned"
        elif name not in before:
            yield COMPATIBLE, "outputs", f"{name} {after[name]} is now returned, too"
        elif before[name] != after[name]:
            yield BREAKING, "outputs", f"{name} is {after[name]}, before {before[name]}"


def _labels(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    removed = [label for label in old if label not in new]
    added = [label for label in new if label not in old]
    if removed:
        yield BREAKING, "labels", f"no longer answered: {some(removed, 8)}"
    if added:
        yield BREAKING, "labels", f"new: {some(added, 8)}"
    common = [label for label in new if label in old]
    if common != [label for label in old if label in new]:
        yield BREAKING, "labels", "in another order: the scores' columns mean other labels"


def _sources(old: Snapshot, new: Snapshot) -> Iterator[tuple[str, str, str]]:
    if old.origin.model_sha256 != new.origin.model_sha256:
        shas = f"{old.origin.model_sha256[:12] or 'unknown'} → {new.origin.model_sha256[:12] or 'unknown'}"
        yield ANSWERS, "weights", f"another model ({shas}){_moved(old.cases, new.cases)}"
    before, after = (dict(each.origin.sources[1:]) for each in (old, new))
    for file in sorted({*before, *after}):
        if before.get(file) != after.get(file):
            wording = (
                "another" if file in before and file in after else "no longer" if file in before else "now a"
            )
            yield ANSWERS, "tokenizer" if "token" in file else "weights", f"{wording} {file}"
    for role in sorted({*old.configs} & {*new.configs}):
        values = [each.configs[role].parameters.get("max_length") for each in (old, new)]
        if values[0] != values[1]:
            limits = [value if value not in (None, "0") else "any number of" for value in values]
            yield ANSWERS, "truncation", f"texts are cut off after {limits[1]} tokens, before {limits[0]}"


def _vectors(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Whether vectors that clients have stored may stay beside the new ones, by the recorded answers."""
    try:
        cosines = [each for name in _same(old, new) if (each := _cosine(old[name], new[name])) is not None]
    except DAMAGED:
        return  # trb smoke and trb check report what is wrong with the cases
    if not cosines or min(cosines) > 1 - 1e-6:
        return
    mean, least = sum(cosines) / len(cosines), min(cosines)
    stored = "stay comparable" if least >= COMPARABLE else "are of another kind: an index must be made anew"
    texts = f"of {counted(len(cosines), 'recorded input')}"
    yield (
        ANSWERS,
        "vectors",
        f"old and new {texts} have cosine {mean:.4f}, at least {least:.4f}: stored ones {stored}",
    )


def _cosine(old: Mapping[str, Any], new: Mapping[str, Any]) -> float | None:
    """The cosine of the embeddings of two answers; 0 if their lengths differ; None without one in both."""
    a, b = (
        next((_flat(tensor["data"]) for tensor in case["outputs"] if tensor["name"] == VECTOR), [])
        for case in (old, new)
    )
    lengths = math.hypot(*a) * math.hypot(*b)
    if not lengths or not math.isfinite(lengths):
        return None
    return sum(map(operator.mul, a, b)) / lengths if len(a) == len(b) else 0.0


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of the cases with the same inputs."""
    return [name for name in old if name in new and old[name].get("inputs") == new[name].get("inputs")]


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How far the recorded answers to the same inputs differ."""
    try:
        distances = [
            _distance(old[name].get("outputs", ()), new[name].get("outputs", ())) for name in _same(old, new)
        ]
    except DAMAGED:
        return ""  # trb smoke and trb check report what is wrong with the cases
    measured = [distance for distance in distances if distance is not None]
    if not measured:
        return ""
    return f": answers to {counted(len(measured), 'recorded input')} differ by up to {max(measured):.2g}"


def _distance(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> float | None:
    """Largest absolute difference of the numbers of two answers; None if they cannot be compared."""
    after = {tensor["name"]: _flat(tensor.get("data")) for tensor in new}
    largest = None
    for tensor in old:
        ones, others = _flat(tensor.get("data")), after.get(tensor["name"])
        if not ones or others is None or len(ones) != len(others) or not isinstance(ones[0], int | float):
            continue
        gaps = [
            abs(a - b) for a, b in zip(ones, others, strict=True) if math.isfinite(a) and math.isfinite(b)
        ]
        largest = max([*gaps, largest or 0.0])
    return largest


def _flat(data: Any) -> list[Any]:
    return [leaf for item in data for leaf in _flat(item)] if isinstance(data, list) else [data]


def _settings(old: Snapshot, new: Snapshot) -> Iterator[tuple[str, str, str]]:
    for role in sorted({*old.configs} & {*new.configs}):
        of = f"{role}: " if role else ""
        before, after = old.configs[role], new.configs[role]
        batching, batched = before.dynamic_batching, after.dynamic_batching
        if (batching is None) != (batched is None):
            state = "run one by one" if batched is None else "are joined into batches"
            yield OPERATION, "batching", f"{of}waiting requests {state}"
        elif batching != batched:
            yield OPERATION, "batching", f"{of}{_word(batching)} → {_word(batched)}"
        groups = [_instances(config) for config in (before, after)]
        if groups[0] != groups[1]:
            yield OPERATION, "instances", f"{of}{groups[0]} → {groups[1]}"
        threads = [config.parameters.get("intra_op_thread_count") for config in (before, after)]
        if threads[0] != threads[1]:
            yield OPERATION, "threads", f"{of}{_word(threads[0])} → {_word(threads[1])}"
    if old.release != new.release:
        yield OPERATION, "release", f"built for Triton {_word(new.release)}, before {_word(old.release)}"


def _instances(config: ModelConfig) -> str:
    groups = [f"{group.count or 1} on {group.kind.removeprefix('KIND_')}" for group in config.instance_groups]
    return ", ".join(groups) or "the default"


def _origin(old: Snapshot, new: Snapshot) -> Iterator[tuple[str, str, str]]:
    if old.version != new.version:
        yield ORIGIN, "version", f"{old.version} → {new.version}"
    for about, before, after in (
        ("source run", old.origin.source_run, new.origin.source_run),
        ("data set", old.origin.dataset_id, new.origin.dataset_id),
        ("hub model", old.origin.hub, new.origin.hub),
        ("licence", old.origin.license, new.origin.license),
        ("trb", old.origin.trb_version, new.origin.trb_version),
        *(
            (f"label {k}", dict(old.origin.labels).get(k), dict(new.origin.labels).get(k))
            for k in _keys(old, new)
        ),
    ):
        if before != after:
            yield ORIGIN, about, f"{_word(before)} → {_word(after)}"
    edits, edited = (_edits(each) for each in (old, new))
    for path in sorted({*edits, *edited}):
        if edits.get(path) != edited.get(path):
            yield ORIGIN, "edited", f"{path}: {edited.get(path) or 'no longer, before: ' + str(edits[path])}"


def _edits(snapshot: Snapshot) -> dict[str, Edit]:
    """Accepted hand edits, by paths without the version's number."""
    edits = snapshot.origin.edits.items()
    return {path.replace(f"/{snapshot.version}/", "/"): replace(edit, built="") for path, edit in edits}


def _keys(old: Snapshot, new: Snapshot) -> list[str]:
    return sorted({key for each in (old, new) for key, _ in each.origin.labels})


def _word(value: Any) -> str:
    return "none" if value in (None, "", {}, []) else str(value)
