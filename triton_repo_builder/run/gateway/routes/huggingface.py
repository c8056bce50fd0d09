"""The API that ``huggingface_hub.InferenceClient`` speaks to an endpoint's URL, for every task.

The client posts to the URL itself and names no task: the endpoint, or else the body, says which one it is.
Paths: ``/``, ``/models/NAME``, ``/models/NAME/pipeline/TASK``, ``/pipeline/TASK``, ``/pipeline/TASK/NAME``.
TEI's routes of one endpoint are below ``/models/NAME`` as well.
"""

from __future__ import annotations

from triton_repo_builder.run.gateway import recognition, refusal
from triton_repo_builder.run.gateway.call import Call, Reply, Route
from triton_repo_builder.run.gateway.catalogue import Served, shown
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.routes import huggingface_files as files
from triton_repo_builder.run.gateway.routes import huggingface_texts as texts
from triton_repo_builder.run.gateway.routes import tei
from triton_repo_builder.run.gateway.routes.huggingface_fields import body
from triton_repo_builder.run.gateway.routes.tei_fields import Document, Task, endpoint, statuses
from triton_repo_builder.run.gateway.routes.tei_service import health, info

PIPELINE = "/pipeline/"
BY_TASK: dict[str, Task] = {
    recognition.EMBEDDING: texts.feature_extraction,
    recognition.RERANK: tei.rerank,
    recognition.CLASSIFICATION: texts.text_classification,
    recognition.ENTITIES: texts.token_classification,
    recognition.QUESTION_ANSWERING: texts.question_answering,
    recognition.FILL_MASK: texts.fill_mask,
    recognition.ZERO_SHOT: texts.zero_shot_classification,
    recognition.SPARSE: tei.embed_sparse,
    recognition.LATE_INTERACTION: tei.embed_all,
    recognition.IMAGE_CLASSIFICATION: files.image_classification,
    recognition.IMAGE_EMBEDDING: files.image_feature_extraction,
    recognition.OBJECT_DETECTION: files.object_detection,
    recognition.SEGMENTATION: files.image_segmentation,
    recognition.ZERO_SHOT_IMAGE: files.zero_shot_image_classification,
    recognition.AUDIO_CLASSIFICATION: files.audio_classification,
    recognition.SPEECH: files.automatic_speech_recognition,
}
"""Task of an endpoint → what answers a request that names no task."""
PIPELINES: dict[str, Task] = {
    "feature-extraction": texts.feature_extraction,
    "sentence-similarity": tei.similarity,
    "text-classification": texts.text_classification,
    "sentiment-analysis": texts.text_classification,
    "token-classification": texts.token_classification,
    "ner": texts.token_classification,
    "question-answering": texts.question_answering,
    "fill-mask": texts.fill_mask,
    "zero-shot-classification": texts.zero_shot_classification,
    "text-ranking": tei.rerank,
    "image-feature-extraction": files.image_feature_extraction,
    "image-classification": files.image_classification,
    "object-detection": files.object_detection,
    "image-segmentation": files.image_segmentation,
    "zero-shot-image-classification": files.zero_shot_image_classification,
    "audio-classification": files.audio_classification,
    "automatic-speech-recognition": files.automatic_speech_recognition,
}
OF_TEXT = {
    recognition.CLASSIFICATION: {"function_to_apply", "top_k"},
    recognition.ENTITIES: {"aggregation_strategy", "ignore_labels"},
    recognition.FILL_MASK: {"targets", "top_k"},
}
"""Task of a text alone → its parameters: InferenceClient sends an empty table if none is set."""
IMAGES = tuple(s.task for s in recognition.SIGNATURES if "IMAGE" in s.inputs)
SOUNDS = tuple(s.task for s in recognition.SIGNATURES if "AUDIO" in s.inputs)


async def root(call: Call) -> Reply:
    """``POST /``."""
    with statuses():
        return await _answer(call, body(call))


async def of_model(call: Call) -> Reply:
    """``POST /models/NAME``, ``/models/NAME/pipeline/TASK`` and ``/models/NAME/embed``."""
    name, last = _split(call.parameter)
    _check_path(call, name)
    with statuses():
        if last in tei.POSTED:
            return await tei.POSTED[last](call, {**call.document(), "model": name})
        return await _answer(call, {**body(call), "model": name}, last)


async def about_model(call: Call) -> Reply:
    """``GET /models/NAME/info`` and ``/models/NAME/health``."""
    name, _, last = call.parameter.rpartition("/")
    if last == "info":
        return await info(call, name)
    if last == "health":
        return await health(call, name)
    _check_path(call, call.parameter)
    raise Refusal(
        404, f"there is no {call.path:.80}; GET /openapi.json lists what there is", code="not_found"
    )


