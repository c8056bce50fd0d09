"""Which models an ensemble runs."""

from collections import Counter

import pytest

from triton_repo_builder.repository import composition
from triton_repo_builder.repository.config import ModelConfig

STEPS = {"top": ("middle", "leaf"), "middle": ("leaf", "leaf"), "a": ("b",), "b": ("a",), "self": ("self",)}


def steps_of(name: str) -> tuple[str, ...]:
    return STEPS.get(name, ())


def test_members_are_nearest_first_and_each_once() -> None:
    assert composition.members(("top", "leaf"), steps_of) == ("top", "leaf", "middle")
    assert composition.members(("a",), steps_of) == ("a", "b")


def test_composing_and_needing() -> None:
    assert composition.composing("top", steps_of) == {"middle", "leaf"}
    assert composition.composing("self", steps_of) == frozenset()
    assert composition.needing("leaf", ("top", "middle", "leaf", "a"), steps_of) == ("top", "middle")


def test_the_outermost_are_no_step() -> None:
    assert composition.outermost(("top", "middle", "leaf", "a", "b"), steps_of) == ("top",)


def test_executions_multiply_along_the_way() -> None:
    assert composition.executions("top", steps_of) == Counter(top=1, middle=1, leaf=3)
    assert composition.executions("a", steps_of)["b"] == 1


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (None, (3,)),
        ({"all": {}}, (1, 2, 3)),
        ({"specific": {"versions": [1, 3, 7]}}, (1, 3)),
        ({"specific": {"versions": ["2"]}}, (2,)),
        ({"latest": {"num_versions": 2}}, (2, 3)),
        ({"latest": {}}, ()),
    ],
)
def test_the_version_policy(policy: dict[str, object] | None, served: tuple[int, ...]) -> None:
    config = ModelConfig({"version_policy": policy} if policy else {})
    assert config.select((3, 1, 2)) == served
