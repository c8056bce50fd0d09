"""Exports random models of the text tasks and records what the pipelines of transformers answer:

    PYTHONPATH=. .venv-export/bin/python -m tests.models.tasks FOLDER MINILM_FOLDER

Each folder gets a ``reference.json``: the answers of the pipeline on the PyTorch model, by variant.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.onnx import main_export
from sentence_transformers import CrossEncoder
from tokenizers import ByteLevelBPETokenizer, SentencePieceUnigramTokenizer, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForTokenClassification,
    RobertaTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForQuestionAnswering,
    XLMRobertaForTokenClassification,
    pipeline,
)

from tests.models.texts import LABELS, PAIRS, TEXTS
from tests.models.vocabulary import HIDDEN, SPREAD, rounded

warnings.filterwarnings("ignore")
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
AGGREGATIONS = ("none", "simple", "first", "average", "max")
LONG = " ".join(text.strip() for text in TEXTS)


def labels(names: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}


def bert(source: Path, kind: Any, seed: int, **more: Any) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(source)
    config = BertConfig(
        vocab_size=len(tokenizer),
        initializer_range=SPREAD,
        **HIDDEN,
        **more,
    )
    tokenizer.model_max_length = 512
    return spread(kind(config)), tokenizer


def roberta(folder: Path, kind: Any, seed: int, **more: Any) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(TEXTS, vocab_size=600, min_frequency=1, special_tokens=special)
    bpe.save_model(str(folder))
    tokenizer = RobertaTokenizerFast(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=256
    )
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=258,
        type_vocab_size=1,
        initializer_range=SPREAD,
        **HIDDEN,
        **more,
    )
    return spread(kind(config)), tokenizer


def unigram(kind: Any, seed: int, **more: Any) -> tuple[Any, Any]:
    """As XLM-R: SentencePiece pieces with a mark for their space, two separators in a pair, pad id 1."""
    torch.manual_seed(seed)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made = SentencePieceUnigramTokenizer()
    made.train_from_iterator(
        [*TEXTS, *(" ".join(pair) for pair in PAIRS)],
        vocab_size=900,
        special_tokens=[*special, "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer,
        cls_token="<s>",
        sep_token="</s>",
        mask_token="<mask>",
        model_max_length=256,
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=258,
        type_vocab_size=1,
        initializer_range=SPREAD,
        **HIDDEN,
        **more,
    )
    return spread(kind(config)), tokenizer


def spread(model: Any) -> Any:
    """Larger weights in the last layer and in the embeddings: answers that differ, and are no near ties."""
    for name, parameter in model.named_parameters():
        if name.endswith(
            ("pooler.dense.weight", "classifier.weight", "qa_outputs.weight", "out_proj.weight")
        ):
            torch.nn.init.normal_(parameter, std=0.6)
        elif "word_embeddings" in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def export(target: Path, task: str, model: Any, tokenizer: Any) -> Any:
    plain = target.with_name(target.name + "_torch")
    model.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    main_export(str(plain), target, task=task, library_name="transformers", do_validation=False)
    shutil.rmtree(plain)
    return model, tokenizer


def write(target: Path, document: dict[str, Any]) -> None:
    (target / "reference.json").write_text(json.dumps(rounded(document), ensure_ascii=False))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def ner(target: Path, model: Any, tokenizer: Any) -> None:
    export(target, "token-classification", model, tokenizer)
    texts = [*TEXTS, "", LONG]
    document = {"texts": texts}
    for aggregation in AGGREGATIONS:
        ask = pipeline("ner", model=model, tokenizer=tokenizer, aggregation_strategy=aggregation)
        document[aggregation] = [plain(ask(text)) for text in texts]
    write(target, document)


def qa(target: Path, model: Any, tokenizer: Any) -> None:
    export(target, "question-answering", model, tokenizer)
    ask = pipeline("question-answering", model=model, tokenizer=tokenizer)
    pairs = [*PAIRS, ("Where does he live?", LONG), ("Wo?", LONG + LONG), ("Who met in Berlin?", LONG[:900])]
    write(
        target,
        {
            "pairs": pairs,
            "plain": [plain(ask(question=q, context=c)) for q, c in pairs],
            "impossible": [
                plain(ask(question=q, context=c, handle_impossible_answer=True)) for q, c in pairs
            ],
        },
    )


def mlm(target: Path, model: Any, tokenizer: Any) -> None:
    export(target, "fill-mask", model, tokenizer)
    ask = pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=5)
    mask = tokenizer.mask_token
    texts = [f"{text} {mask}." for text in TEXTS] + [f"{mask} and {text} or {mask}" for text in TEXTS[:20]]
    answers = []
    for text in texts:
        found = ask(text)
        rows = found if isinstance(found[0], list) else [found]
        answers.append(
            [[{key: item[key] for key in ("token", "token_str", "score")} for item in row] for row in rows]
        )
    write(target, {"texts": texts, "answers": answers})


def nli(target: Path, source: Path) -> None:
    model, tokenizer = bert(
        source, BertForSequenceClassification, 4, **labels(["contradiction", "neutral", "entailment"])
    )
    export(target, "text-classification", model, tokenizer)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    shot = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    texts = [*TEXTS, LONG]
    document: dict[str, Any] = {"pairs": PAIRS, "texts": texts, "labels": LABELS}
    document["single"] = [plain(classify(text, truncation=True)) for text in texts]
    document["paired"] = [plain(classify({"text": a, "text_pair": b}, truncation=True)) for a, b in PAIRS]
    for name, multi in (("shot", False), ("shot_multi", True)):
        document[name] = [
            plain(shot(text, LABELS[number % len(LABELS)], multi_label=multi))
            for number, text in enumerate(texts)
        ]
    write(target, document)


def regression(target: Path, source: Path) -> None:
    model, tokenizer = bert(source, BertForSequenceClassification, 5, num_labels=1, problem_type="regression")
    export(target, "text-classification", model, tokenizer)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    write(target, {"texts": TEXTS, "answers": [plain(classify(text))[0] for text in TEXTS]})


def cross_encoder(target: Path, source: Path, activation: Any) -> None:
    plain_folder = target.with_name(target.name + "_ce")
    model, tokenizer = bert(source, BertForSequenceClassification, 6, num_labels=1)
    model.save_pretrained(plain_folder)
    tokenizer.save_pretrained(plain_folder)
    encoder = CrossEncoder(str(plain_folder), device="cpu", activation_fn=activation)
    encoder.save_pretrained(str(plain_folder))
    main_export(
        str(plain_folder),
        target,
        task="text-classification",
        library_name="transformers",
        do_validation=False,
    )
    for name in ("config_sentence_transformers.json",):
        if (plain_folder / name).is_file():
            shutil.copyfile(plain_folder / name, target / name)
    pairs = [*PAIRS, (LONG, LONG[::-1])]
    scores = [float(encoder.predict([pair])[0]) for pair in pairs]
    shutil.rmtree(plain_folder)
    write(target, {"pairs": pairs, "scores": scores})


def decoder(target: Path, source: Path, task: str) -> None:
    """Text generation, which has no answers here: trb refuses it."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    size = len(tokenizer)
    if task.startswith("text2text"):
        config = T5Config(
            vocab_size=size, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        export(target, task, T5ForConditionalGeneration(config), tokenizer)
    else:
        config = GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        export(target, task, GPT2LMHeadModel(config), tokenizer)
    write(target, {})


def main(folder: Path, source: Path) -> None:
    def bpe(name: str) -> Path:
        return folder / "_bpe" / name

    jobs: dict[str, Any] = {
        "ner": lambda t: ner(t, *bert(source, BertForTokenClassification, 1, **labels(TAGS))),
        "ner_roberta": lambda t: ner(
            t, *roberta(bpe("ner"), RobertaForTokenClassification, 1, **labels(TAGS))
        ),
        "qa": lambda t: qa(t, *bert(source, BertForQuestionAnswering, 2)),
        "qa_roberta": lambda t: qa(t, *roberta(bpe("qa"), RobertaForQuestionAnswering, 2)),
        "mlm": lambda t: mlm(t, *bert(source, BertForMaskedLM, 3)),
        "mlm_roberta": lambda t: mlm(t, *roberta(bpe("mlm"), RobertaForMaskedLM, 3)),
        "ner_unigram": lambda t: ner(t, *unigram(XLMRobertaForTokenClassification, 1, **labels(TAGS))),
        "qa_unigram": lambda t: qa(t, *unigram(XLMRobertaForQuestionAnswering, 2)),
        "mlm_unigram": lambda t: mlm(t, *unigram(XLMRobertaForMaskedLM, 3)),
        "nli": lambda t: nli(t, source),
        "regression": lambda t: regression(t, source),
        "rerank": lambda t: cross_encoder(t, source, None),
        "rerank_identity": lambda t: cross_encoder(t, source, torch.nn.Identity()),
        "gpt2": lambda t: decoder(t, source, "text-generation"),
        "gpt2_past": lambda t: decoder(t, source, "text-generation-with-past"),
        "t5_past": lambda t: decoder(t, source, "text2text-generation-with-past"),
    }
    for name, job in jobs.items():
        if not (folder / name / "reference.json").is_file():
            shutil.rmtree(folder / name, ignore_errors=True)
            job(folder / name)
            print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
