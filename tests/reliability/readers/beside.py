"""The files beside a model: tokenizers, settings, image processors."""

from __future__ import annotations

import io
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    MODELS,
    Reader,
    contents,
    write,
    write_named,
)

SIDECARS = (
    *("config.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_bert_config.json"),
    *("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json", "2_Dense/config.json"),
    *("artifact.metadata", "generation_config.json", "added_tokens.json"),
)
FOLDERS = (
    "embedding/minilm_dense",
    "embedding/minilm_prompt",
    "retrieval/pylate",
    "retrieval/colbert",
    "tasks/qa",
)
FOLDERS += ("embedding/classifier", "retrieval/splade_sum", "tasks/mlm_roberta", "tasks/nli", "tasks/rerank")


def _sidecar_seeds() -> list[bytes]:
    seeds = []
    for folder in FOLDERS:
        for file in sorted((MODELS / folder).rglob("*")):
            name = file.relative_to(MODELS / folder).as_posix()
            left_out = name.startswith(("tokenizer.json", "reference", "passage", "tokenization"))
            if name.endswith((".json", ".metadata")) and not left_out and file.stat().st_size < 20_000:
                seeds.append(f"{folder}/{name}\n".encode() + file.read_bytes())
    return seeds


def _sidecar_base(case: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(MODELS / folder, case / folder, dirs_exist_ok=True)


_TOUCHED: dict[str, str] = {}
_lay_sidecar = write_named("")


def _lay_sidecars(data: bytes, case: Path) -> None:
    name = data.partition(b"\n")[0].decode()
    _TOUCHED["folder"] = next(folder for folder in FOLDERS if name.startswith(f"{folder}/"))
    _lay_sidecar(data, case)


@cache
def _graph(path: Path) -> Any:
    from triton_repo_builder.model.graph import reader
    from triton_repo_builder.model.read import skeleton

    graph = skeleton.read(path)
    return graph, reader.signature(graph)


def _sidecars(case: Path) -> None:
    """As ``trb inspect`` after it has read the graph: the tokenizer, the task and its plan."""
    from triton_repo_builder.endpoint import tasks
    from triton_repo_builder.endpoint.tasks.support import prompts
    from triton_repo_builder.model.read import option_checks, source, tokenizer
    from triton_repo_builder.model.read.options import BuildOptions

    path = case / _TOUCHED["folder"] / "model.onnx"
    described = source.describe(*_graph(path), path, source.SourceOverrides())
    tokenizer.max_length(path.parent)
    tokenizer.table_of_positions(described.config)
    module, _ = tasks.choose(described, None)
    options = option_checks.check(BuildOptions(model=path))
    plan = module.plan(described, options)
    prompts.check_room(described, plan, 16)
    if described.tokenizer is not None:
        from triton_repo_builder.model.read import tokenizer_template

        spec = described.tokenizer_spec
        spec = tokenizer_template.apply(spec, plan.rules) if plan.rules else spec
        spec.encode([("hello world",)], 16)
        list(plan.encoding.parameters)


def _tokenizer_json(case: Path) -> None:
    from triton_repo_builder.model.read import tokenizer, tokenizer_template
    from triton_repo_builder.model.read.tokenizer_template import TokenRules

    spec = tokenizer.read(case / "tokenizer.json")
    spec.encode([("hello wörld [MASK] 123",), ("a", "b")], 16)
    tokenizer_template.apply(spec, TokenRules(marker="[CLS]")).encode([("hello",)], 8)


def _tokenizer_base(case: Path) -> None:
    shutil.copy(MODELS / "embedding/classifier/tokenizer_config.json", case)
    (case / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 64}')
    (case / "sentence_bert_config.json").write_text('{"do_lower_case": true, "max_seq_length": 32}')


SLOW = ("conformance/bert_slow_only_vocab_txt_base", "tasks/mlm_roberta", "conformance/deberta_v2_classes")
SLOW_FILES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "added_tokens.json",
    "tokenizer_config.json",
)
SLOW_FILES += ("special_tokens_map.json", "config.json")


def _slow_seeds() -> list[bytes]:
    return [
        f"{folder}/{name}\n".encode() + (MODELS / folder / name).read_bytes()
        for folder in SLOW
        for name in SLOW_FILES
        if (MODELS / folder / name).is_file()
    ]


def _slow_base(case: Path) -> None:
    for folder in SLOW:
        (case / folder).mkdir(parents=True)
        for name in SLOW_FILES:
            if (MODELS / folder / name).is_file():
                shutil.copy(MODELS / folder / name, case / folder)


