"""How much memory the texts of an endpoint may take, and what is refused before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base import hardware
from triton_repo_builder.base.hardware import Gpu, Hardware
from triton_repo_builder.endpoint.plan import text_memory, text_padding
from triton_repo_builder.model.graph.parts import Rows
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce import build

MODELS = Path(__file__).parents[3] / "data" / "models"
PLAIN = MODELS / "embedding" / "minilm_pooled"


def built(
    model: Path = PLAIN, *, memory: int = 0, rows: Rows = Rows.PACKED, **options: object
) -> build.Build:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_padding, "_rows", lambda *_: (rows, "a test"))
        patch.setattr(hardware, "here", lambda: Hardware(cores=2, gpus=(), memory=memory))
        return build.build(BuildOptions(model=model, golden=False, name="m", **options))  # type: ignore[arg-type]


def tokenizer(made: build.Build) -> str:
    content = next(file.content for file in made.files if file.path == "m_tokenizer/config.pbtxt")
    assert content is not None
    return content.decode()


def test_a_run_and_its_memory_are_stated() -> None:
    stated = dict(built().settings.explained())["run-tokens"]
    assert (stated.value, stated.reason) == (
        16384,
        "a run takes up to 0.2 GiB beside the weights, in each instance; further texts go into another run",
    )
    asked = dict(built(run_tokens=1000).settings.explained())["run-tokens"]
    assert (asked.value, asked.reason.split(";")[0]) == (1000, "set by --run-tokens")


def test_row_by_row_a_run_is_a_text() -> None:
    assert "run-tokens" not in dict(built(rows=Rows.SINGLE).settings.explained())


def test_a_text_with_more_tokens_than_there_is_memory_for_is_refused() -> None:
    assert "most_tokens" not in tokenizer(built(memory=1 << 34))
    made = built(memory=1 << 18)
    (note,) = (note for note in made.notes if "memory" in note or "machine has" in note)
    assert "is refused (--max-length" in note
    assert 'key: "most_tokens"' in tokenizer(made)


def test_texts_that_nothing_limits_are_one_run_at_most(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for file in PLAIN.iterdir():
        if file.name not in ("config.json", "tokenizer_config.json"):
            (folder / file.name).write_bytes(file.read_bytes())
    made = built(folder, task="embedding", pooling="mean")
    assert 'key: "most_tokens" value { string_value: "16384" }' in tokenizer(made)


@pytest.mark.parametrize(("tokens", "rows"), [(512, 32), (256, 64), (1024, 8), (4096, 1), (16384, 1)])
def test_padded_texts_of_the_greatest_length_are_one_run(tokens: int, rows: int) -> None:
    assert text_memory._rows(16384, tokens, packed=False) == rows


def test_a_gpu_is_bounded_by_its_own_memory() -> None:
    machine = Hardware(cores=2, gpus=(Gpu(name="a GPU", bytes=1 << 34),), memory=1 << 18)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware, "here", lambda: machine)
        made = build.build(BuildOptions(model=PLAIN, golden=False, name="m"))
    assert "run-tokens" not in dict(made.settings.explained())
    assert "most_tokens" not in tokenizer(made)
