"""A server that keeps its list of models to the holders of its admin key."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.run.gateway import discovery
from triton_repo_builder.run.gateway.refusal import Refusal

CLOSED = "This protocol is restricted, expecting header 'triton-grpc-protocol-trb-admin-key'"


class Triton:
    """Says no to the index; has one of two models loaded."""

    def __init__(self, message: str = CLOSED) -> None:
        self.message = message

    async def call(self, name: str, /, timeout: float, **fields: Any) -> Any:
        if name == "RepositoryIndex":
            raise Refusal(503, self.message)
        if fields["name"] != "loaded":
            raise Refusal(503, "Request for unknown model: 'other' is not ready")
        return SimpleNamespace(config=None)


def test_the_models_of_the_repository_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery.pbtxt, "of_message", lambda config: {})
    triton: Any = Triton()
    assert [*asyncio.run(discovery.loaded(triton, lambda: ("loaded", "other")))] == ["loaded"]
    assert asyncio.run(discovery.loaded(triton)) == {}


def test_any_other_failure_is_one() -> None:
    triton: Any = Triton("the inference server is not available: failed to connect")
    with pytest.raises(Refusal):
        asyncio.run(discovery.loaded(triton, lambda: ("loaded",)))
