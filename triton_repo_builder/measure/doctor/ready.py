"""Why is it not ready? Errors of ``trb check``, the server's reasons, its log, dead processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from triton_repo_builder.check import fixes
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.measure.doctor import answers, batching, first_request, gpu, messages, repairs
from triton_repo_builder.measure.doctor.cause import Cause, Repair
from triton_repo_builder.measure.doctor.facts import EDITED, Facts
from triton_repo_builder.measure.doctor.messages import REFUSED, SHM_GROWTH, SHM_START, STUB, Explained

QUESTION = "ready"
TENSORS = frozenset(
    {
        "onnx-shape", "onnx-name", "onnx-input-count", "onnx-type", "onnx-scalar", "onnx-optional",
        "onnx-ragged", "onnx-scalar-batch", "tensor-incomplete", "tensor-dims",
    }
)  # fmt: skip
"""Findings that go if the configuration has the graph's own inputs and outputs."""
CHECKED = {module.QUESTION: module.CHECKED for module in (batching, first_request, gpu, answers)}


def causes(facts: Facts) -> Iterator[Cause]:
    """Static errors with their repairs, then messages that no error explains, then dead processes."""
    explained: list[tuple[str, str]] = []
    for finding in facts.findings:
        questions = _questions(finding)
        if questions:
            explained.append((finding.code, finding.model))
            yield Cause(
                questions=questions,
                code=finding.code,
                model=finding.model,
                where=finding.where,
                message=finding.message,
                evidence=tuple(_said(facts, finding)),
                remedy=finding.remedy,
                repairs=tuple(_repairs(facts, finding)),
            )
    for source, each in _messages(facts):
        repeated = any(
            model in ("", each.model) or not each.model for code, model in explained if code == each.code
        )
        if not repeated and each.code not in (SHM_START, SHM_GROWTH, *REFUSED):
            explained.append((each.code, each.model))
            yield Cause(
                questions=_named(each.code) or (QUESTION,),
                code=each.code,
                model=each.model,
                where=source,
                message=each.text,
                remedy=each.remedy,
            )
    yield from _unexplained(facts, explained)
    yield from _processes(facts, explained)


def unknown(facts: Facts) -> Iterator[str]:
    """Facts that are missing for this question."""
    if facts.snapshot is None and not facts.log:
        yield "what the server says: name its URL, or its log with --log"


def _named(code: str) -> tuple[str, ...]:
    named = tuple(question for question, codes in CHECKED.items() if code in codes)
    return (*named, QUESTION) if named else ()


def _questions(finding: Finding) -> tuple[str, ...]:
    """Questions that a finding answers; a warning keeps no model from being ready."""
    named = tuple(question for question, codes in CHECKED.items() if finding.code in codes)
    if "model_warmup" in finding.message and finding.code == "ensemble-forbidden":
        named = (first_request.QUESTION,)
    return (*named, QUESTION) if finding.severity == "error" and finding.code not in EDITED else named


def _messages(facts: Facts) -> Iterator[tuple[str, Explained]]:
    for each in messages.explained(facts.log) if facts.log else ():
        yield f"log line {each.line}", each
    for entry in facts.snapshot.index if facts.snapshot else ():
        if entry.failed:
            for each in messages.explained(entry.reason):
                yield (
                    f"{_url(facts)}: {entry.name}",
                    Explained(
                        code=each.code, model=each.model or entry.name, text=each.text, number=each.number
                    ),
                )


def _url(facts: Facts) -> str:
    return facts.snapshot.urls.http if facts.snapshot else ""


def _said(facts: Facts, finding: Finding) -> Iterator[str]:
    """Messages of the server about the same fault."""
    for source, each in _messages(facts):
        if each.code == finding.code and each.model in ("", finding.model):
            yield f"{source}: {each.text}"


def _unexplained(facts: Facts, explained: list[tuple[str, str]]) -> Iterator[Cause]:
    """Reasons of the server in words that are not known here."""
    models = {model for _, model in explained}
    for entry in facts.snapshot.index if facts.snapshot else ():
        if entry.failed and entry.name not in models and not [*messages.explained(entry.reason)]:
            yield Cause(
                questions=(QUESTION,),
                code="load-failed",
                model=entry.name,
                where=_url(facts),
                message=entry.reason,
                remedy="correct it and load the model again (trb load); 'trb check' may say more",
            )


def _processes(facts: Facts, explained: list[tuple[str, str]]) -> Iterator[Cause]:
    """Python models that are loaded, and whose process is gone or not healthy."""
    snapshot = facts.snapshot
    if snapshot is None:
        return
    for name, config in snapshot.configs.items():
        if (STUB, name) in explained:
            continue
        gone = (
            snapshot.pid is not None
            and bool(snapshot.model_seconds)
            and config.runs_on == "python"
            and not any(model == name for model, _ in snapshot.model_seconds)
        )
        if not gone and name not in facts.unready:
            continue
        failed = facts.counters(name).times.get("fail", (0, 0))[0]
        yield Cause(
            questions=(QUESTION,),
            code=STUB,
            model=name,
            where=_url(facts),
            message=f"the Python process of '{name}' is gone: each request fails, and before release 26.01 "
            "the server goes on saying that it is ready"
            if gone
            else f"'{name}' is loaded and says that it is not ready",
            evidence=(f"failed requests: {failed}",),
            remedy=messages.OWN[STUB],
        )


