"""The main architectures of texts, and one of them with every tokenizer."""

from __future__ import annotations

from dataclasses import replace

from conformance.architecture import DECODER, ENCODER, SMALL, TEXT, Architecture

MAIN = (
    Architecture(
        name="BERT",
        model_type="bert",
        config={**SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        heads=(*TEXT, "late"),
    ),
    Architecture(
        name="DistilBERT",
        model_type="distilbert",
        config={"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "initializer_range": 0.2},
        family="wordpiece-distilbert",
    ),
    Architecture(
        name="RoBERTa",
        model_type="roberta",
        config={**SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="byte-level-bpe",
    ),
    Architecture(
        name="XLM-R",
        model_type="xlm-roberta",
        config={**SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-xlmr",
    ),
    Architecture(
        name="ALBERT",
        model_type="albert",
        config={**SMALL, "embedding_size": 16, "max_position_embeddings": 512},
        family="unigram-albert",
    ),
    Architecture(
        name="ELECTRA",
        model_type="electra",
        config={**SMALL, "embedding_size": 16, "max_position_embeddings": 512},
        family="wordpiece-electra",
    ),
    Architecture(
        name="MPNet",
        model_type="mpnet",
        config={**SMALL, "max_position_embeddings": 514},
        family="wordpiece-mpnet",
    ),
    Architecture(
        name="DeBERTa-v2",
        model_type="deberta-v2",
        config={
            **SMALL,
            "max_position_embeddings": 512,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 32,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "pooler_hidden_size": 32,
        },
        family="unigram-deberta",
    ),
    Architecture(
        name="ModernBERT",
        model_type="modernbert",
        config={
            **SMALL,
            "num_hidden_layers": 3,
            "max_position_embeddings": 1024,
            "local_attention": 64,
            "reference_compile": False,
        },
        family="byte-level-bpe-modernbert",
        tokenizer={"model_max_length": 1024},
    ),
    Architecture(
        name="BigBird",
        model_type="big_bird",
        config={**SMALL, "max_position_embeddings": 512, "attention_type": "original_full"},
        family="unigram-bigbird",
    ),
    Architecture(
        name="Longformer",
        model_type="longformer",
        config={**SMALL, "max_position_embeddings": 514, "attention_window": [32, 32]},
        family="byte-level-bpe",
        heads=("base",),
    ),
    Architecture(
        name="mT5 encoder",
        model_type="mt5",
        config={
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "feed_forward_proj": "gated-gelu",
        },
        family="unigram-t5",
        heads=("base",),
        auto="MT5EncoderModel",
    ),
    Architecture(name="MiniLM (real weights)", model_type="minilm", family="minilm", heads=("base",)),
    Architecture(
        name="CLIP text tower",
        model_type="clip_text_model",
        config={**SMALL, "max_position_embeddings": 77, "projection_dim": 24},
        family="bpe-clip",
        tokenizer={"model_max_length": 77},
        heads=("base",),
        auto="CLIPTextModelWithProjection",
    ),
)

ENCODER_DECODER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 512,
    "init_std": 0.2,
}

MORE = (
    Architecture(
        name="CamemBERT",
        model_type="camembert",
        config={**SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-camembert",
    ),
    Architecture(
        name="DPR question encoder",
        model_type="dpr",
        config={**SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        heads=("base",),
        auto="DPRQuestionEncoder",
    ),
    Architecture(
        name="Qwen3 embedder",
        model_type="qwen3",
        config=DECODER,
        family="byte-level-bpe-decoder",
        heads=("base",),
    ),
    Architecture(
        name="Gemma3 embedder",
        model_type="gemma3_text",
        config={**DECODER, "sliding_window": 64, "use_bidirectional_attention": True},
        family="bpe-gemma",
        heads=("base",),
    ),
    Architecture(
        name="GPT-2",
        model_type="gpt2",
        config={
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 512,
            "initializer_range": 0.2,
            "use_cache": False,
        },
        family="byte-level-bpe-decoder",
        heads=("classes",),
    ),
    Architecture(
        name="Qwen2",
        model_type="qwen2",
        config=DECODER,
        family="byte-level-bpe-decoder",
        heads=("classes",),
    ),
    Architecture(
        name="SigLIP text tower",
        model_type="siglip_text_model",
        config={**SMALL, "max_position_embeddings": 64, "projection_size": 32},
        family="unigram-t5",
        tokenizer={"model_max_length": 64},
        heads=("base",),
        auto="SiglipTextModel",
        inputs=("input_ids",),
    ),
)

MIXED = (
    Architecture(
        name="MBart",
        model_type="mbart",
        config=ENCODER_DECODER,
        family="byte-level-bpe",
        heads=("classes", "nli"),
    ),
    Architecture(
        name="BART",
        model_type="bart",
        config=ENCODER_DECODER,
        family="byte-level-bpe",
        heads=("classes", "nli"),
    ),
    Architecture(
        name="ConvBERT",
        model_type="convbert",
        config={**SMALL, "embedding_size": 32, "max_position_embeddings": 512, "conv_kernel_size": 9},
        family="wordpiece",
    ),
    Architecture(
        name="Nystromformer",
        model_type="nystromformer",
        config={**SMALL, "max_position_embeddings": 512, "num_landmarks": 64, "segment_means_seq_len": 64},
        family="wordpiece",
        heads=("base", "classes", "tokens"),
    ),
    Architecture(
        name="XLNet",
        model_type="xlnet",
        config={
            "d_model": 32,
            "n_layer": 2,
            "n_head": 4,
            "d_inner": 64,
            "initializer_range": 0.2,
            "use_mems_eval": False,
        },
        family="unigram-albert",
        heads=("base", "classes"),
        inputs=("input_ids", "attention_mask", "token_type_ids"),
    ),
)
"""Whose answers depend on the other rows of a batch, or on padding."""

TORCH = tuple(
    replace(
        row,
        name=f"{row.name} by torch.onnx",
        heads=ENCODER if len(row.heads) > 1 else row.heads,
        by_torch=True,
    )
    for row in (*MAIN, *MORE)
    if row.name in ("BERT", "DistilBERT", "XLM-R", "ModernBERT", "Qwen3 embedder")
)
"""By the exporter that torch has by default, which writes other graphs than the one that optimum uses."""

TOKENIZERS = tuple(
    Architecture(
        name=f"BERT, {name}",
        model_type="bert",
        config={**SMALL, "max_position_embeddings": 512},
        family=family,
        tokenizer=settings,
        slow=slow,
        heads=("base",),
    )
    for name, family, settings, slow in (
        ("cased WordPiece", "wordpiece-cased", {}, False),
        ("accents kept by tokenizer_config.json", "wordpiece", {"strip_accents": False}, False),
        ("cased by tokenizer_config.json", "wordpiece", {"do_lower_case": False}, False),
        ("truncation side left", "wordpiece", {"truncation_side": "left", "model_max_length": 24}, False),
        ("padding side left", "wordpiece", {"padding_side": "left"}, False),
        ("byte-level BPE", "byte-level-bpe", {}, False),
        ("byte-level BPE, prefix space", "byte-level-bpe", {"add_prefix_space": True}, False),
        ("SentencePiece T5", "unigram-t5", {}, False),
        ("slow-only vocab.txt", "wordpiece", {}, True),
        ("slow-only cased vocab.txt", "wordpiece-cased", {}, True),
        ("slow-only vocab.json + merges.txt", "byte-level-bpe", {}, True),
        ("slow-only XLM-R SentencePiece", "unigram-xlmr", {}, True),
        ("slow-only ALBERT SentencePiece", "unigram-albert", {}, True),
        ("slow-only T5 SentencePiece", "unigram-t5", {}, True),
        ("slow-only DeBERTa-v2 SentencePiece", "unigram-deberta", {}, True),
        ("slow-only RemBERT SentencePiece", "unigram-rembert", {}, True),
        ("slow-only DeBERTa vocab.json + merges.txt", "byte-level-bpe-deberta", {}, True),
    )
)

POSITIONS = tuple(
    Architecture(
        name=f"{name}, position_ids given",
        model_type=model_type,
        config={**SMALL, "max_position_embeddings": positions},
        family=family,
        heads=("base",),
        inputs=("input_ids", "attention_mask", "position_ids"),
    )
    for name, model_type, family, positions in (
        ("BERT", "bert", "wordpiece", 512),
        ("RoBERTa", "roberta", "byte-level-bpe", 514),
    )
)
