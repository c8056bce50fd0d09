"""What the log says of a gateway.toml that does not fit the server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fake_triton import served
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.gateway import discovery
from triton_repo_builder.run.gateway.catalogue import Catalogue, Routing, Served
from triton_repo_builder.run.gateway.gateway import Gateway
from triton_repo_builder.run.gateway.map_faults import faults
from triton_repo_builder.run.gateway.mapping import GatewayMap, MappedEndpoint
from triton_repo_builder.run.gateway.options import GatewayOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.triton import Triton

MINILM = served("minilm", "embedding")
RERANK = served("rerank", "rerank")
MOOD = served("mood", "text-classification", facts={"labels": ["good", "bad"]})
TOXIC = served("guard", "text-classification", facts={"labels": ["toxic", "fine"]})


def said(*endpoints: Served, mapped: Any = (), **routing: Any) -> list[str]:
    return [*faults(Catalogue(endpoints, Routing(**routing)), mapped)]


def test_a_map_that_fits() -> None:
    routes = {
        "/v1/embeddings": "ada",
        "/v1/moderations": "guard",
        "/pipeline/sentiment-analysis": "mood",
        "/pipeline/sentence-similarity": "minilm",
        "/": "rerank",
    }
    aliases = {"ada": "minilm", "mood": "mood"}
    mapped = [MappedEndpoint(name="guard", model="guard")]
    assert said(MINILM, RERANK, MOOD, TOXIC, aliases=aliases, routes=routes, mapped=mapped) == []


@pytest.mark.parametrize(
    ("words", "routing"),
    [
        (("'ada'", "'minilmm'", "does not have"), {"aliases": {"ada": "minilmm"}}),
        (("'minilm'", "go to 'rerank'"), {"aliases": {"minilm": "rerank"}}),
        (("/v1/embeddings", "'none'", "does not have"), {"routes": {"/v1/embeddings": "none"}}),
        (("'rerank'", "does rerank, not embedding"), {"routes": {"/v1/embeddings": "rerank"}}),
        (("'mood'", "not fill-mask"), {"routes": {"/pipeline/fill-mask": "mood"}}),
        (("/v1/moderations", "'mood'", "name harm"), {"routes": {"/v1/moderations": "mood"}}),
        (("[endpoints.x]", "'bert'"), {"mapped": [MappedEndpoint(name="x", model="bert")]}),
    ],
)
def test_names_that_lead_nowhere(words: tuple[str, ...], routing: dict[str, Any]) -> None:
    (line,) = said(MINILM, RERANK, MOOD, **routing)
    assert line.startswith("gateway.toml: ") and all(word in line for word in words)


@pytest.mark.parametrize(("labels", "wrong"), [(("a", "b", "c"), False), (("a", "b"), True), ((), False)])
def test_labels_of_another_number(
    monkeypatch: pytest.MonkeyPatch, labels: tuple[str, ...], wrong: bool
) -> None:
    outputs = [{"name": "label", "data_type": "TYPE_STRING", "dims": ["1"]}]
    outputs += [{"name": name, "data_type": "TYPE_FP32", "dims": [size]} for name, size in SIZES]
    text = [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": ["1"]}]
    config = ModelConfig({"name": "bert", "max_batch_size": "8", "input": text, "output": outputs})

    async def loaded(triton: Any, models: Any) -> dict[str, ModelConfig]:
        return {"bert": config}

    monkeypatch.setattr(discovery, "loaded", loaded)
    mapped = MappedEndpoint(name="guard", model="bert", labels=labels)
    looking = discovery.Discovery(map=GatewayMap(endpoints=(mapped,)))
    catalogue = asyncio.run(looking.catalogue(None))  # type: ignore[arg-type]
    guard = catalogue.by_name["guard"]
    assert guard.task == "text-classification" and bool(guard.fault) is wrong
    assert len([*faults(catalogue, (mapped,))]) == wrong
    if wrong:
        assert guard.fault == "[endpoints.guard] has 2 labels, and the model has 3 classes"


SIZES = (("score", "1"), ("scores", "3"))


def test_each_fault_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway(Triton("fake:8001"), discovery.Discovery(), GatewayOptions())
    routing = Routing(aliases={"ada": "minilmm"})

    def lines(*endpoints: Served) -> list[str]:
        gateway.catalogue = Catalogue(endpoints, routing)
        gateway._warn()
        return capsys.readouterr().err.splitlines()

    assert lines(MINILM) == []  # more may be about to come
    gateway.ready = True
    (line,) = lines(MINILM)
    assert line.startswith("warning: gateway.toml: 'ada' is an alias of 'minilmm'")
    assert lines(MINILM) == []
    assert lines(MINILM, replace(MINILM, name="minilmm")) == []
    assert len(lines(MINILM)) == 1


def test_a_server_that_is_not_there_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> str:
        gateway = Gateway(Triton("127.0.0.1:1"), discovery.Discovery(), GatewayOptions())
        await gateway.start()
        gateway._warn()
        with pytest.raises(Refusal):
            await gateway.triton.call("ServerReady", 1)
        await gateway.stop()
        return gateway.triton.trouble

    trouble = asyncio.run(work())
    assert "127.0.0.1:1" in trouble
    assert capsys.readouterr().err == f"warning: {trouble}\n"
