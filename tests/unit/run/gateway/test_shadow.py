"""The shadow of a gateway: what is copied, dropped and counted, with two fake servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.gateway import shadow as module
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.options import ShadowOptions
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.shadow import Copy, Shadow

ENDPOINT = Endpoint(
    name="minilm",
    inputs=(Tensor(name="TEXT", datatype="BYTES", shape=(-1, 1)),),
    outputs=(Tensor(name="embedding", datatype="FP32", shape=(-1, 2)),),
    max_batch_size=32,
)
SERVED = Served(name="minilm", model="minilm", task="embedding", endpoint=ENDPOINT)
VECTOR = {"embedding": np.array([[1.0, 0.0]], dtype=np.float32)}


class Server:
    """Answers with one vector, after a while; remembers what it was asked."""

    def __init__(self, answer: Any = VECTOR, sleep: float = 0.0) -> None:
        self.answer, self.sleep = answer, sleep
        self.asked: list[Served] = []

    async def infer(self, served: Served, columns: Any, outputs: Any, *, timeout: float) -> Any:
        self.asked.append(served)
        await asyncio.sleep(self.sleep)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer]


def copy(served: Served = SERVED, size: int = 10) -> Copy:
    return Copy(served, {"TEXT": [b"hello"]}, ("embedding",), [VECTOR], 0.002, 30.0, size)


def shadow(server: Any, share: float = 1.0, target: str = "2") -> Shadow:
    return Shadow(ShadowOptions(target=target, share=share), server)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def settled(one: Shadow, copies: int) -> dict[str, Any]:
    """The report about the only endpoint, once so many copies have ended."""
    for _ in range(500):
        entry: dict[str, Any] = next(iter(one.report()["endpoints"]), {})
        if entry and entry["compared"] + entry["dropped"] + entry["failed"] >= copies:
            return entry
        await asyncio.sleep(0.01)
    raise AssertionError(one.report())


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"endpoint": "minilm", **labels}) or 0.0


def test_a_version_is_asked_and_compared() -> None:
    async def work() -> None:
        before = metric("trb_shadow_copies_total", result="compared")
        server = Server({"embedding": np.array([[0.0, 1.0]], dtype=np.float32)})
        one = shadow(server)
        one.offer(copy())
        entry = await settled(one, 1)
        assert [served.version for served in server.asked] == ["2"]
        assert (entry["answers"], entry["same"], entry["agreement"]) == (1, 0, 0.0)
        assert (entry["measure"], entry["mean"], entry["worst"]) == ("cosine", 0.0, 0.0)
        assert entry["primary_ms"]["p50"] == 2.0 and entry["shadow_ms"]["p50"] > 0
        assert metric("trb_shadow_copies_total", result="compared") == before + 1
        assert metric("trb_shadow_seconds_count", side="shadow") >= 1
        await one.close()

    run(work)


def test_a_version_of_an_ensemble_is_not_asked() -> None:
    """It would answer as the other one does: the steps are the same."""

    async def work() -> None:
        server = Server({"embedding": np.array([[1.0, 0.0]], dtype=np.float32)})
        one, offered = shadow(server), copy()
        one.offer(replace(offered, served=replace(offered.served, ensemble=True)))
        entry = await settled(one, 1)
        assert (entry["compared"], entry["failed"], server.asked) == (0, 1, [])
        await one.close()

    run(work)


def test_without_a_target_nothing_is_copied() -> None:
    one = Shadow(ShadowOptions(), server := Server())  # type: ignore[arg-type]
    one.offer(copy())
    assert (one.report()["target"], one.report()["endpoints"], server.asked) == (None, [], [])


def test_the_share_is_that_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        numbers = iter([0.04, 0.06, 0.5, 0.99, 0.0])
        monkeypatch.setattr(module, "random", type("R", (), {"random": lambda: next(numbers)}))
        one = shadow(server := Server(), share=0.05)
        for _ in range(5):
            one.offer(copy())
        await settled(one, 2)
        assert len(server.asked) == 2
        await one.close()

    run(work)


def test_what_does_not_fit_the_queue_is_dropped_and_counted_at_once() -> None:
    async def work() -> None:
        one = shadow(Server(sleep=0.05))
        began = time.perf_counter()
        for _ in range(module.WAITING + 20):
            one.offer(copy())
        assert time.perf_counter() - began < 0.05
        assert one.report()["endpoints"][0]["dropped"] == 20
        entry = await settled(one, module.WAITING + 20)
        assert (entry["compared"], entry["failed"]) == (module.WAITING, 0)
        await one.close()

    run(work)


def test_large_copies_are_dropped_by_their_bytes() -> None:
    async def work() -> None:
        one = shadow(Server())
        one.offer(copy(size=module.WAITING_BYTES - 100))
        one.offer(copy(size=200))
        assert one.report()["endpoints"][0]["dropped"] == 1
        await settled(one, 2)
        one.offer(copy(size=200))
        assert (await settled(one, 3))["compared"] == 2
        await one.close()

    run(work)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Refusal(503, "the inference server is not available"), "not available"),
        ({"other": VECTOR["embedding"]}, "cannot be compared"),
    ],
)
def test_a_failure_is_counted_and_said(answer: Any, words: str) -> None:
    async def work() -> None:
        one = shadow(Server(answer))
        one.offer(copy())
        entry = await settled(one, 1)
        assert (entry["failed"], entry["compared"], entry["agreement"]) == (1, 0, None)
        assert words in entry["last_failure"]
        await one.close()

    run(work)


def test_the_second_server_is_asked_for_the_same_version() -> None:
    one = shadow(None, target="10.0.0.7:8001")
    assert (one.triton.url, one.version) == ("10.0.0.7:8001", "")
