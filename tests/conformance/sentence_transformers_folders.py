"""Folders of sentence-transformers, served: the numbers of ``encode`` and ``predict``, or a refusal.

``make sentence-transformers`` runs ``record FOLDER`` in .venv-export and ``compare FOLDER`` in .venv.

``record`` saves small models with random weights, exports each with optimum, which leaves their files behind,
and writes the library's answers to hostile texts. ``compare`` builds with ``--from-model``, asks a server and
writes a section of docs/tasks.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from conformance.inputs import DOCUMENTS, TEXTS

NEAR = 1e-4
ROWS = 8
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
HEADING = "## Folders of sentence-transformers\n"
ABOUT = """
`make sentence-transformers`: models that sentence-transformers 5.7 saved, exported by optimum, built with
`--from-model`, against `encode` and `predict` on hostile texts, alone and eight in a request. The number of
texts and the largest difference, or why the build refuses it.

| folder | | |
|---|---|---|
"""
ANSWERS, REFUSAL = "answers.json", "refusal.txt"
PROMPTED: dict[str, Any] = {
    "prompts": {"query": "question: "},
    "default_prompt_name": "query",
    "truncate_dim": 20,
}
FORM = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
"""A chat template."""


def record(folder: Path) -> None:
    """Make, export and ask every model."""
    torch: Any = import_module("torch")
    library: Any = import_module("sentence_transformers")
    parts: Any = import_module("sentence_transformers.sentence_transformer.modules")
    scores: Any = import_module("sentence_transformers.cross_encoder.modules")
    torch.manual_seed(0)
    bert, scored = _bert(folder / "bert"), _bert(folder / "scored", labels=1)
    plain = folder / "plain"

    def dense(inputs: int, outputs: int, activation: str = "Tanh", **names: str) -> Any:
        function = getattr(torch.nn, activation)()
        return parts.Dense(inputs, outputs, activation_function=function, **names)

    def norm(width: int) -> Any:
        made = parts.LayerNorm(width)
        torch.nn.init.normal_(made.norm.weight)
        torch.nn.init.normal_(made.norm.bias)
        return made

    unit = parts.Normalize
    after: dict[str, tuple[Any, ...]] = {
        "mean_sqrt_len": (parts.Pooling(32, "mean_sqrt_len_tokens"),),
        "several_poolings": (parts.Pooling(32, ("weightedmean", "cls", "max", "mean")), unit()),
        "pooling_before_layers": (parts.Pooling(32, ["cls", "lasttoken"]), dense(64, 16, "ELU"), unit()),
        "dropout": (parts.Pooling(32, "mean"), parts.Dropout(0.3), unit()),
        "layer_norm": (parts.Pooling(32, "mean"), norm(32), unit()),
        "gelu": (parts.Pooling(32, "mean"), dense(32, 48, "GELU"), norm(48), dense(48, 16, "SiLU")),
        "normalize_first": (parts.Pooling(32, "cls"), unit(), dense(32, 20, "Identity"), unit()),
        "softplus": (
            parts.Pooling(32, "max"),
            dense(32, 8, "Softplus"),
            parts.Dropout(0.1),
            dense(8, 8, "Mish"),
        ),
        "cnn": (parts.CNN(32, 16, [1, 3]), parts.Pooling(32, "mean")),
    }
    for name, modules in after.items():
        made = library.SentenceTransformer(modules=[_transformer(parts, bert), *modules], device="cpu")
        _embeddings(made, plain / name, folder / name)
    (folder / "cnn" / REFUSAL).write_text("the sentence-transformers module 'CNN' is not supported")

    pooled_text = parts.Pooling(32, ("weightedmean", "cls"), include_prompt=False)
    prompted = library.SentenceTransformer(
        modules=[_transformer(parts, bert), pooled_text, parts.Normalize()],
        prompts={"query": "question: "},
        default_prompt_name="query",
        truncate_dim=40,
        device="cpu",
    )
    _embeddings(prompted, plain / "prompted", folder / "prompted")
    _static(library, parts, folder)
    causal = _causal(folder / "causal")
    made = library.SentenceTransformer(
        modules=[_transformer(parts, causal), parts.Pooling(32, "lasttoken"), unit()], device="cpu"
    )
    _embeddings(made, plain / "decoder", folder / "decoder")
    cut = parts.Transformer(str(bert), processing_kwargs={"text": {"max_length": 12}})
    made = library.SentenceTransformer(modules=[cut, parts.Pooling(32, "mean")], device="cpu")
    _embeddings(made, plain / "cut", folder / "cut")

    # Releases before 5.4 kept the length in sentence_bert_config.json; before 1.0 its name had the model's.
    for name, file in (("short", "sentence_bert_config.json"), ("shorter", "sentence_roberta_config.json")):
        made = library.SentenceTransformer(modules=[_transformer(parts, bert), parts.Pooling(32, "mean")])
        made.save_pretrained(str(plain / name))
        (plain / name / "sentence_bert_config.json").unlink()
        (plain / name / file).write_text(json.dumps({"max_seq_length": 16, "do_lower_case": False}))
        _embeddings(library.SentenceTransformer(str(plain / name), device="cpu"), None, folder / name)
        # The original has no tokenizer, or only the files of a slow one.
        removed = ("*token*", "vocab.txt") if name == "short" else ("tokenizer.json",)
        for file_of_tokenizer in (path for pattern in removed for path in plain.joinpath(name).glob(pattern)):
            file_of_tokenizer.unlink()
    shutil.copyfile(bert / "vocab.txt", plain / "shorter" / "vocab.txt")

    pooled = [
        _transformer(parts, bert),
        parts.Pooling(32, ("cls", "mean")),
        dense(64, 32, "GELU"),
        dense(32, 1, "Identity", module_output_name="scores"),
    ]
    _scores(library.CrossEncoder(modules=pooled, device="cpu"), plain / "pooled", folder / "pooled")
    for name, activation in (("logits", "Sigmoid"), ("bare", "Identity")):
        made = library.CrossEncoder(str(scored), device="cpu", activation_fn=getattr(torch.nn, activation)())
        _scores(made, plain / name, folder / name)

    formed = folder / "formed"
    for task, source in (("embedding", bert), ("rerank", scored)):
        shutil.copytree(source, formed, dirs_exist_ok=True)
        (formed / "chat_template.jinja").write_text(FORM)
        target = folder / f"chat_template_{task}"
        if task == "rerank":
            _scores(library.CrossEncoder(str(formed), device="cpu"), plain / target.name, target)
        else:
            _embeddings(library.SentenceTransformer(str(formed), device="cpu"), plain / target.name, target)
        (target / REFUSAL).write_text("renders each text by the chat template")
    made = library.CrossEncoder(
        modules=[
            parts.Transformer(str(causal), transformer_task="text-generation"),
            scores.LogitScore(true_token_id=5, false_token_id=6),
        ]
    )
    _scores(made, plain / "generative", folder / "generative", export="text-generation")
    (folder / "generative" / REFUSAL).write_text("this is a generative reranker")
    routes = {"query": [_transformer(parts, bert)], "document": [_transformer(parts, bert)]}
    router = parts.Router(routes, default_route="document")
    made = library.SentenceTransformer(modules=[router, parts.Pooling(32, "mean")], device="cpu")
    _embeddings(
        made, plain / "router", folder / "router", exported=plain / "router" / "document_0_Transformer"
    )
    (folder / "router" / REFUSAL).write_text("the sentence-transformers module 'Router' is not supported")


def _static(library: Any, parts: Any, folder: Path) -> None:
    """Tables of vectors for tokens, whose mean is the embedding; the graph is that of Model2Vec's export."""
    bag: Any = import_module("tests.models.embedding").bag
    vocabulary: Any = import_module("tokenizers").Tokenizer.from_file(str(folder / "bert" / "tokenizer.json"))
    cut: Any = import_module("tokenizers").Tokenizer.from_str(vocabulary.to_str())
    cut.enable_truncation(12)
    made = {"static": (vocabulary, (), {}), "static_prompt": (cut, (parts.Normalize(),), PROMPTED)}
    for name, (tokenizer, modules, settings) in made.items():
        table = parts.StaticEmbedding(tokenizer, embedding_dim=24)
        model = library.SentenceTransformer(modules=[table, *modules], device="cpu", **settings)
        model.save_pretrained(str(folder / "plain" / name))
        (folder / name).mkdir()
        bag(table.embedding, folder / name / "model.onnx")
        answers = [model.encode([text])[0].tolist() for text in TEXTS]
        (folder / name / ANSWERS).write_text(json.dumps({"embedding": answers}))


