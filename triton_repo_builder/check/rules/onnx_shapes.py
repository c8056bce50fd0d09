"""Shapes of config.pbtxt against the graph: the rules of Triton's onnxruntime backend.

The server compares output shapes as ONNX Runtime infers them, not as the graph states them; ``Survey.graph``
has done the same. Of operators outside ONNX's own set only ONNX Runtime knows the shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triton_repo_builder.check.context import Site
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.read.signature import ModelSignature, TensorSpec


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One tensor as config.pbtxt and as the graph have it."""

    site: Site
    graph: ModelSignature
    spec: TensorSpec
    role: str
    index: int
    given: list[int]
    """dims, or the shape they are reshaped to."""
    reshaped: bool
    ragged: bool
    rows: int

    @classmethod
    def of(
        cls, site: Site, graph: ModelSignature, role: str, index: int, spec: TensorSpec, rows: int
    ) -> Pair:
        """The entry of that role and index with the graph's tensor of its name."""
        item = site.messages(role)[index]
        reshaped = "reshape" in item
        return cls(
            site=site,
            graph=graph,
            spec=spec,
            role=role,
            index=index,
            given=list(item["reshape"].get("shape", []) if reshaped else item.get("dims", [])),
            reshaped=reshaped,
            ragged=bool(item.get("allow_ragged_batch")) and rows > 0,
            rows=rows,
        )

    @property
    def full(self) -> list[int]:
        """What the model is really given: with the batch axis."""
        return [-1, *self.given] if self.rows > 0 else self.given

    @property
    def open(self) -> bool:
        """Whether config.pbtxt fixes a size that ONNX Runtime may know though ONNX does not."""
        foreign = any(domain != "ai.onnx" for domain, _ in self.graph.opsets)
        inputs = {dim for tensor in self.graph.inputs for dim in tensor.shape or () if isinstance(dim, str)}
        sizes = zip(self.spec.shape or (), self.full, strict=False)
        # A symbol that an input has, too, stays what it is.
        doubtful = [dim for dim, size in sizes if size != -1 and dim not in inputs]
        return self.fits and self.role == "output" and foreign and bool(doubtful)

    @property
    def fits(self) -> bool:
        """Whether the config's shape is the graph's, or narrower."""
        graph = self.spec.dims
        same_rank = len(graph) == len(self.full)
        return same_rank and all(g in (-1, c) for g, c in zip(graph, self.full, strict=True))

    def finding(self, code: str, message: str, *, remedy: str = "", field: str = "dims") -> Finding:
        """At this tensor's entry."""
        return self.site.finding(code, message, self.role, self.index, field, remedy=remedy)


def check(pair: Pair) -> Iterator[Finding]:
    """The first rule that the tensor breaks, in the backend's order."""
    spec, name = pair.spec, pair.site.name
    if pair.ragged:
        if spec.dims != (-1,):
            message = (
                f"unable to load model '{name}', configuration expects model provides input with shape [-1]  "
                f"for ragged input '{spec.name}', model provides {_list(spec.dims)}"
            )
            yield pair.finding("onnx-ragged", message, field="allow_ragged_batch")
    elif spec.shape is None:
        message = f"the graph does not state the shape of {pair.role} '{spec.name}'"
        yield pair.finding("onnx-shape-open", message)
    elif not spec.shape:
        yield from _scalar(pair)
    elif pair.rows > 0 and isinstance(spec.shape[0], int):
        message = (
            f"model '{name}', tensor '{spec.name}': for the model to support batching the shape should have "
            f"at least 1 dimension and the first dimension must be -1; but shape expected by the model is "
            f"{_list(spec.dims)}"
        )
        yield pair.finding("onnx-batch-axis", message)
    elif pair.given or pair.reshaped:
        yield from _compare(pair)


def _scalar(pair: Pair) -> Iterator[Finding]:
    name = pair.spec.name
    if pair.given != [1]:
        message = (
            f"unable to load model '{pair.site.name}', scalar tensor '{name}', should only provide 1 in the "
            f"model configuration when the model doesn't support batching. Model configuration provided: "
            f"{_list(pair.full)}."
        )
        yield pair.finding("onnx-scalar", message)
    elif pair.rows > 0:
        message = f"'{name}' is a scalar: the model loads, and a batch of 2 fails (501)"
        yield pair.finding("onnx-scalar-batch", message)


def _compare(pair: Pair) -> Iterator[Finding]:
    """Inputs may be narrower than the graph; outputs must equal it, as ONNX Runtime sees it."""
    graph, full, name = list(pair.spec.dims), pair.full, pair.spec.name
    if pair.fits and (graph == full or pair.role == "input" or _scattered(pair)):
        return
    if pair.open:
        message = f"the graph leaves {_list(graph)} of '{name}' open, config.pbtxt fixes {_list(full)}"
        yield pair.finding("onnx-shape-open", message)
        return
    shape = f"(shape {_list(full)})"
    if pair.rows > 0:
        shape = (
            f"(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
            f"making complete shape {_list(full)})"
        )
    message = (
        f"model '{pair.site.name}', tensor '{name}': the model expects {len(graph)} dimensions (shape "
        f"{_list(graph)}) but the model configuration specifies {len(full)} dimensions {shape}"
    )
    wanted = graph[1:] if pair.rows > 0 else graph
    dims = f"dims: [ {', '.join(map(str, wanted))} ]" if wanted else "dims: [ 1 ] reshape { shape: [] }"
    yield pair.finding("onnx-shape", message, remedy=f"write {dims}")


def _scattered(pair: Pair) -> bool:
    """Whether a batch_output cuts the tensor into pieces, so that the graph's shape is not the answer's."""
    entries = pair.site.messages("batch_output")
    return any(pair.spec.name in item.get("target_name", []) for item in entries)


def _list(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
