"""More decoders: nothing is asked of them that others show as well."""

from __future__ import annotations

from conformance.architecture import DECODER, Architecture

DECODERS = (
    Architecture(
        name="Llama",
        model_type="llama",
        config=DECODER,
        family="bpe-llama",
        tokenizer={"padding_side": "left"},
        heads=("base", "classes"),
    ),
    Architecture(
        name="Mistral, the end of each text",
        model_type="mistral",
        config={**DECODER, "sliding_window": 64},
        family="bpe-llama",
        tokenizer={"padding_side": "left", "add_eos_token": True},
        heads=("base", "classes"),
    ),
    Architecture(
        name="GPT-NeoX",
        model_type="gpt_neox",
        config={**DECODER, "rotary_pct": 0.25},
        family="byte-level-bpe-decoder",
        heads=("base", "classes", "tokens"),
    ),
    Architecture(
        name="GPT-Neo",
        model_type="gpt_neo",
        config={
            "hidden_size": 32,
            "num_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            "num_heads": 4,
            "window_size": 32,
            "max_position_embeddings": 512,
            "use_cache": False,
            "initializer_range": 0.2,
        },
        family="byte-level-bpe-decoder",
        heads=("base", "classes"),
    ),
    Architecture(
        name="OPT",
        model_type="opt",
        config={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 64,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 512,
            "use_cache": False,
            "init_std": 0.2,
        },
        family="byte-level-bpe-opt",
        slow=True,
        heads=("base", "classes"),
    ),
    Architecture(
        name="Phi",
        model_type="phi",
        config=DECODER,
        family="byte-level-bpe-decoder",
        heads=("base", "classes"),
    ),
    Architecture(
        name="Gemma2",
        model_type="gemma2",
        config={**DECODER, "sliding_window": 32, "query_pre_attn_scalar": 8},
        family="bpe-gemma",
        tokenizer={"padding_side": "left"},
        heads=("base", "classes"),
    ),
)