def _transformer(parts: Any, folder: Path) -> Any:
    return parts.Transformer(str(folder))


def _bert(folder: Path, labels: int = 0) -> Path:
    transformers: Any = import_module("transformers")
    tokenizer = _vocabulary(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=128, initializer_range=0.2, **sizes
    )
    if labels:
        config.num_labels = labels
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    else:
        transformers.BertModel(config).save_pretrained(folder)
    return folder


def _causal(folder: Path) -> Path:
    transformers: Any = import_module("transformers")
    tokenizer = _vocabulary(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=128, **sizes
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def _vocabulary(folder: Path) -> Any:
    families: Any = import_module("conformance.families")
    tokenizer = families.make("wordpiece", folder, {"model_max_length": 128})
    tokenizer.save_pretrained(folder)
    return tokenizer


def _embeddings(model: Any, saved: Path | None, target: Path, exported: Path | None = None) -> None:
    if saved is not None:
        model.save_pretrained(str(saved))
    place = exported or saved or target.parent / "plain" / target.name
    _export(place, target, "feature-extraction")
    answers = [model.encode([text])[0].tolist() for text in TEXTS]
    target.joinpath(ANSWERS).write_text(json.dumps({"embedding": answers}))


def _scores(model: Any, saved: Path, target: Path, export: str = "") -> None:
    model.save_pretrained(str(saved))
    logits = "Classification" in type(model[0].model).__name__
    _export(saved, target, export or ("text-classification" if logits else "feature-extraction"))
    answers = [[float(model.predict([pair])[0])] for pair in DOCUMENTS]
    target.joinpath(ANSWERS).write_text(json.dumps({"score": answers}))


def _export(folder: Path, target: Path, task: str) -> None:
    exporters: Any = import_module("optimum.exporters.onnx")
    exporters.main_export(str(folder), target, task=task, library_name="transformers", do_validation=False)


def compare(folder: Path) -> int:
    """How many models are answered otherwise, or refused otherwise."""
    serve: Any = import_module("triton_repo_builder.run.serve")
    client_of: Any = import_module("triton_repo_builder.run.client.grpc").GrpcClient
    repository = folder / "model_repository"
    shutil.rmtree(repository, ignore_errors=True)
    wrong, built = 0, []
    rows: list[str] = []
    for name in sorted(path.parent.name for path in folder.glob(f"*/{ANSWERS}")):
        expected = folder / name / REFUSAL
        message = _build(folder, name, repository)
        refusal = expected.read_text() if expected.is_file() else ""
        if not message and not refusal:
            built.append(name)
            continue
        right = bool(refusal) and refusal in message
        wrong += not right
        rows.append(f"| {name} | {'*refused*' if right else '**FAIL**'} | {refusal} |\n")
        sys.stdout.write(f"{'refused' if right else 'WRONG  '} {name}: {message.strip()}\n")
    options = serve.ServeOptions(http_port=0, grpc_port=0, metrics_port=0)
    with serve.start(repository, options) as server:
        client = client_of(server.urls.grpc, 120)
        for name in built:
            (output, answers), *_ = json.loads((folder / name / ANSWERS).read_text()).items()
            moved = max(_moved(client, name, output, np.array(answers)))
            wrong += moved > NEAR
            state = "same   " if moved <= NEAR else "WRONG  "
            sys.stdout.write(f"{state} {name}: {len(answers)} answers, largest difference {moved:.1e}\n")
            same = f"{len(answers)}, {moved:.0e}" if moved <= NEAR else f"**FAIL** {moved:.0e}"
            rows.append(f"| {name} | {same} | {output} |\n")
        client.close()
    page = PAGE.read_text(encoding="utf-8").split(HEADING)[0].rstrip()
    PAGE.write_text(f"{page}\n\n{HEADING}{ABOUT}{''.join(sorted(rows))}", encoding="utf-8")
    return wrong


def _build(folder: Path, name: str, repository: Path) -> str:
    """What ``trb build`` refuses it with; empty if it does not."""
    cli: Any = import_module("triton_repo_builder.cli")
    argv = ["build", "--model", str(folder / name), "--from-model", str(folder / "plain" / name)]
    argv += ["--output", str(repository), "--name", name, "--instances", "1"]
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(argv)
        except SystemExit as stop:
            return error.getvalue() if stop.code else ""
    return ""


def _moved(client: Any, name: str, output: str, answers: Any) -> Iterator[float]:
    """The largest difference, each text alone and several in a request."""
    fields = ("QUERY", "DOCUMENT") if output == "score" else ("TEXT",)
    asked: Sequence[Sequence[str]] = DOCUMENTS if output == "score" else [(text,) for text in TEXTS]
    for size in (1, ROWS):
        for start in range(0, len(asked), size):
            rows = asked[start : start + size]
            inputs = {field: _texts([row[n] for row in rows]) for n, field in enumerate(fields)}
            found = client.infer(name, inputs)[output]
            yield float(np.abs(found - answers[start : start + size]).max())


def _texts(texts: Sequence[str]) -> Any:
    array = np.empty((len(texts), 1), dtype=object)
    array[:, 0] = [text.encode() for text in texts]
    return array


if __name__ == "__main__":
    place = Path(sys.argv[2])
    sys.exit(compare(place) if sys.argv[1] == "compare" else record(place))
