"""The gateway's knowledge of an endpoint's texts, by what ``trb build`` writes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tiny

from triton_repo_builder.endpoint.tasks.support import prompts
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.gateway import discovery
from triton_repo_builder.run.gateway.text_rules import TextRules

SAVED = {"prompts": {"query": "hello ", "document": None}}


def rules(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool = True, include: bool = True, **build: Any
) -> TextRules:
    """Rules of a tiny embedder after a build of these options, with the repository (``known``) or without."""
    folder = tiny.embedder(root / "model")
    tiny.put_json(folder / prompts.FILE, SAVED)
    tiny.put_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean", "include_prompt": include})
    repository = root / "repository"
    tiny.put(folder, repository, name="tiny", instances=1, **build)

    async def loaded(triton: Any, models: Any) -> dict[str, ModelConfig]:
        files = repository.glob("*/config.pbtxt")
        return {file.parent.name: ModelConfig(pbtxt.parse(file.read_text())) for file in files}

    monkeypatch.setattr(discovery, "loaded", loaded)
    looking = discovery.Discovery(repo=repository if known else None)
    (served,) = asyncio.run(looking.catalogue(None))  # type: ignore[arg-type]
    assert (served.name, served.task) == ("tiny", "embedding")
    return served.rules


def test_prompts_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rules(tmp_path, monkeypatch, normalize=True, max_length=20)
    assert (found.max_length, found.prompt, found.pooled, found.normalized) == (20, "", True, True)
    assert found.prompts == {"query": "hello ", "document": ""}
    assert found.lengths(["hello fox"]) == [4]


def test_prompts_that_must_not_be_pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rules(tmp_path, monkeypatch, include=False, prompt="query", normalize=False)
    assert (found.prompt, found.pooled, found.normalized) == ("hello ", False, False)


def test_a_server_without_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rules(tmp_path, monkeypatch, known=False, prompt="query", max_length=20)
    assert (found.max_length, found.prompt, found.side) == (20, "hello ", "right")
    assert (found.prompts, found.normalized, found.file) == (None, None, None)
    assert found.lengths(["hello"]) == []
