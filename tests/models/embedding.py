"""Embeddings and classifiers around one sentence-transformers model. Runs in .venv-export:

    PYTHONPATH=. .venv-export/bin/python -m tests.models.embedding FOLDER MINILM_FOLDER

``make models`` gives it a cut model, the benchmarks and ``make test-all`` all-MiniLM-L6-v2 itself. One folder
per model, each with ``reference.json``: what the original PyTorch model answers.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from optimum.exporters.onnx import main_export
from sentence_transformers import SentenceTransformer, models
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizerFast,
)

from tests.models.vocabulary import HIDDEN, rounded

TEXTS = [
    "Hello",
    "",
    "The quick brown fox jumps over the lazy dog.",
    "Ça va? 今日は 😀 Привет",
    "a " * 400,
    "How do I reset my password if I no longer have access to my e-mail?",
]


def embeddings(folder: Path) -> list[list[float]]:
    """Mean pooling and normalisation as the model card shows it, one text at a time, in PyTorch."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    answers = []
    for text in TEXTS:
        batch = tokenizer([text], truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).float()
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        answers.append(torch.nn.functional.normalize(pooled, dim=1)[0].tolist())
    return answers


def size(source: Path) -> int:
    """Values in a vector of the model."""
    return int(json.loads((source / "config.json").read_text())["hidden_size"])


def minilm(source: Path, target: Path) -> None:
    """all-MiniLM-L6-v2, fp32, by optimum: token vectors out, pooling left to us."""
    main_export(
        str(source), target, task="feature-extraction", library_name="transformers", do_validation=False
    )
    shutil.copytree(source / "1_Pooling", target / "1_Pooling")
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copyfile(source / name, target / name)
    write(target, "embedding", embeddings(source))


def minilm_pooled(source: Path, target: Path) -> None:
    """The same by optimum's sentence-transformers export: pooled inside the graph."""
    main_export(
        str(source),
        target,
        task="sentence-similarity",
        library_name="sentence_transformers",
        do_validation=False,
    )
    write(target, "embedding", embeddings(source))


