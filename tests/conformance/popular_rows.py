"""Exports that many publish, and that differ from those of the other rows in what they take or give."""

from __future__ import annotations

from dataclasses import replace

from conformance import text_rows

_ROWS = {row.name: row for row in (*text_rows.MAIN, *text_rows.MORE, *text_rows.MIXED)}
_QWEN3, _GEMMA3 = _ROWS["Qwen3 embedder"], _ROWS["Gemma3 embedder"]
_CACHED = replace(_QWEN3, config={**_QWEN3.config, "use_cache": True})
_XLM_R = replace(_ROWS["XLM-R"], heads=("base",), inputs=("input_ids", "attention_mask"))

POPULAR = (
    replace(
        _CACHED,
        name="Qwen3 embedder, an empty cache",
        inputs=("input_ids", "attention_mask", "position_ids"),
        module="Cached",
    ),
    replace(
        _CACHED,
        name="Qwen3 embedder, a cache among the outputs",
        exported_as="feature-extraction-with-past",
    ),
    replace(_GEMMA3, name="Gemma3 embedder, a token without a vector", without_vectors=1),
    replace(
        _XLM_R,
        name="XLM-R, a task id",
        inputs=(*_XLM_R.inputs, "task_id"),
        module="ByTask",
        options=("--constant", "task_id=1"),
    ),
    replace(_XLM_R, name="XLM-R, three kinds of vectors", module="ThreeVectors"),
)
"""Of Qwen3-Embedding, EmbeddingGemma, jina-embeddings-v3 and BGE-M3."""
