"""Jinja templates of ``templates/``: the only importer of jinja2."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jinja2

from triton_repo_builder.base import resources


@cache
def environment() -> jinja2.Environment:
    """Templates that fail on an undefined name; the filters quote a value for the language it goes into."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
    )
    env.filters["python"] = repr
    env.filters["javascript"] = json.dumps
    env.filters["yaml"] = _yaml
    env.filters["docstring"] = _docstring
    return env


def _yaml(text: str) -> str:
    """A double-quoted scalar. YAML takes JSON's escapes, but for halves of a surrogate pair."""
    return json.dumps(text, ensure_ascii=False)


def _docstring(text: str) -> str:
    """A name within a docstring, which it must not end."""
    return text.replace("\\", "/").replace('"', "'")


def render(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    return environment().get_template(template).render(**values)
