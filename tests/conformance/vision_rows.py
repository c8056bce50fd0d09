"""Architectures of images."""

from __future__ import annotations

from dataclasses import replace

from conformance.architecture import AREAS, DETECTION, SMALL, TOWERS, VISION, Architecture

RESNET = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}

MAIN = (
    Architecture(
        name="ViT",
        model_type="vit",
        config={**SMALL, "image_size": 32, "patch_size": 8},
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
        config={**SMALL, "image_size": 32, "patch_size": 8},
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
        config={**SMALL, "image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 12},
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
            "backbone_config": {"model_type": "resnet", **RESNET, "out_features": ["stage4"]},
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
                **RESNET,
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
            **SMALL,
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
            "text_config": {**SMALL, "max_position_embeddings": 77, "initializer_factor": 8.0},
            "vision_config": {**SMALL, "image_size": 32, "patch_size": 8, "initializer_factor": 8.0},
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
            "text_config": {**SMALL, "max_position_embeddings": 64},
            "vision_config": {**SMALL, "image_size": 32, "patch_size": 8},
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
            "text_config": {**SMALL, "max_position_embeddings": 64},
            "vision_config": {**SMALL, "image_size": 32, "patch_size": 8},
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
        config={**SMALL, "image_size": 32, "patch_size": 8},
        heads=("base",),
        auto="SiglipVisionModel",
        processor="SiglipImageProcessor",
    ),
    Architecture(
        name="CLIP image tower",
        model_type="clip_vision_model",
        config={**SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 24},
        heads=("base",),
        auto="CLIPVisionModelWithProjection",
        processor="CLIPImageProcessor",
    ),
)

_BY_NAME = {row.name: row for row in MAIN}

SHAPES = tuple(
    replace(_BY_NAME[name], name=f"{name}, shape kept", edges=(64, 400)) for name in ("DETR", "YOLOS")
)

CLASSES = ("image classes",)

MORE = (
    Architecture(
        name="BEiT",
        model_type="beit",
        config={**SMALL, "image_size": 32, "patch_size": 8},
        heads=CLASSES,
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
        heads=CLASSES,
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
        heads=CLASSES,
        processor="ConvNextImageProcessor",
        processing={"size": {"shortest_edge": 32}, "crop_pct": 0.95, "resample": 3},
    ),
    Architecture(
        name="ViT, 0 to 255, nearest",
        model_type="vit",
        config={**SMALL, "image_size": 32, "patch_size": 8},
        heads=CLASSES,
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
        heads=CLASSES,
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
        heads=CLASSES,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="ViT-MSN",
        model_type="vit_msn",
        config={**SMALL, "image_size": 32, "patch_size": 8},
        heads=CLASSES,
        processor="ViTImageProcessor",
    ),
    Architecture(
        name="MobileNetV1",
        model_type="mobilenet_v1",
        config={"image_size": 32, "depth_multiplier": 0.25},
        heads=CLASSES,
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
