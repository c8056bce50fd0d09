"""Exports a SPLADE and two ColBERT models with random weights. Run by .venv-export's Python:

    PYTHONPATH=. .venv-export/bin/python -m tests.models.retrieval FOLDER MINILM_FOLDER

Each folder has ``reference.json``: what PyTorch answers, one text at a time: by sentence-transformers'
SpladePooling, and as PyLate and the original ColBERT compute it. MINILM_FOLDER lends its tokenizer.
"""

import json
import shutil
import string
import sys
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.onnx import main_export
from safetensors.torch import load_file, save_file
from sentence_transformers.sparse_encoder.models import SpladePooling
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

from tests.models.vocabulary import HIDDEN, rounded

WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while"),
    *("two", "lawyers", "drink", "black", "coffee", "in", "the", "old", "town"),
]
TEXTS = [
    "Hello",
    "",
    "   ",
    "The quick brown fox jumps over the lazy dog.",
    "Ça va? 今日は 😀 Привет",
    "a " * 700,
    '?!... --- (punctuation), "only"; [almost]: {nothing} else/here\\',
    "[MASK] [CLS] [SEP] [PAD] [UNK]",
    "x" * 300,
    "\x00\u200b\ufeff e\u0301 \U0001f469\u200d\U0001f4bb \t\r\n tabs",
    *(" ".join(WORDS[i % 19 : i % 19 + 1 + i % 7]) + "!" * (i % 3) for i in range(44)),
]


def config(vocabulary: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        max_position_embeddings=512,
        **HIDDEN,
    )


def splade(source: Path, target: Path, pooling: str | None, activation: str) -> None:
    """BertForMaskedLM whose logits are mostly below 0, as a trained SPLADE's are."""
    torch.manual_seed(7)
    plain = target.with_name(target.name + "_torch")
    tokenizer = AutoTokenizer.from_pretrained(source, model_max_length=256)
    model = BertForMaskedLM(config(len(tokenizer))).eval()
    torch.nn.init.normal_(model.bert.embeddings.word_embeddings.weight, std=0.2)
    model.tie_weights()
    torch.nn.init.constant_(model.cls.predictions.bias, -4.0)
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    main_export(str(plain), target, task="fill-mask", do_validation=False)
    if pooling:
        kinds = [("MLMTransformer", ""), ("SpladePooling", "1_SpladePooling")]
        modules = [
            {
                "idx": n,
                "name": str(n),
                "path": path,
                "type": f"sentence_transformers.sparse_encoder.models.{kind}",
            }
            for n, (kind, path) in enumerate(kinds)
        ]
        write(target / "modules.json", modules)
        settings = {"pooling_strategy": pooling, "activation_function": activation}
        write(target / "1_SpladePooling" / "config.json", settings)
    pool = SpladePooling(pooling or "max", activation).eval()
    answers = []
    for text in TEXTS:
        batch = tokenizer([text], truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits
        features = {"token_embeddings": logits, "attention_mask": batch["attention_mask"]}
        row = pool(features)["sentence_embedding"][0]
        (places,) = row.nonzero(as_tuple=True)
        answers.append({"indices": places.tolist(), "values": row[places].tolist()})
    write(target / "reference.json", {"texts": TEXTS, "answers": answers})
    shutil.rmtree(plain)


def colbert(source: Path, target: Path, layout: str) -> None:
    """BertModel and a Linear of 32 → 16, saved as PyLate or as the original ColBERT does."""
    torch.manual_seed(8)
    plain = target.with_name(target.name + "_torch")
    tokenizer = AutoTokenizer.from_pretrained(source, model_max_length=256)
    query, document = ("[Q] ", "[D] ") if layout == "pylate" else ("[unused0]", "[unused1]")
    if layout == "pylate":
        tokenizer.add_tokens([query, document])
    model = BertModel(config(len(tokenizer)), add_pooling_layer=False).eval()
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=0.5)
    linear = torch.nn.Linear(32, 16, bias=False)
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    main_export(str(plain), target, task="feature-extraction", do_validation=False)
    queries, documents = (24, 100) if layout == "pylate" else (32, 120)
    if layout == "pylate":
        types = ["sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"]
        modules = [
            {"idx": n, "name": str(n), "path": path, "type": kind}
            for n, (kind, path) in enumerate(zip(types, ("", "1_Dense"), strict=True))
        ]
        write(target / "modules.json", modules)
        write(
            target / "1_Dense" / "config.json",
            {
                "in_features": 32,
                "out_features": 16,
                "bias": False,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
        )
        save_file({"linear.weight": linear.weight.detach()}, str(target / "1_Dense" / "model.safetensors"))
        write(
            target / "config_sentence_transformers.json",
            {
                "query_prefix": query,
                "document_prefix": document,
                "query_length": queries,
                "document_length": documents,
                "attend_to_expansion_tokens": False,
                "do_query_expansion": True,
                "skiplist_words": list(string.punctuation),
            },
        )
    else:
        weights = load_file(str(plain / "model.safetensors"))
        save_file({**weights, "linear.weight": linear.weight.detach()}, str(target / "model.safetensors"))
        metadata = {
            "query_token_id": query,
            "doc_token_id": document,
            "query_maxlen": queries,
            "doc_maxlen": documents,
            "dim": 16,
            "mask_punctuation": True,
            "attend_to_mask_tokens": False,
            "similarity": "cosine",
        }
        write(target / "artifact.metadata", metadata)
    skip = torch.tensor(tokenizer.convert_tokens_to_ids(list(string.punctuation)))

    def encode(text: str, marker: str, length: int, expand: bool) -> dict[str, Any]:
        """pylate.models.ColBERT.tokenize and encode; the original's tensorizers give the same ids."""
        padding = "max_length" if expand else False
        if expand:
            tokenizer.pad_token = tokenizer.mask_token
        batch = tokenizer(
            [text], truncation=True, max_length=length - 1, padding=padding, return_tensors="pt"
        )
        number = tokenizer.convert_tokens_to_ids(marker)
        put = {"input_ids": number, "attention_mask": 1, "token_type_ids": 0}
        batch = {
            name: torch.cat([row[:, :1], torch.full((1, 1), put[name]), row[:, 1:]], dim=1)
            for name, row in batch.items()
        }
        with torch.no_grad():
            vectors = linear(model(**batch).last_hidden_state)[0]
        vectors = torch.nn.functional.normalize(vectors, p=2, dim=-1)
        mask = batch["attention_mask"][0].bool() & ~torch.isin(batch["input_ids"][0], skip)
        kept = torch.ones_like(mask) if expand else mask
        return {"vectors": vectors[kept].tolist(), "mask": kept.int().tolist()}

    write(
        target / "reference.json",
        {
            "texts": TEXTS,
            "documents": [encode(text, document, documents, False) for text in TEXTS],
            "queries": [encode(text, query, queries, True) for text in TEXTS],
        },
    )
    shutil.rmtree(plain)


def write(file: Path, document: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rounded(document)))


def main(folder: Path, source: Path) -> None:
    jobs = {
        "splade": lambda target: splade(source, target, None, "relu"),
        "splade_sum": lambda target: splade(source, target, "sum", "log1p_relu"),
        "pylate": lambda target: colbert(source, target, "pylate"),
        "colbert": lambda target: colbert(source, target, "colbert"),
    }
    for name, job in jobs.items():
        if not (folder / name / "reference.json").is_file():
            shutil.rmtree(folder / name, ignore_errors=True)
            job(folder / name)
            print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
