"""The rows of the table: small models of the real structure. Plain data; the configs are made in ``export``.

An architecture has random weights, but for MiniLM, which is the real one. ``family`` names its tokenizer
(``families``), ``heads`` what is put on it (``heads``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

TEXT = ("base", "classes", "multi", "one", "cross", "nli", "tokens", "span", "mask")
ENCODER = ("base", "classes", "span", "mask")
"""The heads of one more encoder: what else there is depends on the heads alone."""
VISION = ("base", "image classes")
DETECTION = ("objects",)
AREAS = ("areas",)
TOWERS = ("towers",)
SOUNDS = ("sound classes", "speech")

_WAVES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "conv_dim": [16, 16, 16],
    "conv_kernel": [10, 3, 3],
    "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.2,
}
_RESNET = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row."""

    name: str
    model_type: str
    """As in config.json; ``export`` asks transformers for that config class."""
    config: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    """The tokenizer; empty for images."""
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    """What its tokenizer_config.json says besides."""
    slow: bool = False
    """Only the files of the slow tokenizer are left beside the model, no tokenizer.json."""
    heads: tuple[str, ...] = TEXT
    inputs: tuple[str, ...] = ()
    """The graph's inputs, where they are not those that optimum gives it."""
    auto: str = ""
    """The transformers class, where none of the Auto classes gives it."""
    processor: str = ""
    """The image processor's class."""
    edges: tuple[int, int] | None = None
    """Its shortest and longest edge, where images keep their shape."""
    processing: Mapping[str, Any] = field(default_factory=dict)
    """What its image processor is made with, in place of the usual size."""


_TEXT = (
    Architecture(
        name="BERT",
        model_type="bert",
        config={**_SMALL, "max_position_embeddings": 512},
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
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="byte-level-bpe",
    ),
    Architecture(
        name="XLM-R",
        model_type="xlm-roberta",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-xlmr",
    ),
    Architecture(
        name="ALBERT",
        model_type="albert",
        config={**_SMALL, "embedding_size": 16, "max_position_embeddings": 512},
        family="unigram-albert",
    ),
    Architecture(
        name="ELECTRA",
        model_type="electra",
        config={**_SMALL, "embedding_size": 16, "max_position_embeddings": 512},
        family="wordpiece-electra",
    ),
    Architecture(
        name="MPNet",
        model_type="mpnet",
        config={**_SMALL, "max_position_embeddings": 514},
        family="wordpiece-mpnet",
    ),
    Architecture(
        name="DeBERTa-v2",
        model_type="deberta-v2",
        config={
            **_SMALL,
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
            **_SMALL,
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
        config={**_SMALL, "max_position_embeddings": 512, "attention_type": "original_full"},
        family="unigram-bigbird",
    ),
    Architecture(
        name="Longformer",
        model_type="longformer",
        config={**_SMALL, "max_position_embeddings": 514, "attention_window": [32, 32]},
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
        config={**_SMALL, "max_position_embeddings": 77, "projection_dim": 24},
        family="bpe-clip",
        tokenizer={"model_max_length": 77},
        heads=("base",),
        auto="CLIPTextModelWithProjection",
    ),
)

_DECODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "initializer_range": 0.2,
    "max_position_embeddings": 512,
    "use_cache": False,
}

