"""Exports that many publish, and that differ from those of the other rows in what they take or give."""

from __future__ import annotations

from conformance.architecture import DECODER, SMALL, Architecture

POPULAR = (
    Architecture(
        name="Qwen3 embedder, an empty cache",
        model_type="qwen3",
        config={**DECODER, "use_cache": True},
        family="byte-level-bpe-decoder",
        heads=("base",),
        inputs=("input_ids", "attention_mask", "position_ids"),
        module="Cached",
    ),
    Architecture(
        name="Qwen3 embedder, a cache among the outputs",
        model_type="qwen3",
        config={**DECODER, "use_cache": True},
        family="byte-level-bpe-decoder",
        heads=("base",),
        exported_as="feature-extraction-with-past",
    ),
    Architecture(
        name="Gemma3 embedder, a token without a vector",
        model_type="gemma3_text",
        config={**DECODER, "sliding_window": 64, "use_bidirectional_attention": True},
        family="bpe-gemma",
        heads=("base",),
        without_vectors=1,
    ),
    Architecture(
        name="XLM-R, a task id",
        model_type="xlm-roberta",
        config={**SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-xlmr",
        heads=("base",),
        inputs=("input_ids", "attention_mask", "task_id"),
        module="ByTask",
        options=("--constant", "task_id=1"),
    ),
    Architecture(
        name="XLM-R, three kinds of vectors",
        model_type="xlm-roberta",
        config={**SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-xlmr",
        heads=("base",),
        inputs=("input_ids", "attention_mask"),
        module="ThreeVectors",
    ),
)
"""Of Qwen3-Embedding, EmbeddingGemma, jina-embeddings-v3 and BGE-M3."""
