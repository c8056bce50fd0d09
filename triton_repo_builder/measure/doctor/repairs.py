"""Repairs: edits of config.pbtxt that keep every other byte, corrected graphs, lost directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.measure.doctor.cause import Repair
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.repository import CONFIG, Model
from triton_repo_builder.repository.config import ModelConfig, TensorConfig
from triton_repo_builder.repository.pbtxt_document import Document

DEFAULT_ROWS = 8
"""``max_batch_size`` of a model that can batch and states none."""
OPEN = 8
"""Size of an open axis in a warm-up sample."""
WARMUP = "doctor"
"""Name of a warm-up sample that a repair writes."""
TextEdit = Callable[[str], str]


def config(model: str, about: str, *edits: TextEdit) -> Repair:
    """Edits of a model's config.pbtxt, one after the other."""

    def apply(root: Path) -> bool:
        file = root / model / CONFIG
        old = files.read(file).decode("utf-8", "surrogateescape") if file.is_file() else ""
        new = old
        for edit in edits:
            new = edit(new)
        if new != old:
            files.write(file, new.encode("utf-8", "surrogateescape"))
        return new != old

    return Repair(about=f"{model}/{CONFIG}: {about}", apply=apply)


def graph(context: ModelContext, about: str, change: Callable[[Path], bytes | None]) -> Repair:
    """A model's ONNX file, changed by ``change``, which gives None if that is not safe."""

    def apply(root: Path) -> bool:
        changed = False
        for file in _files(context):
            copy = root / file.relative_to(context.repo.repository.path)
            try:
                content = change(copy)
            except TrbError:
                continue
            if content is not None:
                files.write(copy, content)
                changed = True
        return changed

    names = ", ".join(str(file.relative_to(context.repo.repository.path)) for file in _files(context))
    return Repair(about=f"{names}: {about}", apply=apply)


def move(model: str, old: str, new: str) -> Repair:
    """A file of a model at the place where the server looks."""

    def apply(root: Path) -> bool:
        source, target = root / model / old, root / model / new
        if not source.is_file() or target.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write(target, files.read(source))
        return True

    return Repair(about=f"{model}/{new}: copied from {old}", apply=apply)


def version(model: Model) -> Repair:
    """A version directory with a file in it, which git and object stores keep."""

    def apply(root: Path) -> bool:
        file = root / model.name / "1" / ".gitkeep"
        if file.exists():
            return False
        file.parent.mkdir(exist_ok=True)
        files.write(file, b"")
        return True

    return Repair(
        about=f"{model.name}/1/.gitkeep: written, so that the version directory is kept", apply=apply
    )


# --- edits of a text


def without(field: str) -> TextEdit:
    """Remove a field at the top."""

    def edit(text: str) -> str:
        document = Document(text)
        spans = document.statements(field)
        return document.edited((start, document.line_end(end), "") for start, end in spans)

    return edit


def put(field: str, statement: str) -> TextEdit:
    """Replace a field at the top, or add it at the end."""

    def edit(text: str) -> str:
        document = Document(text)
        spans = document.statements(field)
        if not spans:
            return f"{text.rstrip()}\n{statement}\n" if text.strip() else f"{statement}\n"
        (first_start, first_end), *rest = spans
        edits = [(first_start, first_end, statement)]
        return document.edited([*edits, *((start, document.line_end(end), "") for start, end in rest)])

    return edit


def without_inner(outer: str, inner: str) -> TextEdit:
    """Remove a field of a message at the top."""

    def edit(text: str) -> str:
        document = Document(text)
        spans = {item.statement for item in document.fields.each(outer, inner)}
        return document.edited((start, document.line_end(end), "") for start, end in spans)

    return edit


def flag(outer: str, name: str, statement: str) -> TextEdit:
    """Add a statement to the ``outer`` message of that name, such as an input."""

    def edit(text: str) -> str:
        document = Document(text)
        places = [
            item.fields[-1].statement[1]
            for item in document.fields.each(outer)
            if any(each.value == name for each in item.fields.each("name"))
        ]
        return document.edited((place, place, f" {statement}") for place in places)

    return edit


def parameter(outer: tuple[str, ...], key: str, value: str) -> TextEdit:
    """Set the value of a ``parameters { key value }`` entry of a nested message."""

    def edit(text: str) -> str:
        document = Document(text)
        edits = []
        for item in document.fields.each(*outer, "parameters"):
            if item.key == key:
                edits += [(each.value_start, each.end, f'"{value}"') for each in item.fields.each("value")]
        if edits:
            return document.edited(edits)
        for item in document.fields.each(*outer):
            return document.edited(
                [(item.end - 1, item.end - 1, f' parameters {{ key: "{key}" value: "{value}" }} ')]
            )
        return text

    return edit


# --- statements


def instances(count: int, kind: str = "KIND_CPU") -> str:
    """``instance_group`` with so many instances."""
    return f"instance_group [ {{ count: {count} kind: {kind} }} ]"


def tensors(signature: ModelSignature, stated: ModelConfig, rows: int) -> tuple[TextEdit, ...]:
    """Inputs and outputs as the graph has them; labels of outputs that keep their name stay."""
    labels = {tensor.name: tensor.label_filename for tensor in stated.outputs if tensor.label_filename}
    names = [tensor.name for tensor in stated.outputs]
    same = [spec for spec in signature.outputs if spec.name in names]
    outputs = same if same and len(same) == len(names) else list(signature.outputs)
    return (
        put("max_batch_size", f"max_batch_size: {rows}"),
        put("input", _list("input", signature.inputs, {}, rows)),
        put("output", _list("output", outputs, labels, rows)),
        *(() if rows else (without("dynamic_batching"),)),
        without("batch_input"),
    )


def _list(
    field: str, specs: list[TensorSpec] | tuple[TensorSpec, ...], labels: dict[str, str], rows: int
) -> str:
    entries = []
    for spec in specs:
        dims = spec.dims[1:] if rows else spec.dims
        scalar = " reshape { shape: [ ] }" if rows and not dims else ""
        shown = ", ".join(map(str, dims or (1,)))
        label = f' label_filename: "{labels[spec.name]}"' if spec.name in labels else ""
        entries.append(
            f'  {{ name: "{spec.name}" data_type: {spec.dtype.config} dims: [ {shown} ]{scalar}{label} }}'
        )
    return f"{field} [\n" + ",\n".join(entries) + "\n]"


def warmup(inputs: tuple[TensorConfig, ...]) -> str:
    """One sample of zeros for each input, empty texts for strings."""
    entries = [
        f'    inputs {{ key: "{tensor.name}" value {{ data_type: {tensor.data_type} dims: [ '
        + ", ".join(str(OPEN if dim < 0 else dim) for dim in tensor.dims)
        + " ] zero_data: true } }"
        for tensor in inputs
    ]
    return f'model_warmup [ {{\n    name: "{WARMUP}" batch_size: 1\n' + "\n".join(entries) + "\n} ]"


def signature_of(context: ModelContext) -> ModelSignature | None:
    """The graph of an ONNX model, if it can be read."""
    for file in _files(context):
        read = context.repo.graph(file)
        return read if isinstance(read, ModelSignature) else None
    return None


def onnx_file(context: ModelContext) -> Path | None:
    """The newest ONNX file that the model serves."""
    return next(_files(context), None)


def _files(context: ModelContext) -> Iterator[Path]:
    if context.backend != "onnxruntime":
        return
    for number in reversed(context.selected):
        file = context.file(number)
        if file is not None and file.is_file():
            yield file