_lay_slow_file = write_named("")


def _lay_slow(data: bytes, case: Path) -> None:
    _TOUCHED["slow"] = str(Path(data.partition(b"\n")[0].decode()).parent)
    _lay_slow_file(data, case)


def _slow(case: Path) -> None:
    from triton_repo_builder.model.read import tokenizer

    if file := tokenizer.find(case / _TOUCHED["slow"]):
        tokenizer.read(file).encode([("hello world",)], 16)


def _preprocessor_seeds() -> list[bytes]:
    plain = [
        {"size": 8, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.01},
        {
            "size": {"shortest_edge": 8},
            "crop_size": {"height": 6, "width": 6},
            "resample": 3,
            "jpeg_quality": 90,
        },
        {
            "do_resize": True,
            "size": [8, 9],
            "do_center_crop": True,
            "crop_size": 4,
            "do_flip_channel_order": True,
        },
        {"size": {"height": 8, "width": 8}, "crop_pct": 0.875, "do_normalize": True, "image_mean": 0.5},
    ]
    named = [f"preprocessor_config.json\n{json.dumps(document)}".encode() for document in plain]
    named.append(f"processor_config.json\n{json.dumps({'image_processor': plain[0]})}".encode())
    return named


def _preprocessor(case: Path) -> None:
    from triton_repo_builder.model.read import image_processor, image_reference

    for name in image_processor.FILES:
        if (case / name).exists() and image_processor.find(case / "model.onnx", case / name):
            spec = image_processor.read(case / name)
            json.dumps(spec.settings("NCHW"))
            _ = spec.size
            image_reference.prove(spec, [_image()])


@cache
def _image() -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (12, 10), (200, 100, 50)).save(stream, format="PNG")
    return stream.getvalue()


def _processor_seeds() -> list[bytes]:
    return [b"preprocessor_config.json\n" + data for data in contents("preprocessor_config.json")()]


def _label_seeds() -> list[bytes]:
    plain = "good\nbad\nso so\n"
    documents = ({"0": "good", "1": "bad", "2": "so so"}, ["good", "bad", "so so"])
    listed = [f"labels.json\n{json.dumps(document)}" for document in documents]
    config = f"labels.json\n{json.dumps({'model_type': 'bert', 'id2label': documents[0]})}"
    return [text.encode() for text in (f"labels.txt\n{plain}", *listed, config)]


def _labels(case: Path) -> None:
    from triton_repo_builder.model.read import label_file

    _, signature = _graph(MODELS / "embedding" / "classifier" / "model.onnx")
    for name in ("labels.txt", "labels.json"):
        if (case / name).exists():
            label_file.read(case / name, signature)


READERS = (
    Reader(
        name="labels",
        about="the file of --labels, as text and as JSON",
        seeds=_label_seeds,
        damage=mutate.named(mutate.damaged_json),
        lay=write_named(""),
        read=_labels,
    ),
    Reader(
        name="tokenizer",
        about="tokenizer.json",
        seeds=contents("tokenizer.json", most=14_000),
        damage=mutate.damaged_json,
        base=_tokenizer_base,
        lay=write("tokenizer.json"),
        read=_tokenizer_json,
        share=0.6,
    ),
    Reader(
        name="sidecars",
        about="config.json, tokenizer_config.json, sentence-transformers' and ColBERT's files",
        seeds=_sidecar_seeds,
        damage=mutate.named(mutate.damaged_json),
        base=_sidecar_base,
        lay=_lay_sidecars,
        read=_sidecars,
        share=0.5,
    ),
    Reader(
        name="slow-tokenizer",
        about="vocab.txt, vocab.json, merges.txt, SentencePiece models",
        seeds=_slow_seeds,
        damage=mutate.named(mutate.damaged_json),
        base=_slow_base,
        lay=_lay_slow,
        read=_slow,
        share=0.02,
    ),
    Reader(
        name="preprocessor",
        about="preprocessor_config.json of trb's own, proven on an image",
        seeds=_preprocessor_seeds,
        damage=mutate.named(mutate.damaged_json),
        lay=write_named(""),
        read=_preprocessor,
        share=0.5,
    ),
    Reader(
        name="processor",
        about="preprocessor_config.json of transformers' classes",
        seeds=_processor_seeds,
        damage=mutate.named(mutate.damaged_json),
        lay=write_named(""),
        read=_preprocessor,
        share=0.02,
    ),
)