_ENCODER_DECODER = {
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

_MORE_TEXT = (
    Architecture(
        name="CamemBERT",
        model_type="camembert",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-camembert",
    ),
    Architecture(
        name="DPR question encoder",
        model_type="dpr",
        config={**_SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        heads=("base",),
        auto="DPRQuestionEncoder",
    ),
    Architecture(
        name="Qwen3 embedder",
        model_type="qwen3",
        config=_DECODER,
        family="byte-level-bpe-decoder",
        heads=("base",),
    ),
    Architecture(
        name="Gemma3 embedder",
        model_type="gemma3_text",
        config={**_DECODER, "sliding_window": 64, "use_bidirectional_attention": True},
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
        config=_DECODER,
        family="byte-level-bpe-decoder",
        heads=("classes",),
    ),
    Architecture(
        name="SigLIP text tower",
        model_type="siglip_text_model",
        config={**_SMALL, "max_position_embeddings": 64, "projection_size": 32},
        family="unigram-t5",
        tokenizer={"model_max_length": 64},
        heads=("base",),
        auto="SiglipTextModel",
        inputs=("input_ids",),
    ),
)

_MORE_ENCODERS = (
    Architecture(
        name="MegatronBERT",
        model_type="megatron-bert",
        config={**_SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        heads=ENCODER,
    ),
    Architecture(
        name="RoFormer",
        model_type="roformer",
        config={**_SMALL, "embedding_size": 32, "max_position_embeddings": 512},
        family="wordpiece",
        heads=ENCODER,
    ),
    Architecture(
        name="RemBERT",
        model_type="rembert",
        config={**_SMALL, "input_embedding_size": 16, "output_embedding_size": 24},
        family="unigram-rembert",
        heads=ENCODER,
    ),
    Architecture(
        name="MobileBERT",
        model_type="mobilebert",
        config={
            **_SMALL,
            "embedding_size": 16,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
            "num_feedforward_networks": 2,
            "max_position_embeddings": 512,
        },
        family="wordpiece-mobilebert",
        heads=ENCODER,
    ),
    Architecture(
        name="SqueezeBERT",
        model_type="squeezebert",
        config={**_SMALL, "embedding_size": 32, "max_position_embeddings": 512},
        family="wordpiece-squeezebert",
        heads=ENCODER,
    ),
    Architecture(
        name="Data2VecText",
        model_type="data2vec-text",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="byte-level-bpe",
        heads=ENCODER,
    ),
    Architecture(
        name="ERNIE",
        model_type="ernie",
        config={**_SMALL, "max_position_embeddings": 512, "use_task_id": False},
        family="wordpiece",
        heads=ENCODER,
        inputs=("input_ids", "attention_mask", "token_type_ids"),
    ),
    Architecture(
        name="I-BERT",
        model_type="ibert",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="byte-level-bpe",
        heads=ENCODER,
    ),
    Architecture(
        name="ESM",
        model_type="esm",
        config={
            **_SMALL,
            "max_position_embeddings": 514,
            "position_embedding_type": "absolute",
            "emb_layer_norm_before": False,
        },
        family="byte-level-bpe",
        heads=("base", "classes", "tokens", "mask"),
    ),
    Architecture(
        name="LUKE",
        model_type="luke",
        config={**_SMALL, "max_position_embeddings": 514, "entity_vocab_size": 10, "entity_emb_size": 8},
        family="byte-level-bpe",
        heads=("base",),
        inputs=("input_ids", "attention_mask"),
    ),
    Architecture(
        name="LayoutLM without boxes",
        model_type="layoutlm",
        config={**_SMALL, "max_position_embeddings": 512},
        family="wordpiece-layoutlm",
        heads=("base", "classes", "tokens"),
        inputs=("input_ids", "attention_mask", "token_type_ids"),
    ),
    Architecture(
        name="DeBERTa",
        model_type="deberta",
        config={
            **_SMALL,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
        },
        family="byte-level-bpe-deberta",
        heads=("base", "classes", "cross", "tokens", "span", "mask"),
    ),
    Architecture(
        name="MPNet, another pad id",
        model_type="mpnet",
        config={**_SMALL, "max_position_embeddings": 514},
        family="wordpiece-mpnet-late-pad",
        heads=("base", "classes", "mask"),
    ),
    Architecture(
        name="BERT, types not from its tokenizer",
        model_type="bert",
        config={**_SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        tokenizer={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
        },
        heads=("classes", "cross", "span", "nli"),
    ),
    Architecture(
        name="ModernBERT, mean",
        model_type="modernbert",
        config={
            **_SMALL,
            "num_hidden_layers": 3,
            "max_position_embeddings": 1024,
            "local_attention": 16,
            "reference_compile": False,
            "classifier_pooling": "mean",
        },
        family="byte-level-bpe-modernbert",
        tokenizer={"model_max_length": 1024},
        heads=("classes", "tokens"),
    ),
    Architecture(
        name="UMT5 encoder",
        model_type="umt5",
        config={"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
        family="unigram-t5",
        heads=("base",),
        auto="UMT5EncoderModel",
    ),
)

_IDS = ("input_ids", "attention_mask", "token_type_ids")
_YET_MORE_ENCODERS = (
    Architecture(
        name="RoCBert",
        model_type="roc_bert",
        config={
            **_SMALL,
            "max_position_embeddings": 512,
            "enable_pronunciation": False,
            "enable_shape": False,
        },
        family="wordpiece",
        heads=("base", "classes", "cross", "tokens", "span", "mask"),
        inputs=_IDS,
    ),
    Architecture(
        name="Splinter",
        model_type="splinter",
        config={**_SMALL, "max_position_embeddings": 512},
        family="wordpiece",
        heads=("base", "span"),
        inputs=_IDS,
    ),
    Architecture(
        name="XLM-R XL",
        model_type="xlm-roberta-xl",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="unigram-xlmr",
        heads=ENCODER,
        inputs=("input_ids", "attention_mask"),
    ),
    Architecture(
        name="RoBERTa-PreLayerNorm",
        model_type="roberta-prelayernorm",
        config={**_SMALL, "max_position_embeddings": 514, "type_vocab_size": 1},
        family="byte-level-bpe",
        heads=ENCODER,
        inputs=("input_ids", "attention_mask"),
    ),
    Architecture(
        name="YOSO, one token type",
        model_type="yoso",
        config={
            **_SMALL,
            "max_position_embeddings": 514,
            "use_expectation": True,
            "type_vocab_size": 1,
        },
        family="wordpiece",
        heads=("base", "tokens", "multi"),
        inputs=_IDS,
    ),
    Architecture(
        name="Bloom",
        model_type="bloom",
        config={
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "use_cache": False,
            "initializer_range": 0.2,
        },
        family="byte-level-bpe-decoder",
        heads=("base", "classes", "tokens"),
    ),
    Architecture(
        name="Falcon",
        model_type="falcon",
        config={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "use_cache": False,
            "alibi": False,
            "initializer_range": 0.2,
        },
        family="byte-level-bpe-decoder",
        heads=("base", "classes", "tokens"),
        inputs=("input_ids", "attention_mask"),
    ),
)

_MORE_DECODERS = (
    Architecture(
        name="Llama",
        model_type="llama",
        config=_DECODER,
        family="bpe-llama",
        tokenizer={"padding_side": "left"},
        heads=("base", "classes"),
    ),
    Architecture(
        name="Mistral, the end of each text",
        model_type="mistral",
        config={**_DECODER, "sliding_window": 64},
        family="bpe-llama",
        tokenizer={"padding_side": "left", "add_eos_token": True},
        heads=("base", "classes"),
    ),
    Architecture(
        name="GPT-NeoX",
        model_type="gpt_neox",
        config={**_DECODER, "rotary_pct": 0.25},
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
        config=_DECODER,
        family="byte-level-bpe-decoder",
        heads=("base", "classes"),
    ),
    Architecture(
        name="Gemma2",
        model_type="gemma2",
        config={**_DECODER, "sliding_window": 32, "query_pre_attn_scalar": 8},
        family="bpe-gemma",
        tokenizer={"padding_side": "left"},
        heads=("base", "classes"),
    ),
)

_MIXED = (
    Architecture(
        name="MBart",
        model_type="mbart",
        config=_ENCODER_DECODER,
        family="byte-level-bpe",
        heads=("classes", "nli"),
    ),
    Architecture(
        name="BART",
        model_type="bart",
        config=_ENCODER_DECODER,
        family="byte-level-bpe",
        heads=("classes", "nli"),
    ),
    Architecture(
        name="ConvBERT",
        model_type="convbert",
        config={**_SMALL, "embedding_size": 32, "max_position_embeddings": 512, "conv_kernel_size": 9},
        family="wordpiece",
    ),
    Architecture(
        name="Nystromformer",
        model_type="nystromformer",
        config={**_SMALL, "max_position_embeddings": 512, "num_landmarks": 64, "segment_means_seq_len": 64},
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

_TOKENIZERS = tuple(
    Architecture(
        name=f"BERT, {name}",
        model_type="bert",
        config={**_SMALL, "max_position_embeddings": 512},
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

_POSITIONS = tuple(
    Architecture(
        name=f"{name}, position_ids given",
        model_type=model_type,
        config={**_SMALL, "max_position_embeddings": positions},
        family=family,
        heads=("base",),
        inputs=("input_ids", "attention_mask", "position_ids"),
    )
    for name, model_type, family, positions in (
        ("BERT", "bert", "wordpiece", 512),
        ("RoBERTa", "roberta", "byte-level-bpe", 514),
    )
)

_VISION = (
    Architecture(
        name="ViT",
        model_type="vit",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=VISION,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="ResNet",
        model_type="resnet",
        config={"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"},
        heads=VISION,
        processor="ConvNextImageProcessor",
    ),
    Architecture(
        name="ConvNeXt",
        model_type="convnext",
        config={"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "initializer_range": 0.2},
        heads=VISION,
        processor="ConvNextImageProcessor",
    ),
    Architecture(
        name="DINOv2",
        model_type="dinov2",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=VISION,
        processor="BitImageProcessor",
    ),
    Architecture(
        name="Swin",
        model_type="swin",
        config={
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
            "initializer_range": 0.2,
        },
        heads=VISION,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="MobileNetV2",
        model_type="mobilenet_v2",
        config={"image_size": 32, "depth_multiplier": 0.25},
        heads=VISION,
        processor="MobileNetV2ImageProcessor",
    ),
    Architecture(
        name="YOLOS",
        model_type="yolos",
        config={**_SMALL, "image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 12},
        heads=DETECTION,
        processor="YolosImageProcessor",
    ),
    Architecture(
        name="DETR",
        model_type="detr",
        config={
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {"model_type": "resnet", **_RESNET, "out_features": ["stage4"]},
            "num_queries": 12,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "init_std": 0.2,
        },
        heads=DETECTION,
        processor="DetrImageProcessor",
    ),
    Architecture(
        name="RT-DETR",
        model_type="rt_detr",
        config={
            "backbone_config": {
                "model_type": "rt_detr_resnet",
                **_RESNET,
                "out_features": ["stage2", "stage3", "stage4"],
            },
            "encoder_hidden_dim": 32,
            "encoder_in_channels": [16, 24, 32],
            "encoder_ffn_dim": 64,
            "encoder_attention_heads": 4,
            "d_model": 32,
            "num_queries": 21,  # all places: which of equal ones are queries, noise decides
            "decoder_in_channels": [32, 32, 32],
            "decoder_ffn_dim": 64,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_n_points": 2,
            "anchor_image_size": None,
        },
        heads=DETECTION,
        processor="RTDetrImageProcessor",
    ),
    Architecture(
        name="SegFormer",
        model_type="segformer",
        config={
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 24, 32],
            "num_attention_heads": [1, 2, 2, 4],
            "decoder_hidden_size": 16,
            "initializer_range": 0.2,
        },
        heads=AREAS,
        processor="SegformerImageProcessor",
    ),
    Architecture(
        name="MobileViT",
        model_type="mobilevit",
        config={
            "image_size": 32,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64],
            "aspp_out_channels": 16,
            "initializer_range": 0.2,
        },
        heads=AREAS,
        processor="MobileViTImageProcessor",
    ),
    Architecture(
        name="DeepLabV3 (MobileNetV2)",
        model_type="mobilenet_v2",
        config={"image_size": 32, "depth_multiplier": 0.25},
        heads=AREAS,
        processor="MobileNetV2ImageProcessor",
    ),
    Architecture(
        name="DPT",
        model_type="dpt",
        config={
            **_SMALL,
            "image_size": 32,
            "patch_size": 8,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 24, 32],
            "fusion_hidden_size": 16,
            "initializer_range": 0.2,
        },
        heads=AREAS,
        processor="DPTImageProcessor",
    ),
    Architecture(
        name="CLIP",
        model_type="clip",
        config={
            "text_config": {**_SMALL, "max_position_embeddings": 77, "initializer_factor": 8.0},
            "vision_config": {**_SMALL, "image_size": 32, "patch_size": 8, "initializer_factor": 8.0},
            "projection_dim": 24,
            "initializer_factor": 8.0,
        },
        family="bpe-clip",
        tokenizer={"model_max_length": 77},
        heads=TOWERS,
        processor="CLIPImageProcessor",
    ),
    Architecture(
        name="SigLIP",
        model_type="siglip",
        config={
            "text_config": {**_SMALL, "max_position_embeddings": 64},
            "vision_config": {**_SMALL, "image_size": 32, "patch_size": 8},
        },
        family="unigram-t5",
        tokenizer={"model_max_length": 64, "model_input_names": ["input_ids"]},  # as SiglipTokenizer
        heads=TOWERS,
        processor="SiglipImageProcessor",
    ),
    Architecture(
        name="SigLIP, its own tokenizer",  # optimum leaves its spiece.model, and no tokenizer.json
        model_type="siglip",
        config={
            "text_config": {**_SMALL, "max_position_embeddings": 64},
            "vision_config": {**_SMALL, "image_size": 32, "patch_size": 8},
        },
        family="unigram-siglip",
        tokenizer={"model_max_length": 64, "model_input_names": ["input_ids"]},
        slow=True,
        heads=TOWERS,
        processor="SiglipImageProcessor",
    ),
    Architecture(
        name="SigLIP image tower",
        model_type="siglip_vision_model",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=("base",),
        auto="SiglipVisionModel",
        processor="SiglipImageProcessor",
    ),
    Architecture(
        name="CLIP image tower",
        model_type="clip_vision_model",
        config={**_SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 24},
        heads=("base",),
        auto="CLIPVisionModelWithProjection",
        processor="CLIPImageProcessor",
    ),
)

_BY_NAME = {row.name: row for row in _VISION}
_SHAPES = tuple(
    replace(_BY_NAME[name], name=f"{name}, shape kept", edges=(64, 400)) for name in ("DETR", "YOLOS")
)
_IMAGE_CLASSES = ("image classes",)
_MORE_VISION = (
    Architecture(
        name="BEiT",
        model_type="beit",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=_IMAGE_CLASSES,
        processor="BeitImageProcessor",
        processing={"size": {"height": 40, "width": 36}, "crop_size": {"height": 32, "width": 32}},
    ),
    Architecture(
        name="PoolFormer",
        model_type="poolformer",
        config={
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "initializer_range": 0.2,
            "layer_scale_init_value": 0.5,
        },
        heads=_IMAGE_CLASSES,
        processor="PoolFormerImageProcessor",
        processing={"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}},
    ),
    Architecture(
        name="RegNet",
        model_type="regnet",
        config={"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4},
        heads=VISION,
        processor="ConvNextImageProcessor",
        processing={"size": {"shortest_edge": 384}},
    ),
    Architecture(
        name="ConvNeXt V2",
        model_type="convnextv2",
        config={"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "initializer_range": 0.2},
        heads=_IMAGE_CLASSES,
        processor="ConvNextImageProcessor",
        processing={"size": {"shortest_edge": 32}, "crop_pct": 0.95, "resample": 3},
    ),
    Architecture(
        name="ViT, 0 to 255, nearest",
        model_type="vit",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=_IMAGE_CLASSES,
        processor="ViTImageProcessor",
        processing={
            "size": {"height": 32, "width": 32},
            "resample": 0,
            "do_rescale": False,
            "image_mean": [127.5, 120.0, 100.0],
            "image_std": [60.0, 50.0, 40.0],
        },
    ),
    Architecture(
        name="ResNet, 24 by 40",
        model_type="resnet",
        config={"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"},
        heads=_IMAGE_CLASSES,
        processor="ViTImageProcessor",
        processing={
            "size": {"height": 24, "width": 40},
            "resample": 1,
            "do_normalize": False,
        },
    ),
    Architecture(
        name="Swin V2",
        model_type="swinv2",
        config={
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
            "initializer_range": 0.2,
        },
        heads=_IMAGE_CLASSES,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="ViT-MSN",
        model_type="vit_msn",
        config={**_SMALL, "image_size": 32, "patch_size": 8},
        heads=_IMAGE_CLASSES,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="MobileNetV1",
        model_type="mobilenet_v1",
        config={"image_size": 32, "depth_multiplier": 0.25},
        heads=_IMAGE_CLASSES,
        processor="MobileNetV1ImageProcessor",
    ),
    Architecture(
        name="Conditional DETR",
        model_type="conditional_detr",
        config=_BY_NAME["DETR"].config,
        heads=DETECTION,
        processor="ConditionalDetrImageProcessor",
    ),
    Architecture(
        name="Table Transformer",
        model_type="table-transformer",
        config=_BY_NAME["DETR"].config,
        heads=DETECTION,
        processor="DetrImageProcessor",
    ),
)

_AUDIO = (
    Architecture(
        name="Wav2Vec2",
        model_type="wav2vec2",
        config=_WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="HuBERT",
        model_type="hubert",
        config=_WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="WavLM",
        model_type="wavlm",
        config=_WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="UniSpeech",
        model_type="unispeech",
        config=_WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="UniSpeech-SAT",
        model_type="unispeech-sat",
        config=_WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="SEW",
        model_type="sew",
        config={**_WAVES, "squeeze_factor": 2},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="Data2Vec audio",
        model_type="data2vec-audio",
        config={**_WAVES, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="Wav2Vec2-Conformer",
        model_type="wav2vec2-conformer",
        config={**_WAVES, "position_embeddings_type": "rotary"},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
)

ARCHITECTURES = {
    row.name: row
    for row in (
        *_TEXT,
        *_MORE_TEXT,
        *_MIXED,
        *_MORE_ENCODERS,
        *_YET_MORE_ENCODERS,
        *_MORE_DECODERS,
        *_VISION,
        *_MORE_VISION,
        *_SHAPES,
        *_AUDIO,
        *_TOKENIZERS,
        *_POSITIONS,
    )
}
MORE_ROWS = tuple(row.name for row in (*_MORE_ENCODERS, *_YET_MORE_ENCODERS, *_MORE_DECODERS))
"""Of which nothing is asked that others show as well."""
POSITION_ROWS = tuple(row.name for row in _POSITIONS)
TOKENIZER_ROWS = (*(row.name for row in _TOKENIZERS), *POSITION_ROWS)
"""The second table: one model, every tokenizer."""
