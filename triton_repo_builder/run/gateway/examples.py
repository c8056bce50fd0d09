"""Requests to each route that work here: with the names of endpoints that can answer them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from triton_repo_builder.run.gateway import recognition as tasks
from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.catalogue import Catalogue, Served

MODEL = "MODEL"
"""Stands for an endpoint's name in examples."""
MASK = "[MASK]"
"""Stands for the model's mask in examples."""
KEY = "Authorization: Bearer $API_KEY"
TYPES = {"jpg": "image/jpeg", "wav": "audio/wav"}
IMAGE, SOUND = "photo.jpg", "speech.wav"
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mO4U2FEEmIY1TCqYfhqAAAAGoYQZsbUKgAAAABJRU5E"
    "rkJggg=="
)
"""A small image in base64, for an example that is JSON."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A request as it is written down, for endpoints of these tasks."""

    tasks: Sequence[str] = ()
    """Empty: for any endpoint, or none."""
    path: str = ""
    """Empty: the route's, with the endpoint's name for ``*``."""
    body: Any = None
    """JSON; None: the request has none."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Parts of multipart/form-data; ``@NAME`` is a file."""
    file: str = ""
    """Name of a file that is the whole body."""
    fits: Callable[[Served], bool] = lambda served: True
    """Whether an endpoint of these tasks can answer it."""
    needs: str = ""
    """The endpoints that fit, in words; empty: all of these tasks."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A request with an endpoint's name."""

    route: Route
    sample: Sample
    task: str
    """Task of the endpoint that it names; empty if it names none."""
    models: Sequence[str]
    """The endpoints that can answer it; empty if it needs none, there is none, or they are not named."""
    possible: bool
    """Whether it can be answered here."""

    def curl(self, address: str, *, keyed: bool) -> str:
        """The request as a shell line; with ``keyed`` it takes the key from ``$API_KEY``."""
        sample = self.sample
        parts = [f"curl {shlex.quote(address + sample.path)}"]
        if keyed and not self.route.open:
            parts.append(f'-H "{KEY}"')
        if sample.body is not None:
            parts.append("-H 'Content-Type: application/json'")
            parts.append(f"-d {shlex.quote(json.dumps(sample.body, ensure_ascii=False))}")
        parts += [f"-F {shlex.quote(f'{name}={value}')}" for name, value in sample.form.items()]
        if sample.file:
            parts.append(f"-H 'Content-Type: {type_of(sample.file)}'")
            parts.append(f"--data-binary @{sample.file}")
        return " \\\n  ".join(parts)


def type_of(file: str) -> str:
    """The media type of an example's file."""
    return TYPES[file.rpartition(".")[2]]


def examples(route: Route, catalogue: Catalogue, *, named: bool = True) -> list[Example]:
    """The examples of one route; of several, those that no endpoint here can answer are left out.

    Unless ``named``, they are all there and tell nothing of the endpoints: ``MODEL`` stands for a name.
    """
    listed = [_example(route, sample, catalogue, named) for sample in _samples(route)]
    return [each for each in listed if each.possible] or listed[:1]


def _example(route: Route, sample: Sample, catalogue: Catalogue, named: bool) -> Example:
    every = catalogue.doing(sample.tasks) if sample.tasks else list(catalogue)
    able = [served for served in every if sample.fits(served)] if named else []
    chosen = catalogue.by_name.get(catalogue.routing.routes.get(route.path, ""))
    served = chosen if chosen in able else next(iter(able), None)
    name = served.name if served is not None else MODEL
    written = replace(
        sample,
        path=(sample.path or route.path.replace("*", MODEL)).replace(MODEL, quote(name, safe="")),
        body=_filled(sample.body, name, served),
        form=_filled(dict(sample.form), name, served),
    )
    task = served.task if served is not None else next(iter(sample.tasks), "")
    return Example(
        route=route,
        sample=written,
        task=task if sample.tasks else "",
        models=[served.name for served in able] if sample.tasks else (),
        possible=bool(able) or not named or not sample.tasks,
    )


def _filled(value: Any, name: str, served: Served | None) -> Any:
    """An example with the endpoint's name and mask."""
    if isinstance(value, dict):
        return {key: _filled(each, name, served) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, name, served) for each in value]
    if value == MODEL:
        return name
    if isinstance(value, str) and served is not None:
        return value.replace(MASK, str(served.facts.get("mask", MASK)))
    return value


