"""Fields of a config.pbtxt changed in its text."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_repo_builder.measure.tune import edit
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.repository.pbtxt import PbtxtError

GOLDEN = Path(__file__).resolve().parents[4] / "model_repository" / "sentiment_model" / "config.pbtxt"
TEXT = """# Mine.
name: "m", backend: 'python';
max_batch_size : 8 # as many as fit { [
input [ { name: "X{}" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [
  { count: 1 kind: KIND_CPU },
  { count: 2 kind: KIND_CPU }
]
parameters { key: "a" value { string_value: "key: \\"b\\" } #" } }
parameters: { key: 'b' value: { string_value: '1' } }
"""


def test_only_what_changes_is_touched() -> None:
    raw = pbtxt.parse(TEXT)
    raw["parameters"]["b"] = {"string_value": "2"}
    raw["instance_group"] = [{"count": 3, "kind": "KIND_CPU"}]
    new = edit.change(TEXT, raw, "why")
    assert pbtxt.parse(new) == raw
    kept = [line for line in TEXT.splitlines() if line in new.splitlines()]
    lines = TEXT.splitlines()
    assert kept == [*lines[:4], lines[8]]
    assert new.count("# why\n") == 2


def test_a_reason_of_trb_is_replaced_and_a_comment_of_the_user_stays() -> None:
    raw = pbtxt.parse(GOLDEN.read_text()) | {"max_batch_size": 8}
    written = edit.change(GOLDEN.read_text(), raw, "why")
    assert "a common limit" not in written
    mine = edit.change(
        '# mine\nmax_batch_size: 4\nbackend: "python"\n', {"max_batch_size": 8, "backend": "python"}, "why"
    )
    assert mine == '# mine\n# why\nmax_batch_size: 8\nbackend: "python"\n'


def test_a_field_is_added_and_removed() -> None:
    added = edit.change("max_batch_size: 4", {"max_batch_size": 4, "dynamic_batching": {}}, "why")
    assert added == "max_batch_size: 4\n# why\ndynamic_batching { }\n"
    removed = edit.change(added, {"max_batch_size": 4}, "slower")
    assert pbtxt.parse(removed) == {"max_batch_size": 4}
    assert "no dynamic_batching: slower" in removed


def test_nothing_to_change() -> None:
    assert edit.change(TEXT, pbtxt.parse(TEXT), "why") == TEXT


def test_a_text_that_does_not_parse() -> None:
    with pytest.raises(PbtxtError):
        edit.change("max_batch_size: {", {}, "why")


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 4096),
    count=st.integers(1, 64),
    threads=st.integers(0, 64),
    delay=st.one_of(st.none(), st.integers(1, 10**6)),
    text=st.sampled_from([TEXT, GOLDEN.read_text(), "", "max_batch_size: 1"]),
)
def test_what_is_written_is_read_back(
    size: int, count: int, threads: int, delay: int | None, text: str
) -> None:
    raw: dict[str, Any] = {**pbtxt.parse(text), "max_batch_size": size}
    raw["instance_group"] = [{"count": count, "kind": "KIND_CPU"}]
    raw["parameters"] = {**raw.get("parameters", {}), "t": {"string_value": str(threads)}}
    raw.pop("dynamic_batching", None)
    if delay:
        raw["dynamic_batching"] = {"max_queue_delay_microseconds": delay}
    once = edit.change(text, raw, "why")
    assert pbtxt.parse(once) == raw
    assert edit.change(once, raw, "why") == once
