"""Long neighbours of golden cases."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.run.smoke.neighbour import WORDS, lengthened


@given(st.text(max_size=50), st.text(max_size=2000))
def test_a_long_neighbour_has_exactly_so_many_words(short: str, long: str) -> None:
    inputs = {
        "a": np.array([[short.encode("utf-8", "replace")]], dtype=object),
        "b": np.array([[long.encode("utf-8", "replace")]], dtype=object),
        "n": np.array([[1]], dtype=np.int64),
    }
    result = lengthened(inputs)
    assert list(result) == ["a", "b", "n"]
    changed = [name for name in inputs if result[name] is not inputs[name]]
    assert changed == ["a" if len(inputs["a"][0, 0]) >= len(inputs["b"][0, 0]) else "b"]
    assert len(result[changed[0]][0, 0].split()) == WORDS