# --- repairs of findings


def _repairs(facts: Facts, finding: Finding) -> Iterator[Repair]:
    model = facts.repository.model(finding.model) if facts.repository else None
    if model is None or facts.context is None:
        return
    if model.text is not None and fixes.corrected(model.text, finding) != model.text:
        about = fixes.described(finding)
        yield repairs.config(model.name, about, lambda text: fixes.corrected(text, finding))
        return
    if model.error is not None:
        return
    context = facts.context.of(model)
    if finding.code in TENSORS:
        yield from _tensors(context)
    elif finding.code == "onnx-batch-axis":
        yield _open(context)
    elif finding.code == "onnx-ir":
        yield repairs.graph(context, f"IR version lowered to {context.release.max_ir}", _lowered(context))
    elif finding.code == "onnx-kind":
        yield repairs.graph(context, "ZipMap taken out: its scores are the output", _without_zipmap)
    elif finding.code == "ensemble-forbidden":
        yield from _forbidden(facts, context, finding)
    elif finding.code == "ensemble-batch-size":
        yield _smallest(facts, context)
    elif finding.code == "version-missing" and context.ensemble:
        yield repairs.version(model)
    elif finding.code == "preferred-size":
        edit = repairs.without_inner("dynamic_batching", "preferred_batch_size")
        yield repairs.config(model.name, "preferred_batch_size removed", edit)
    elif finding.code == "instance-gpus":
        count = sum(max(group.count, 1) for group in context.config.instance_groups) or 1
        yield repairs.config(
            model.name, "kind: KIND_CPU", repairs.put("instance_group", repairs.instances(count))
        )
    elif finding.code == "labels-missing":
        yield from _labels(context)
    elif finding.code == "model-file-missing":
        yield from _renamed(context, Path(finding.file))


def _tensors(context: ModelContext) -> Iterator[Repair]:
    signature = repairs.signature_of(context)
    if signature is None:
        return
    config = context.config
    stated = config.max_batch_size or (repairs.DEFAULT_ROWS if config.dynamic_batching is not None else 0)
    rows = stated if signature.batch.possible else 0
    edits = repairs.tensors(signature, config, rows)
    yield repairs.config(
        context.name, f"inputs and outputs as the graph has them, max_batch_size: {rows}", *edits
    )


def _open(context: ModelContext) -> Repair:
    """Open the first axis in the graph; if its rows then answer otherwise, serve one fixed batch."""
    from triton_repo_builder.model.graph import mend

    opening = repairs.graph(context, "first axis of every input and output opened", mend.opened)
    signature = repairs.signature_of(context)
    edits = repairs.tensors(signature, context.config, 0) if signature else ()
    closing = repairs.config(context.name, "max_batch_size: 0 with full dims", *edits)

    def apply(root: Path) -> bool:
        return opening.apply(root) or closing.apply(root)

    about = f"{opening.about}, if its rows then answer as alone; else {closing.about}"
    return Repair(about=about, apply=apply)


def _lowered(context: ModelContext) -> Callable[[Path], bytes | None]:
    from triton_repo_builder.model.graph import mend

    return lambda path: mend.lowered(path, context.release.max_ir)


def _without_zipmap(path: Path) -> bytes | None:
    from triton_repo_builder.model.graph import mend

    return mend.without_zipmap(path)


def _forbidden(facts: Facts, context: ModelContext, finding: Finding) -> Iterator[Repair]:
    fields = {
        "model_warmup": "model_warmup",
        "instance group": "instance_group",
        "optimization": "optimization",
    }
    field = next((field for words, field in fields.items() if words in finding.message), "")
    if not field:
        return
    yield repairs.config(context.name, f"{field} removed", repairs.without(field))
    for name in context.model.steps if field == "model_warmup" else ():
        step = facts.model(name)
        if step and step.config.inputs and not step.ensemble and not step.config.has("model_warmup"):
            yield first_request.warmed(step, "model_warmup, moved here from the ensemble")


def _smallest(facts: Facts, context: ModelContext) -> Repair:
    steps = [facts.model(name) for name in context.model.steps]
    rows = min((step.rows for step in steps if step and step.rows), default=0)
    edit = repairs.put("max_batch_size", f"max_batch_size: {rows}")
    return repairs.config(context.name, f"max_batch_size: {rows}, the smallest of its steps", edit)


def _renamed(context: ModelContext, missing: Path) -> Iterator[Repair]:
    """The only file of the kind beside the one that is not there."""
    beside = [file.name for file in missing.parent.glob(f"*{missing.suffix}")]
    if len(beside) == 1 and not context.config.default_model_filename:
        statement = f'default_model_filename: "{beside[0]}"'
        yield repairs.config(context.name, statement, repairs.put("default_model_filename", statement))


def _labels(context: ModelContext) -> Iterator[Repair]:
    """A label file that is in a version's folder, where the server does not look."""
    for tensor in context.config.outputs:
        name = Path(tensor.label_filename).name
        for file in sorted(context.model.path.rglob(re.sub(r"([*?\[])", r"[\1]", name))) if name else ():
            yield repairs.move(context.name, str(file.relative_to(context.model.path)), tensor.label_filename)
            break
