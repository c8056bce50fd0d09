"""Exporters' names for the inputs of a text model, and which of the usual inputs each one is.

``torch.onnx.export`` numbers inputs that nobody named (``input.1``), TensorFlow's exports have the names of
its BERT (``input_word_ids``) with an index (``:0``) or a signature before them (``serving_default_``), and
torch's newer exporter writes where it found them (``l_input_ids_``, ``kwargs_input_ids``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from triton_repo_builder.base.dtypes import INT32, INT64
from triton_repo_builder.model.read.options import usage
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec

ALIASES: Mapping[str, tuple[str, ...]] = {
    "input_ids": ("input_ids", "input_word_ids", "token_ids", "tokens", "ids", "src_tokens", "input_tokens"),
    "attention_mask": ("attention_mask", "input_mask", "mask", "attention_masks", "att_mask", "masks"),
    "token_type_ids": (
        *("token_type_ids", "segment_ids", "input_type_ids", "type_ids", "token_types", "token_type"),
        *("types", "segments", "segment", "input_segments", "token_segments", "input_segment_ids"),
        "sentence_ids",
    ),
    "position_ids": ("position_ids", "positions", "position", "pos_ids", "input_position_ids"),
}
"""The inputs that a tokenizer can fill, by the names that transformers uses; other names for each."""
OFFSETS = "offsets"
"""Name of ``EmbeddingBag``'s second input: where each row begins in the tokens of all rows."""
OLDEST_FLAT = 11
"""The first opset with CumSum, by which rows are made flat."""
_DECORATION = re.compile(r"^(serving_default_|l_)?(self_)?(kwargs_)?|(_\d+)?$")


def recognise(signature: ModelSignature, named: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The usual name by the graph's own, for each input that has another; ``named``: (usual, own) pairs.

    Empty if types, ranks and names leave more than one reading. Raises ``TrbError`` USAGE.
    """
    inputs = {spec.name: spec for spec in signature.inputs}
    usual_names = {name_in_graph: usual for usual, name_in_graph in named}
    for usual, name_in_graph in named:
        if usual not in ALIASES:
            raise usage("input", f"'{usual}' is unknown", f"name one of {', '.join(ALIASES)}")
        if name_in_graph not in inputs:
            names = ", ".join(inputs)
            raise usage("input", f"the model has no input '{name_in_graph}'", f"its inputs are {names}")
    if len(usual_names) < len(named):
        raise usage("input", "one input is named twice", "name each once")
    rest = [spec for spec in signature.inputs if spec.name not in usual_names]
    for spec in rest:
        name = _plain(spec.name)
        usual = next((usual for usual, names in ALIASES.items() if name in names), "")
        if usual and is_row(spec):
            usual_names[spec.name] = usual
    unknown = [spec for spec in rest if spec.name not in usual_names]
    if len(unknown) == 1 and "input_ids" not in usual_names.values() and _ids(unknown[0]):
        usual_names[unknown[0].name] = "input_ids"
    ambiguous = len(set(usual_names.values())) < len(usual_names) or len(usual_names) < len(inputs)
    if ambiguous and named:
        left = ", ".join(f"'{name}'" for name in inputs if name not in usual_names) or "two of them"
        raise usage("input", f"a tokenizer cannot fill {left}", f"name each as one of {', '.join(ALIASES)}")
    if ambiguous or not any(
        usual == "input_ids" and _ids(inputs[name_in_graph]) for name_in_graph, usual in usual_names.items()
    ):
        return {}
    return {name_in_graph: usual for name_in_graph, usual in usual_names.items() if name_in_graph != usual}


def flat(signature: ModelSignature) -> tuple[str, str] | None:
    """The inputs of a graph that takes the tokens of all rows end to end: tokens, and where each row begins.

    So ``EmbeddingBag`` is exported, of StaticEmbedding (sentence-transformers) and Model2Vec.
    """
    inputs = {spec.name: spec for spec in signature.inputs}
    ids = next((name for name in inputs if _plain(name) in ALIASES["input_ids"]), "")
    specs = [spec for name in (ids, OFFSETS) if (spec := inputs.get(name))]
    whole = len(specs) == len(inputs) == 2 and signature.opset >= OLDEST_FLAT
    lines = all(spec.dtype in (INT32, INT64) and spec.dims == (-1,) for spec in specs)
    lines = lines and len({spec.dtype for spec in specs}) == 1
    rows = all(len(spec.dims) == 2 for spec in signature.outputs)
    return (ids, OFFSETS) if whole and lines and rows else None


def recognised_inputs(signature: ModelSignature) -> dict[str, str]:
    """The usual name by the graph's own, of the inputs whose names alone tell it, each at most once."""
    usual_names: dict[str, str] = {}
    for spec in signature.inputs:
        name = _plain(spec.name)
        usual = next((usual for usual, names in ALIASES.items() if name in names), "")
        if usual and is_row(spec) and usual not in usual_names.values():
            usual_names[spec.name] = usual
    return usual_names


def _plain(name: str) -> str:
    """The words of a name, small and joined by ``_``: ``attentionMask``, ``Attention-Mask:0``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _DECORATION.sub("", re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_"))


def looks_like_text(signature: ModelSignature) -> bool:
    """Whether an input could be token ids."""
    return any(map(_ids, signature.inputs))


def is_row(spec: TensorSpec) -> bool:
    """Whether an input is a row of tokens for each text."""
    return spec.shape is not None and len(spec.shape) == 2


def _ids(spec: TensorSpec) -> bool:
    return is_row(spec) and spec.dtype in (INT32, INT64)
