import jinja2
import pytest

from triton_repo_builder.base import templates


def test_templates_fail_on_a_name_that_is_not_there() -> None:
    with pytest.raises(jinja2.UndefinedError):
        templates.environment().from_string("{{ model.nmae }}").render(model=object)