def minilm_dense(source: Path, target: Path) -> None:
    """The same with a random Dense layer to fewer values and Tanh; saved by sentence-transformers."""
    torch.manual_seed(0)
    values = size(source)
    parts = [
        models.Transformer(str(source), max_seq_length=256),
        models.Pooling(values, "mean"),
        models.Dense(values, min(64, values * 3 // 4), activation_function=torch.nn.Tanh()),
        models.Normalize(),
    ]
    model = SentenceTransformer(modules=parts, device="cpu")
    plain = target.with_name(target.name + "_torch")
    model.save(str(plain))
    main_export(
        str(plain), target, task="feature-extraction", library_name="transformers", do_validation=False
    )
    for name in ("1_Pooling", "2_Dense"):
        shutil.copytree(plain / name, target / name)
    for name in ("modules.json", "sentence_bert_config.json"):
        shutil.copyfile(plain / name, target / name)
    write(target, "embedding", [model.encode([text])[0].tolist() for text in TEXTS])
    shutil.rmtree(plain)


def prompted(source: Path, target: Path, pooling: str, *, include: bool) -> None:
    """The same, but its files ask for a prompt, for fewer values, and lower case beside a cased tokenizer.

    ``include``: whether the prompt's tokens are pooled, as those of Instructor models are not.
    """
    cased = target.with_name(target.name + "_cased")
    shutil.copytree(source, cased)
    for name, entry, key in (
        ("tokenizer.json", "normalizer", "lowercase"),
        ("tokenizer_config.json", "", "do_lower_case"),
    ):
        document = json.loads((cased / name).read_text())
        (document[entry] if entry else document)[key] = False
        (cased / name).write_text(json.dumps(document))
    parts = [
        models.Transformer(str(cased), max_seq_length=256, do_lower_case=True),
        models.Pooling(size(source), pooling, include_prompt=include),
        models.Normalize(),
    ]
    prompts = {"passage": "passage: ", "question": "Represent the Question: "}
    model = SentenceTransformer(
        modules=parts,
        prompts=prompts,
        default_prompt_name="question",
        device="cpu",
        truncate_dim=min(64, size(source) // 2),
    )
    plain = target.with_name(target.name + "_torch")
    model.save(str(plain))
    main_export(
        str(plain), target, task="feature-extraction", library_name="transformers", do_validation=False
    )
    shutil.copytree(plain / "1_Pooling", target / "1_Pooling")
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        shutil.copyfile(plain / name, target / name)
    # As releases before 5.4 saved it: the flag beside a tokenizer that keeps case.
    shutil.copyfile(cased / "tokenizer.json", target / "tokenizer.json")
    limits = {"max_seq_length": 256, "do_lower_case": True}
    (target / "sentence_bert_config.json").write_text(json.dumps(limits))
    write(target, "embedding", [model.encode([text])[0].tolist() for text in TEXTS])
    other = [model.encode([text], prompt_name="passage")[0].tolist() for text in TEXTS]
    (target / "passage.json").write_text(json.dumps(rounded(other)))
    shutil.rmtree(plain)
    shutil.rmtree(cased)


def static(source: Path, target: Path) -> None:
    """A table of random vectors and their mean, saved by sentence-transformers."""
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    table = models.StaticEmbedding(tokenizer, embedding_dim=16)
    model = SentenceTransformer(modules=[table, models.Normalize()], device="cpu")
    model.save_pretrained(str(target))
    bag(table.embedding, target / "model.onnx")
    write(target, "embedding", [model.encode([text])[0].tolist() for text in TEXTS])
    for name in ("model.safetensors", "README.md"):
        (target / name).unlink()


def bag(module: torch.nn.Module, path: Path) -> None:
    """The names and axes of Model2Vec's scripts/export_to_onnx.py."""
    torch.onnx.export(
        module.eval(),
        (torch.tensor([1, 2, 3]), torch.tensor([0, 1])),
        str(path),
        input_names=["input_ids", "offsets"],
        output_names=["embeddings"],
        dynamic_axes={
            "input_ids": {0: "num_tokens"},
            "offsets": {0: "batch_size"},
            "embeddings": {0: "batch_size"},
        },
        opset_version=14,
        dynamo=False,
    )


def roberta(target: Path) -> None:
    """RobertaForSequenceClassification with random weights: byte-level BPE, pad id 1, positions from 2."""
    torch.manual_seed(0)
    plain = target.with_name(target.name + "_torch")
    plain.mkdir(parents=True, exist_ok=True)
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(TEXTS, vocab_size=400, min_frequency=1, special_tokens=special)
    bpe.save_model(str(plain))
    tokenizer = RobertaTokenizerFast(
        str(plain / "vocab.json"), str(plain / "merges.txt"), model_max_length=128
    )
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=130,
        type_vocab_size=1,
        num_labels=4,
        **HIDDEN,
    )
    model = RobertaForSequenceClassification(config).eval()
    torch.nn.init.normal_(model.classifier.out_proj.weight, std=1.0)
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    main_export(str(plain), target, task="text-classification", do_validation=False)
    answers = []
    for text in TEXTS:
        batch = tokenizer([text], truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            answers.append(model(**batch).logits[0].softmax(0).tolist())
    write(target, "scores", answers)
    shutil.rmtree(plain)


def classifier(source: Path, target: Path, labels: int, problem: str | None) -> None:
    """BertForSequenceClassification with random weights and the same tokenizer."""
    torch.manual_seed(labels)
    tokenizer = AutoTokenizer.from_pretrained(source)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_labels=labels,
        problem_type=problem,
        **HIDDEN,
    )
    config.id2label = {number: f"label {number}" for number in range(labels)}
    config.label2id = {name: number for number, name in config.id2label.items()}
    plain = target.with_name(target.name + "_torch")
    model = BertForSequenceClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight, std=1.0)  # spread the scores, so that labels differ
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    main_export(str(plain), target, task="text-classification", do_validation=False)
    tokenizer = AutoTokenizer.from_pretrained(plain)
    model = AutoModelForSequenceClassification.from_pretrained(plain).eval()
    answers = []
    for text in TEXTS:
        batch = tokenizer([text], truncation=True, max_length=512, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits[0]
        scores = (
            torch.sigmoid(logits)
            if problem == "multi_label_classification" or labels == 1
            else logits.softmax(0)
        )
        answers.append(scores.tolist())
    write(target, "scores", answers)
    shutil.rmtree(plain)


def write(target: Path, output: str, answers: list[list[float]]) -> None:
    document = {"texts": TEXTS, "output": output, "answers": rounded(answers)}
    (target / "reference.json").write_text(json.dumps(document))


def main(folder: Path, source: Path) -> None:
    jobs = {
        "minilm_fp32": lambda target: minilm(source, target),
        "minilm_pooled": lambda target: minilm_pooled(source, target),
        "minilm_dense": lambda target: minilm_dense(source, target),
        "minilm_prompt": lambda target: prompted(source, target, "mean", include=True),
        "minilm_instructor": lambda target: prompted(source, target, "weightedmean", include=False),
        "static": lambda target: static(source, target),
        "roberta": roberta,
        "classifier": lambda target: classifier(source, target, 3, "single_label_classification"),
        "classifier_multi": lambda target: classifier(source, target, 12, "multi_label_classification"),
        "classifier_one": lambda target: classifier(source, target, 1, None),
    }
    for name, job in jobs.items():
        if not (folder / name / "reference.json").is_file():
            shutil.rmtree(folder / name, ignore_errors=True)
            job(folder / name)
            print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
