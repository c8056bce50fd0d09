"""Texts on which protobuf's parsers differ; the server's verdicts are in test_check_agrees.py."""

from __future__ import annotations

import math

import pytest
from bad_repositories import FOLDER, GOOD, files_named

from triton_repo_builder.repository import pbtxt, pbtxt_syntax


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        ("max_batch_size: 1_000", (1, 18), "Need space between number and identifier."),
        ("max_batch_size: 8input { }", (1, 18), "Need space between number and identifier."),
        ("max_batch_size: +4", (1, 17), "Expected identifier, got: +"),
        ("max_batch_size: 08", (1, 17), "Numbers starting with leading zero must be in octal."),
        ('\nname: "\\q"', (2, 9), "Invalid escape sequence in string literal."),
        ('name: "\\x"', (1, 9), "Invalid escape sequence in string literal."),
        ('name: "a\nb"', (1, 9), "String literals cannot cross line boundaries."),
        ('name: "a', (1, 9), "Unexpected end of string."),
        ('name: "a"\u00a0', (1, 10), "Expected identifier, got: \u00a0 (U+00A0)"),
        ('name: "\0"', (1, 8), "Unexpected end of string."),
        ('name: "\\X41"', (1, 9), "Invalid escape sequence in string literal."),
        ('name: "\\u12"', (1, 9), "Invalid escape sequence in string literal."),
        ("dynamic_batching { max_queue_delay_microseconds: -0 }", (1, 50), "Expected integer, got: -"),
        (
            "sequence_batching { direct { minimum_slot_utilization: inff } }",
            (1, 56),
            "Expected double, got: inff",
        ),
        ("input { dims: [ - ] }", (1, 18), "Couldn't parse integer: -"),
        ('\ufeffname: "a"', (1, 1), "Expected identifier, got: \ufeff (U+FEFF)"),
        ("# \0", (1, 3), "Invalid control characters encountered in text."),
        ("<<\n=", (1, 1), "Expected identifier or number, got <."),
    ],
)
def test_what_the_server_refuses(text: str, where: tuple[int, int], reason: str) -> None:
    with pytest.raises(pbtxt.PbtxtError) as caught:
        pbtxt.parse(text)
    assert (caught.value.line, caught.value.column) == where
    assert caught.value.reason.endswith(reason)


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("input { dims: [ - 1, -2 ] }", {"input": [{"dims": [-1, -2]}]}),
        ("input { dims: - # why\n 1 }", {"input": [{"dims": [-1]}]}),
        ("max_batch_size: 010", {"max_batch_size": 8}),
        ("max_batch_size: 0x8 # caf\ufffd \x01", {"max_batch_size": 8}),
        ('name: "a" \'b\'; platform: "\\x41\\101\\u0041"', {"name": "ab", "platform": "AAA"}),
        (
            "input { is_shape_tensor: 0x1 data_type: 013 }",
            {"input": [{"is_shape_tensor": True, "data_type": "TYPE_FP32"}]},
        ),
        ('name: "\\303\\251" "\\xc3" \'\\xa9\\777\'', {"name": "\u00e9\u00e9"}),
        ('name: "\\ud83d\\ude00\\ud83d\\?\\"\\7"', {"name": '\U0001f600?"\a'}),
        (
            'parameters { key: "\\x41" value { string_value: "\\U0011ffff" } }',
            {"parameters": {"A": {"string_value": ""}}},
        ),
        (
            "sequence_batching { direct { minimum_slot_utilization: .5f } }",
            {"sequence_batching": {"direct": {"minimum_slot_utilization": 0.5}}},
        ),
    ],
)
def test_what_the_server_takes(text: str, config: dict[str, object]) -> None:
    assert pbtxt.parse(text) == config


def test_defaults_and_inner_messages() -> None:
    assert pbtxt.default("ModelInstanceGroup", "kind") == "KIND_AUTO"
    assert pbtxt.default("ModelInstanceGroup", "gpus") is None
    assert pbtxt.inner("ModelConfig", "dynamic_batching") == "ModelDynamicBatching"
    assert pbtxt.inner("ModelConfig", "parameters") == ""


def test_floats_are_floats() -> None:
    text = "sequence_batching {{ direct {{ minimum_slot_utilization: {} }} }}"
    for written, value in (("- inf", -math.inf), ("Infinity", math.inf), ("1", 1.0)):
        parsed = pbtxt.parse(text.format(written))["sequence_batching"]["direct"]["minimum_slot_utilization"]
        assert parsed == value
    parsed = pbtxt.parse(text.format("nan"))
    assert math.isnan(parsed["sequence_batching"]["direct"]["minimum_slot_utilization"])


CONFIGS = files_named("config.pbtxt", FOLDER, GOOD)
FURTHER = [
    "max_batch_size: -1",
    "max_batch_size: 1x",
    "max_batch_size: 01",
    "dynamic_batching { max_queue_delay_microseconds: -1 }",
    "sequence_batching { direct { minimum_slot_utilization: abc } }",
    "sequence_batching { direct { minimum_slot_utilization: inff } }",
    'name: "a" "b"',
    'name: "a"b: 1',
    'name: "a\\q"',
    "#" + "x" * 300 + '\nname: "a"',
    " " * 300 + 'name: "a"',
    'name: "' + "x" * 300 + '"',
]


def test_a_plain_text_is_read_at_once_as_it_is_read_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = FURTHER + [content.decode("utf-8", "replace") for content in CONFIGS]

    def read(text: str) -> str:
        try:
            return repr(pbtxt.parse(text))
        except pbtxt.PbtxtError as error:
            return str(error)

    assert sum(map(pbtxt_syntax.is_plain, texts)) > len(texts) / 2
    at_once = [read(text) for text in texts]
    monkeypatch.setattr(pbtxt_syntax, "is_plain", lambda _: False)
    assert [read(text) for text in texts] == at_once
