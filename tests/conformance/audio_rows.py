"""Architectures of sounds."""

from __future__ import annotations

from conformance.architecture import SOUNDS, Architecture

WAVES = {
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

ROWS = (
    Architecture(
        name="Wav2Vec2",
        model_type="wav2vec2",
        config=WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="HuBERT",
        model_type="hubert",
        config=WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="WavLM",
        model_type="wavlm",
        config=WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="UniSpeech",
        model_type="unispeech",
        config=WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="UniSpeech-SAT",
        model_type="unispeech-sat",
        config=WAVES,
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="SEW",
        model_type="sew",
        config={**WAVES, "squeeze_factor": 2},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="Data2Vec audio",
        model_type="data2vec-audio",
        config={**WAVES, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
    Architecture(
        name="Wav2Vec2-Conformer",
        model_type="wav2vec2-conformer",
        config={**WAVES, "position_embeddings_type": "rotary"},
        heads=SOUNDS,
        processor="Wav2Vec2FeatureExtractor",
    ),
)