def _samples(route: Route) -> Sequence[Sample]:
    usual = Sample(tasks=route.tasks, body=route.request)
    return SPECIAL.get((route.method, route.path), (usual,))


TEXT = {"inputs": "a text"}
FILES = {
    tasks.IMAGE_CLASSIFICATION: IMAGE,
    tasks.IMAGE_EMBEDDING: IMAGE,
    tasks.OBJECT_DETECTION: IMAGE,
    tasks.SEGMENTATION: IMAGE,
    tasks.AUDIO_CLASSIFICATION: SOUND,
    tasks.SPEECH: SOUND,
}
TEXTS: dict[str, dict[str, Any]] = {
    tasks.EMBEDDING: TEXT,
    tasks.CLASSIFICATION: TEXT,
    tasks.ENTITIES: {"inputs": "Ada Lovelace lived in London"},
    tasks.QUESTION_ANSWERING: {"inputs": {"question": "Who was it?", "context": "It was Ada Lovelace."}},
    tasks.FILL_MASK: {"inputs": f"Paris is the {MASK} of France."},
    tasks.ZERO_SHOT: {"inputs": "a text", "parameters": {"candidate_labels": ["sports", "science"]}},
}
"""Task → the body that Hugging Face's clients send."""
PIPELINES = {tasks.EMBEDDING: "feature-extraction"}
"""Task → Hugging Face's name, if that is another."""
LABELLED_IMAGE = {"inputs": DOT, "parameters": {"candidate_labels": ["a disc", "a square"]}}
RANKED = {"query": "a question", "texts": ["first text", "second text"]}
TOKENIZED = (tasks.EMBEDDING, tasks.RERANK, *TEXTS, tasks.SPARSE)
DESCRIBED = (tasks.EMBEDDING, tasks.SPARSE, tasks.LATE_INTERACTION, tasks.CLASSIFICATION, tasks.RERANK)


def _moderates(served: Served) -> bool:
    from triton_repo_builder.run.gateway.routes import openai_moderations  # it imports call, as this does

    return openai_moderations.fits(served)


SPECIAL: dict[tuple[str, str], tuple[Sample, ...]] = {
    ("POST", "/v1/audio/transcriptions"): (
        Sample(tasks=(tasks.SPEECH,), form={"model": MODEL, "file": f"@{SOUND}"}),
    ),
    ("POST", "/v1/moderations"): (
        Sample(
            tasks=(tasks.CLASSIFICATION,),
            body={"model": MODEL, "input": ["a text"]},
            fits=_moderates,
            needs="a classifier whose labels name harm, or `labels` in gateway.toml",
        ),
    ),
    ("POST", "/tokenize"): (Sample(tasks=TOKENIZED, body={"model": MODEL, "inputs": ["a text"]}),),
    ("POST", "/decode"): (Sample(tasks=TOKENIZED, body={"model": MODEL, "ids": [[1, 2, 3]]}),),
    ("GET", "/info"): (Sample(tasks=DESCRIBED, path=f"/models/{MODEL}/info"),),
    ("GET", "/models/*"): (Sample(tasks=DESCRIBED, path=f"/models/{MODEL}/info"),),
    ("POST", "/"): tuple(
        Sample(tasks=(task,), body={"model": MODEL, **body}) for task, body in TEXTS.items()
    ),
    ("POST", "/models/*"): (
        *(Sample(tasks=(task,), body=body) for task, body in TEXTS.items()),
        *(Sample(tasks=(task,), body=TEXT) for task in (tasks.SPARSE, tasks.LATE_INTERACTION)),
        Sample(tasks=(tasks.RERANK,), body=RANKED),
        *(Sample(tasks=(task,), file=file) for task, file in FILES.items()),
        Sample(tasks=(tasks.ZERO_SHOT_IMAGE,), body=LABELLED_IMAGE),
    ),
    ("POST", "/pipeline/*"): tuple(
        Sample(tasks=(task,), path=f"/pipeline/{PIPELINES.get(task, task)}", body={"model": MODEL, **body})
        for task, body in TEXTS.items()
    ),
}
"""Examples of routes whose requests depend on the endpoint, or are no JSON."""
