"""The served answers on the device beside those of the CPU: every head, requests of mixed lengths at once.

``reference`` keeps the CPU's answers beside the results, in megabytes that git ignores. The others ask the
same of the device; what the CPU answered may have been computed elsewhere and earlier.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import numpy as np

from gpu_steps import serving
from gpu_steps.step import CPU, ROOT, Setting, StepFailed, read, write
from triton_repo_builder.endpoint.golden.tolerance import ABSOLUTE, HALF
from triton_repo_builder.model.graph import weights
from triton_repo_builder.repository import cases
from triton_repo_builder.run import client
from triton_repo_builder.run.client.codec import encode_binary

MODELS = ROOT / "tests" / "data" / "models"
SMALL = {"pooling": "embedding/minilm_fp32", "classes": "embedding/classifier", "tokens": "tasks/ner"}
ALL = {
    **SMALL,
    "pairs": "tasks/rerank",
    "spans": "tasks/qa",
    "masks": "tasks/mlm",
    "sparse": "retrieval/splade",
    "late": "retrieval/colbert",
    "positions": "tasks/ner_roberta",
    "images": "vision/vit",
}
"""Endpoint and folder of one model for each head."""
ROWS = 32
AT_ONCE = 16
NO_TF32 = (
    '\noptimization { execution_accelerators { gpu_execution_accelerator { name: "cuda" '
    'parameters { key: "use_tf32" value: "0" } } } }\n'
)
"""Both onnxruntime backends hand it to the CUDA provider, which has TF32 on by default."""

Answers = dict[str, dict[str, dict[str, Any]]]
"""By endpoint and digest of the request: the outputs as lists."""


def sources(setting: Setting) -> dict[str, Path]:
    """The exported models by the name of their endpoint."""
    chosen = SMALL if setting.small else ALL
    return {name: MODELS / folder for name, folder in chosen.items()}


def reference(setting: Setting) -> dict[str, Any]:
    """The CPU's answers, whatever the device is; how many requests of each endpoint were asked."""
    with common.scratch() as path:
        for name, source in sources(setting).items():
            common.ours(source, path, name, device=CPU)
        answers = _asked(path)
    write(_kept(setting), answers)
    return {"requests": {name: len(asked) for name, asked in answers.items()}}


def _kept(setting: Setting) -> Path:
    return setting.results / "answers.json"


def fp32(setting: Setting) -> dict[str, Any]:
    """Products in full 32 bits: the tolerance of another kernel or batch."""
    return _compared(setting, tolerance=ABSOLUTE, exact=True, config=NO_TF32)


def tf32(setting: Setting) -> dict[str, Any]:
    """As built: the tolerance that golden cases of a GPU have."""
    return _compared(setting, tolerance=HALF, exact=False)


def fp16(setting: Setting) -> dict[str, Any]:
    """Weights and products of 16 bits, against the CPU's of 32."""
    return _compared(setting, tolerance=4 * HALF, exact=False, half=True)


def _compared(
    setting: Setting, *, tolerance: float, exact: bool, config: str = "", half: bool = False
) -> dict[str, Any]:
    wanted = read(_kept(setting))
    if not wanted:
        raise StepFailed("the CPU's answers are missing: --again reference makes them")
    with common.scratch() as path:
        for name, source in sources(setting).items():
            chosen = halved(name, source, setting) if half else source
            common.ours(chosen, path, name, device=setting.device)
        kind = serving.check_kinds(setting, path)
        for file in path.glob("*_model/config.pbtxt") if config else ():
            text = file.read_text(encoding="utf-8")
            if "optimization" in text:
                raise StepFailed(f"{file.parent.name} has an optimization of its own")
            file.write_text(text + config, encoding="utf-8")
        answers = _asked(path, decisions=exact)
    apart = {name: list(differences(wanted[name], answers[name], exact=exact)) for name in sources(setting)}
    largest = {name: max(values, default=float("inf")) for name, values in apart.items()}
    found = {
        "kind": kind,
        "tolerance": tolerance,
        "requests": {name: len(wanted[name].keys() & answers[name].keys()) for name in apart},
        "largest_difference": {name: min(value, 1e9) for name, value in largest.items()},
    }
    wrong = [f"{name} by {value:.2g}" for name, value in largest.items() if not value <= tolerance]
    if wrong:
        raise StepFailed(
            f"differ from the CPU's answers by more than {tolerance:g}: {', '.join(wrong)}", found
        )
    return found


def halved(name: str, source: Path, setting: Setting) -> Path:
    """The same folder with a model of 16-bit floats."""
    target = setting.cache / "half" / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("model.onnx"))
    weights.halve(source / "model.onnx", target / "model.onnx")
    return target


