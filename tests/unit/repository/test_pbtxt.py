import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.repository import pbtxt

# Half of a surrogate pair is no text: it has no UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_any_text_reads_back_from_one_line_without_control_characters(text: str) -> None:
    [(field, line)] = pbtxt.elements({"name": text})
    assert field == "name"
    assert line.isprintable()
    assert pbtxt.parse(line).get("name", "") == text


def test_defaults_are_written() -> None:
    assert list(pbtxt.elements({"name": "", "max_batch_size": 0})) == [
        ("name", 'name: ""'),
        ("max_batch_size", "max_batch_size: 0"),
    ]


@given(TEXT)
def test_any_text_is_a_configuration_or_an_error_with_a_position(text: str) -> None:
    try:
        assert isinstance(pbtxt.parse(text), dict)
    except pbtxt.PbtxtError as error:
        assert error.line >= 1
        assert error.column >= 1
        assert error.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: 8", {"max_batch_size": 8}),
        ("max_batch_size: 0", {}),
        ("input [ ] output []", {}),
        ("dynamic_batching { }", {"dynamic_batching": {}}),
        (
            "dynamic_batching { max_queue_delay_microseconds: 200 preferred_batch_size: [4, 8] }",
            {"dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 200}},
        ),
        (
            'input { name: "X" data_type: TYPE_FP32 dims: -1 reshape { } }',
            {"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1], "reshape": {}}]},
        ),
        (
            'parameters { key: "a" value { string_value: "1" } }',
            {"parameters": {"a": {"string_value": "1"}}},
        ),
        (
            "version_policy { specific { versions: [1, 3] } }",
            {"version_policy": {"specific": {"versions": [1, 3]}}},
        ),
        (
            'model_warmup { inputs { key: "X" value { dims: 7 zero_data: true } } }',
            {"model_warmup": [{"inputs": {"X": {"dims": [7], "zero_data": True}}}]},
        ),
    ],
)
def test_integers_are_integers(text: str, expected: dict[str, object]) -> None:
    assert pbtxt.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("batch_size: 8", (1, 1)),
        ("max_batch_size: 8\nmax_batch_size: 8", (2, 17)),
        ('name: "a"\n\ninput [', (3, 8)),
        ('name: "\\q"', (1, 9)),
    ],
)
def test_errors_have_a_position(text: str, where: tuple[int, int]) -> None:
    with pytest.raises(pbtxt.PbtxtError) as caught:
        pbtxt.parse(text)
    assert (caught.value.line, caught.value.column) == where


def test_the_error_passes_through_a_context_manager() -> None:
    @contextlib.contextmanager
    def block() -> Iterator[None]:
        yield

    with pytest.raises(pbtxt.PbtxtError), block():
        pbtxt.parse("name")


POLICIES = (
    "version_policy { specific { versions: [ 3 ] } }\n",
    "# Of the version folders this one is served.\nversion_policy { all { } }\n",
    "version_policy {\n  specific {\n    versions: [1, 2]\n  }\n}\n",
    "version_policy: { latest { num_versions: 2 } }",
    "version_policy < specific < versions: [1] versions: [2 # }\n] > > ;\n",
    "",
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_takes_the_place_of_another(policy: str) -> None:
    text = f'name: "m"\n{policy}'
    assert pbtxt.without_policy(text) == 'name: "m"\n'
    served = pbtxt.serve_versions(text, (1, 2))
    assert pbtxt.parse(served) == {"name": "m", "version_policy": {"specific": {"versions": [1, 2]}}}
    assert pbtxt.without_policy(served) == 'name: "m"\n'


def test_steps_are_pinned_and_all_else_stays() -> None:
    text = "ensemble_scheduling { step [ # first\n { model_version: -1 },\n{model_version:2} ] }\n"
    pinned = pbtxt.pin_steps(text, 7)
    steps = pbtxt.parse(pinned)["ensemble_scheduling"]["step"]
    assert [step["model_version"] for step in steps] == [7, 7]
    assert pinned.replace("7", "-1", 1).replace("7", "2") == text


def test_a_policy_goes_wherever_it_is_and_comments_with_its_name_stay() -> None:
    text = (
        '# version_policy { }\nname: "version_policy { }" version_policy { all { } } # mine\nbackend: "b"\n'
    )
    assert pbtxt.without_policy(text) == text.replace("version_policy { all { } } ", "")
    assert pbtxt.without_policy("version_policy { }\r\nbackend: 'b'\r\n") == "backend: 'b'\r\n"


def test_named_steps_are_pinned_in_any_order_of_fields() -> None:
    steps = 'step { model_version: -1 model_name: "a" } step { model_name: "b" model_version: 2 }'
    text = f'# model_version: 1\nensemble_scheduling {{ {steps} step {{ model_name: "a" }} }}\n'
    assert pbtxt.pin_steps(text, {"a": 5}) == text.replace("model_version: -1", "model_version: 5")
    assert pbtxt.pin_steps(text, {"b": 5}) == text.replace("model_version: 2", "model_version: 5")


@given(TEXT, st.lists(st.integers(1, 9), min_size=1))
def test_versions_come_and_go_without_a_trace(text: str, versions: list[int]) -> None:
    plain = pbtxt.without_policy(f'name: "m" {text}')
    with contextlib.suppress(pbtxt.PbtxtError):
        pbtxt.parse(plain)
        assert pbtxt.without_policy(pbtxt.serve_versions(plain, versions)) == plain
