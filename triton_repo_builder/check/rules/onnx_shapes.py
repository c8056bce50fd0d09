"""Shapes of config.pbtxt against the graph: the rules of Triton's onnxruntime backend.

The server compares output shapes as ONNX Runtime infers them, not as the graph states them;
``RepositoryContext.graph`` has done the same. Of operators outside ONNX's own set only ONNX Runtime knows
the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec
from triton_repo_builder.runtime.onnxruntime_backend import ort_rules


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One tensor in config.pbtxt and in the graph."""

    context: ModelContext
    graph: ModelSignature
    spec: TensorSpec
    role: str
    index: int
    config_dims: list[int]
    """The configured dims, or the shape that they are reshaped to."""
    reshaped: bool
    ragged: bool
    rows: int

    @classmethod
    def of(
        cls, context: ModelContext, graph: ModelSignature, role: str, index: int, spec: TensorSpec, rows: int
    ) -> Pair:
        """The entry of that role and index with the graph's tensor of its name."""
        item = context.messages(role)[index]
        reshaped = "reshape" in item
        return cls(
            context=context,
            graph=graph,
            spec=spec,
            role=role,
            index=index,
            config_dims=list(item["reshape"].get("shape", []) if reshaped else item.get("dims", [])),
            reshaped=reshaped,
            ragged=bool(item.get("allow_ragged_batch")) and rows > 0,
            rows=rows,
        )

    @property
    def full(self) -> list[int]:
        """The shape that the model receives, with the batch axis."""
        return [-1, *self.config_dims] if self.rows > 0 else self.config_dims

    @property
    def certain(self) -> bool:
        """Whether the shape is certain to be ONNX Runtime's own inference result."""
        foreign = any(domain != "ai.onnx" for domain, _ in self.graph.opsets)
        return self.role == "input" or self.graph.exact_outputs or not foreign

    @property
    def fits(self) -> bool:
        """Whether the config's shape is the graph's, or narrower."""
        return ort_rules.fits(self.spec.dims, self.full, exact=False)

    def finding(self, code: str, message: str, *, remedy: str = "", field: str = "dims") -> Finding:
        """A finding at this tensor's entry."""
        return self.context.finding(code, message, self.role, self.index, field, remedy=remedy)


def check(pair: Pair) -> Iterator[Finding]:
    """The first rule that the tensor breaks, in the backend's order."""
    spec, model, batching = pair.spec, pair.context.name, pair.rows > 0
    if pair.ragged:
        if message := ort_rules.ragged(model, spec.name, spec.dims):
            yield pair.finding("onnx-ragged", message, field="allow_ragged_batch")
    elif spec.shape is None and not pair.certain:
        return
    elif not spec.shape:
        yield from _scalar(pair)
    elif message := ort_rules.batch_axis(model, spec.name, spec.dims, batching=batching):
        yield pair.finding("onnx-batch-axis", message)
    elif pair.config_dims or pair.reshaped:
        yield from _compare(pair)


def _scalar(pair: Pair) -> Iterator[Finding]:
    if message := ort_rules.scalar(pair.context.name, pair.spec.name, pair.config_dims, pair.config_dims):
        yield pair.finding("onnx-scalar", message)
    elif pair.rows > 0 and pair.spec.shape is not None:
        message = f"'{pair.spec.name}' is a scalar: the model loads, and a batch of 2 fails (501)"
        yield pair.finding("onnx-scalar-batch", message)


def _compare(pair: Pair) -> Iterator[Finding]:
    """Compare the dims with those that ONNX Runtime infers."""
    graph, name, batching = pair.spec.dims, pair.spec.name, pair.rows > 0
    exact = pair.role == "output" and not _scattered(pair)
    message = ort_rules.dims(pair.context.name, name, graph, pair.config_dims, batching=batching, exact=exact)
    if not message:
        return
    if pair.fits and not pair.certain:
        return
    expected = graph[1:] if batching else graph
    dims = f"dims: [ {', '.join(map(str, expected))} ]" if expected else "dims: [ 1 ] reshape { shape: [] }"
    yield pair.finding("onnx-shape", message, remedy=f"write {dims}")


def _scattered(pair: Pair) -> bool:
    """Whether a batch_output splits the tensor, so that the answer has another shape than the graph."""
    return pair.spec.name in pair.context.scattered
