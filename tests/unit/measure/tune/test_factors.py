"""What is varied, and the configuration that each model gets for it."""

from pathlib import Path

import pytest

from triton_repo_builder import repository
from triton_repo_builder.measure.tune import factors
from triton_repo_builder.measure.tune.study import first_guesses
from triton_repo_builder.repository.config import ModelConfig

ROOT = Path(__file__).resolve().parents[4] / "model_repository"


def sentiment() -> factors.Subject:
    repo = repository.read(ROOT)
    names = ("sentiment", "sentiment_tokenizer", "sentiment_model")
    return factors.subject("sentiment", {name: repo.model(name).config for name in names})  # type: ignore[union-attr]


def single(**raw: object) -> factors.Subject:
    return factors.subject("m", {"m": ModelConfig({"backend": "python", **raw})})


def test_the_space_of_an_ensemble() -> None:
    space = {factor.name: factor for factor in factors.space(sentiment(), 2)}
    assert sentiment().main == "sentiment_model"
    assert space.keys() == {"instances", "threads", "batching", "max batch", "tokenizer instances"}
    assert space["instances"].default == 2
    assert space["threads"].values == (1, 2)
    assert space["batching"].default == 0
    assert space["max batch"].default == 32


def test_what_a_model_does_not_have_is_not_varied() -> None:
    assert {factor.name for factor in factors.space(single(), 1)} == {"instances"}
    batching = factors.space(single(max_batch_size=6), 1)
    assert {factor.name for factor in batching} == {"instances", "batching", "max batch"}
    assert next(f for f in batching if f.name == "max batch").values == (4, 8, 16, 32, 64, 6)


def test_the_default_changes_nothing() -> None:
    subject = sentiment()
    base = factors.default(factors.space(subject, 2))
    assert factors.configs(subject, base, base) == {m.name: m.raw for m in subject.members}
    assert factors.describe(base, base) == "default"


def test_each_factor_changes_its_own_field() -> None:
    subject = sentiment()
    base = factors.default(factors.space(subject, 2))
    changed = {**base, "instances": 4, "threads": 2, "batching": 200, "tokenizer instances": 2}
    configs = {name: ModelConfig(raw) for name, raw in factors.configs(subject, changed, base).items()}
    # Steps before what is composed of them.
    assert [*configs] == ["sentiment_model", "sentiment_tokenizer", "sentiment"]
    model = configs["sentiment_model"]
    assert (model.instance_groups[0].count, model.instance_groups[0].kind) == (4, "KIND_CPU")
    assert model.parameters["intra_op_thread_count"] == "2"
    assert "trb.version" in model.parameters
    assert model.dynamic_batching == {"max_queue_delay_microseconds": 200}
    assert configs["sentiment_tokenizer"].instance_groups[0].count == 2
    assert configs["sentiment"].raw == subject.member("sentiment").raw


@pytest.mark.parametrize(("size", "ensemble"), [(8, 8), (64, 32)])
def test_an_ensemble_allows_no_more_than_its_steps(size: int, ensemble: int) -> None:
    subject = sentiment()
    base = factors.default(factors.space(subject, 2))
    configs = factors.configs(subject, {**base, "max batch": size}, base)
    assert configs["sentiment_model"]["max_batch_size"] == size
    assert configs["sentiment"]["max_batch_size"] == ensemble
    assert configs["sentiment_tokenizer"]["max_batch_size"] == 32


def test_a_block_of_the_user_keeps_what_is_not_varied() -> None:
    block = {"preferred_batch_size": [32], "max_queue_delay_microseconds": 100, "preserve_ordering": True}
    subject = single(max_batch_size=32, dynamic_batching=block)
    base = factors.default(factors.space(subject, 1))
    assert base["batching"] == 100
    raw = factors.configs(subject, {**base, "max batch": 8}, base)["m"]
    assert raw["dynamic_batching"] == {"max_queue_delay_microseconds": 100, "preserve_ordering": True}
    assert "dynamic_batching" not in factors.configs(subject, {**base, "batching": "off"}, base)["m"]
    assert subject.member("m").raw["dynamic_batching"] == block


def test_without_batching_its_size_is_the_same_setting() -> None:
    base = {"batching": "off", "max batch": 32}
    assert factors.key(base) == factors.key({**base, "max batch": 8})
    assert factors.key({"batching": 0, "max batch": 32}) != factors.key({"batching": 0, "max batch": 8})


def test_the_first_guesses_begin_with_the_default() -> None:
    space = factors.space(single(max_batch_size=32), 2)
    guesses = first_guesses(space)
    assert guesses[0] == factors.default(space)
    assert guesses[-1] == {"instances": 2, "batching": 0, "max batch": 8}
    assert len(guesses) == 4


def test_variants_are_a_factor() -> None:
    space = factors.space(single(), 1, ("m_int8",))
    assert space[0] == factors.Factor(name="variant", values=("m", "m_int8"), default="m")


def test_a_variant_is_compared_with_its_own_configuration() -> None:
    """What is the default of the endpoint that is tuned must be set in a variant that has something else."""
    own = {"backend": "python", "max_batch_size": 16, "instance_group": [{"count": 3}]}
    batching = {"dynamic_batching": {"max_queue_delay_microseconds": 7}}
    variant = factors.subject("v", {"v": ModelConfig({**own, **batching})})
    base = {"variant": "m", "instances": 1, "batching": "off", "max batch": 8}
    raw = factors.configs(variant, {**base, "variant": "v"}, base)["v"]
    assert raw["instance_group"] == [{"count": 1}]
    assert "dynamic_batching" not in raw
    raw = factors.configs(variant, {**base, "variant": "v", "batching": 7}, {**base, "batching": 7})["v"]
    assert raw["max_batch_size"] == 8
    same = {"variant": "v", "instances": 3, "batching": 7, "max batch": 16}
    assert factors.configs(variant, same, base)["v"] == variant.members[0].raw
