from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.optimize import recipe
from triton_repo_builder.measure.optimize.recipe import RecipeStep


def test_steps_of_a_text() -> None:
    assert recipe.parse("fuse, int8:per-channel") == (
        RecipeStep(name="fuse"),
        RecipeStep(name="int8", how="per-channel"),
    )
    assert recipe.parse("") == ()


@pytest.mark.parametrize("text", ["int4", "fuse:fast", "int8:best", "fuse,,int8:"])
def test_unknown_steps_are_refused_by_name(text: str) -> None:
    if text == "fuse,,int8:":
        assert [step.name for step in recipe.parse(text)] == ["fuse", "int8"]
        return
    with pytest.raises(TrbError) as error:
        recipe.parse(text)
    assert error.value.code is Code.USAGE and text.partition(":")[0] in error.value.message


@pytest.mark.parametrize("content", ["", "[]", '{"steps": 1}', '{"steps": [{}]}', '{"steps": ["int8"]}'])
def test_what_is_no_recipe_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(content)
    with pytest.raises(TrbError) as error:
        recipe.read(file)
    assert error.value.code is Code.USAGE and str(file) in str(error.value.where)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as error:
        recipe.read(tmp_path / "recipe.json")
    assert error.value.code is Code.NOT_FOUND