def _check_path(call: Call, name: str) -> None:
    """Raises ``Refusal`` for an endpoint's name with a path after it; an alias may have slashes itself."""
    catalogue = call.gateway.catalogue
    endpoint, rest = name, ""
    while "/" in endpoint and not catalogue.has(endpoint):
        endpoint, _, last = endpoint.rpartition("/")
        rest = f"/{last}{rest}"
    if rest and catalogue.has(endpoint):
        below = ", ".join(f"/{each}" for each in tei.POSTED)
        raise Refusal(
            404,
            f"there is no route {rest:.80} below /models/{endpoint}; there are {below}, {PIPELINE}TASK, and "
            "GET /info and /health. Other routes take `model` in the body",
            code="not_found",
        )


async def pipeline(call: Call) -> Reply:
    """``POST /pipeline/TASK`` and ``/pipeline/TASK/NAME``."""
    task, _, name = call.parameter.partition("/")
    with statuses():
        return await _answer(call, {**body(call), **({"model": name} if name else {})}, task)


def _split(path: str) -> tuple[str, str]:
    """NAME, and TASK or the last part of one of TEI's paths, of what follows ``/models/``."""
    name, separator, task = path.partition(PIPELINE)
    if separator:
        return name, task
    name, _, last = path.rpartition("/")
    return (name, last) if name and last in tei.POSTED else (path, "")


async def _answer(call: Call, document: Document, task: str = "") -> Reply:
    if task:
        if task not in PIPELINES:
            raise Refusal(
                404, f"there is no task '{task:.40}'; use one of {', '.join(PIPELINES)}", code="not_found"
            )
        return await PIPELINES[task](call, document)
    served = endpoint(call, document, *_tasks(document, call.headers.get(b"content-type", b"")))
    named = {**document, "model": served.name}
    if served.task == recognition.EMBEDDING:
        if isinstance(document.get("inputs"), dict):
            return await tei.similarity(call, named)
        _check_embedding(call, document, served)
    return await BY_TASK[served.task](call, named)


def _check_embedding(call: Call, document: Document, served: Served) -> None:
    """Raises ``Refusal`` for a request with ``parameters``, empty or not.

    InferenceClient sends them for other tasks; the fields of feature-extraction are beside ``inputs``.
    """
    if "parameters" in document:
        stated = document["parameters"]
        keys = set(stated) if isinstance(stated, dict) else set()
        tasks = [task for task, names in OF_TEXT.items() if keys <= names] or [*OF_TEXT]
        listed = [f"{shown(call.gateway.catalogue.doing([task]))} ({task})" for task in tasks]
        raise Refusal(
            424,
            f"the model '{served.name}' does embedding, and `parameters` are for other tasks (fields of "
            f"feature-extraction are beside `inputs`); models that can: {', '.join(listed)}",
            field="parameters",
            code="invalid_value",
        )


def _tasks(document: Document, kind: bytes) -> tuple[str, ...]:
    """The tasks that the body can be for. Raises ``Refusal``."""
    inputs, parameters = document.get("inputs"), document.get("parameters")
    if isinstance(inputs, bytes):
        return (
            IMAGES
            if kind.startswith(b"image/")
            else SOUNDS
            if kind.startswith(b"audio/")
            else IMAGES + SOUNDS
        )
    if isinstance(parameters, dict) and "candidate_labels" in parameters:
        return recognition.ZERO_SHOT, recognition.ZERO_SHOT_IMAGE
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], dict):
        return (recognition.QUESTION_ANSWERING,)
    if isinstance(inputs, dict):
        if "source_sentence" in inputs:
            return (recognition.EMBEDDING,)
        if "question" in inputs:
            return (recognition.QUESTION_ANSWERING,)
        raise invalid("`inputs` must be text, a file, or have `question` or `source_sentence`", "inputs")
    if "texts" in document:
        return (recognition.RERANK,)
    return tuple(BY_TASK)


ROUTES = (
    Route(
        path="/",
        handler=root,
        api="huggingface",
        errors=refusal.tei,
        summary="What the endpoint does, for InferenceClient(URL)",
        request={"model": "MODEL", "inputs": "a text"},
    ),
    Route(
        path="/models/*",
        handler=of_model,
        api="huggingface",
        errors=refusal.tei,
        summary="What the named endpoint does; TEI's routes below it",
        request={"inputs": "a text"},
    ),
    Route(
        path="/models/*",
        handler=about_model,
        api="huggingface",
        method="GET",
        errors=refusal.tei,
        summary="/info and /health of the named endpoint",
    ),
    Route(
        path="/pipeline/*",
        handler=pipeline,
        api="huggingface",
        errors=refusal.tei,
        summary="One task by Hugging Face's name of it",
        request={"model": "MODEL", "inputs": "a text"},
    ),
)