def _asked(path: Path, *, decisions: bool = True) -> Answers:
    """What a server with these models answers: each golden case, many at once, and one mixed batch.

    Without ``decisions`` an endpoint that answers with words is asked its golden cases alone: only theirs
    were chosen so that rounding turns no decision around.
    """
    requests: list[tuple[str, Mapping[str, Any]]] = []
    for file in sorted(path.glob("*/smoke.json")):
        recorded = cases.load(file)
        asked = [{each.name: each.array() for each in case.inputs} for case in recorded.cases]
        texts = [inputs for inputs in asked if set(inputs) == {"TEXT"}]
        words = any(each.datatype == "BYTES" for case in recorded.cases for each in case.outputs)
        if texts and all(len(inputs["TEXT"]) == 1 for inputs in texts) and (decisions or not words):
            corpus = common.corpus()
            # Before the text, where no truncation loses it.
            mask = b"[MASK] " if all(b"[MASK]" in inputs["TEXT"].item() for inputs in texts) else b""
            mixed = [mask + text.encode() for text in corpus[:: len(corpus) // ROWS][:ROWS]]
            asked.append({"TEXT": np.array(mixed, dtype=object)[:, None]})
            asked += [{"TEXT": np.array([[text]], dtype=object)} for text in mixed]
        requests += [(recorded.endpoint, inputs) for inputs in asked]
    with common.served(path) as server:
        http = client.HttpClient(server.urls.http, 120.0)

        def ask(request: tuple[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
            body = encode_binary(dict(request[1]))
            answer = http.infer(request[0], body)
            digest = hashlib.sha256(body.data).hexdigest()[:16]
            return digest, {name: plain(np.asarray(value)) for name, value in answer.items()}

        with ThreadPoolExecutor(AT_ONCE) as pool:
            given = list(pool.map(ask, requests))
    answers: Answers = {}
    for (name, _), (digest, answer) in zip(requests, given, strict=True):
        answers.setdefault(name, {})[digest] = answer
    return answers


def plain(array: Any) -> list[Any]:
    """As nested lists that JSON takes."""
    if array.dtype == object:
        array = np.vectorize(
            lambda text: text.decode() if isinstance(text, bytes) else text, otypes=[object]
        )(array)
    values: list[Any] = array.tolist()
    return values


def differences(
    wanted: Mapping[str, dict[str, Any]], answers: Mapping[str, dict[str, Any]], *, exact: bool
) -> Iterator[float]:
    """Of each output, in proportion to its largest number (at least 1); infinite where it is another.

    Without ``exact`` only numbers with a fraction are compared: rounding may turn two labels around whose
    scores are alike. Golden cases of 16-bit floats are fewer: only what both were asked is compared.
    """
    for digest in wanted.keys() & answers.keys():
        before, after = wanted[digest], answers[digest]
        if before.keys() != after.keys():
            yield float("inf")
            continue
        for name in before:
            old, new = (np.asarray(without_scores(answer[name])) for answer in (before, after))
            if old.shape != new.shape:
                old, new = _as_long(old, new)
            if old.shape != new.shape:
                yield float("inf")
            elif old.dtype.kind == "f":
                scale = max(1.0, float(np.abs(old).max(initial=0.0)))
                worst = float(np.abs(old - new).max(initial=0.0)) / scale
                yield worst if np.isfinite(worst) else float("inf")
            elif exact and not np.array_equal(old, new):
                yield float("inf")


def without_scores(values: Any) -> Any:
    """The same lists; JSON in a text without its fractions, which have an output of their own."""
    if isinstance(values, list):
        return [without_scores(value) for value in values]
    if isinstance(values, str) and values[:2] in ("[{", "[]"):
        return json.dumps(json.loads(values, parse_float=lambda digits: 0.0))
    return values


def _as_long(old: Any, new: Any) -> tuple[Any, Any]:
    """Both with zeros up to the longer one's tokens, if nothing else tells their shapes apart.

    Late interaction pads with zeros to the longest text of the batch, so the length depends on who was
    joined; a token that one of them lacks is not zero, and shows.
    """
    if old.ndim < 2 or old.ndim != new.ndim or "U" in (old.dtype.kind, new.dtype.kind):
        return old, new
    longest = max(old.shape[1], new.shape[1])
    rest = [(0, 0)] * (old.ndim - 2)
    padded = (np.pad(each, [(0, 0), (0, longest - each.shape[1]), *rest]) for each in (old, new))
    return next(padded), next(padded)
