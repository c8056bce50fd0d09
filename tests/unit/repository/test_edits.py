"""Diffs of hand edits: what was edited comes back exactly, and on another text only where it fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.repository import edits
from triton_repo_builder.repository.edits import Approval, Conflict, Edit

TEXTS = (
    st.lists(st.sampled_from(["a", "b", "", "c\r", "# x", "é\u2028"]), max_size=12)
    .map("\n".join)
    .map(str.encode)
)
BUILT = b"""name: "m"
max_batch_size: 32
# two cores
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { }
parameters { key: "trb.model_sha256" value { string_value: "aa" } }
parameters { key: "trb.version" value { string_value: "0.1.0" } }
"""
EDITED = BUILT.replace(b"count: 2", b"count: 3")


def diff(old: bytes, new: bytes) -> tuple[str, ...]:
    lines = edits.difference(old, new)
    assert lines is not None
    return lines


@given(TEXTS, TEXTS)
def test_a_diff_goes_both_ways(old: bytes, new: bytes) -> None:
    assert edits.applied(diff(old, new), old) == new
    assert edits.reverted(diff(old, new), new) == old


def test_a_diff_reads_as_git_prints_it() -> None:
    lines = diff(BUILT, EDITED)
    assert lines[0].startswith("@@ -1,7 +1,7 @@")
    assert [line for line in lines if line[0] in "+-"] == [
        "-instance_group { count: 2 kind: KIND_CPU }",
        "+instance_group { count: 3 kind: KIND_CPU }",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'string_value: "aa"', b'string_value: "bb"'),  # another model
        (b"# two cores", b"# eight cores"),  # another machine's reason
        (b"max_batch_size: 32", b"max_batch_size: 64"),
        (b'name: "m"\n', b'name: "m"\nbackend: "onnxruntime"\nplatform: ""\n'),
        (b"dynamic_batching { }\n", b""),
    ],
)
def test_an_edit_is_applied_beside_other_changes(old: bytes, new: bytes) -> None:
    assert old in BUILT
    lines = diff(BUILT, EDITED)
    if new == b"":  # the line after it is gone: nothing there says where the edit belongs
        with pytest.raises(Conflict):
            edits.applied(lines, BUILT.replace(old, new))
        return
    assert edits.applied(lines, BUILT.replace(old, new)) == EDITED.replace(old, new)


def test_a_line_that_is_another_now_is_a_conflict() -> None:
    with pytest.raises(Conflict) as caught:
        edits.applied(diff(BUILT, EDITED), BUILT.replace(b"count: 2", b"count: 8"))
    assert "+instance_group { count: 3 kind: KIND_CPU }" in caught.value.lines


def test_a_place_that_is_not_the_only_one_is_a_conflict() -> None:
    old = b"x\na\nb\nc\n1\nd\ne\nf\ny"
    lines = diff(old, old.replace(b"1", b"2"))
    once = b"X\nX\nX\nc\n1\nd\nX\nX\nX"
    assert edits.applied(lines, once) == once.replace(b"1", b"2")
    with pytest.raises(Conflict):
        edits.applied(lines, once + b"\n" + once)


@pytest.mark.parametrize(
    "lines",
    [
        ["@@ -1 +1 @@", " a"],
        ["@@ -1 +1 @@"],
        ["@@ -9,2 +9,2 @@", "-a", "+b"],
        ["-b"],
        [f"@@ -{'1' * 5000} +1 @@", "-b"],
    ],
)
def test_a_damaged_diff_is_a_conflict(lines: list[str]) -> None:
    with pytest.raises(Conflict):
        edits.applied(lines, b"b")


def test_bytes_that_are_no_text_have_no_diff() -> None:
    assert edits.difference(b"\xff", b"a") is None
    assert edits.difference(b"a", b"\xff") is None
    assert edits.difference(None, b"a") is None
    with pytest.raises(Conflict):
        edits.applied(diff(BUILT, EDITED), b"\xff")


@pytest.mark.parametrize("lines", [None, ("@@ -1 +1 @@", "-a", "+b")])
def test_an_edit_is_read_back(lines: tuple[str, ...] | None) -> None:
    edit = Edit(built="a" * 64, approvals=(Approval(by="Jo <jo@x>", why="faster"),), diff=lines)
    assert Edit.of_json(edit.to_json()) == edit
    assert str(edit) == "faster (Jo)"


@pytest.mark.parametrize("diff", ["text", [1], {"a": "b"}])
def test_a_damaged_edit_is_refused(diff: object) -> None:
    with pytest.raises(TypeError):
        Edit.of_json({"built": "a", "approvals": [], "diff": diff})
