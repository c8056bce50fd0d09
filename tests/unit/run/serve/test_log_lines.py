"""The server's output as JSON, from output of tritonserver 2.51.0 and of older releases."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from triton_repo_builder.run.serve import log_lines
from triton_repo_builder.run.serve.loading import failure_causes
from triton_repo_builder.run.serve.log_lines import JsonLines

OUTPUT = r"""I1127 13:16:28.047658 20726 server.cc:604] 
+------------------+------+
| Repository Agent | Path |
+------------------+------+
+------------------+------+

Error: Failed to initialize NVML
W1127 13:16:28.048397 20726 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
I1127 13:16:28.123717 20726 model_lifecycle.cc:472] "loading: ner_postprocess:2"
I1127 13:16:28.123666 20726 python_be.cc:2249] "TRITONBACKEND_ModelInstanceInitialize: ner_postprocess_0_0 (CPU device 0)"
I1127 13:16:29.020123 20726 model_lifecycle.cc:839] "successfully loaded 'ner_postprocess'"
E1127 13:19:38.114565 1855 pb_stub.cc:714] "Failed to process the request(s) for model 'ner_postprocess_0_0', message: RuntimeError: boom\n\nAt:\n  /m/ner_postprocess/2/model.py(46): execute\n"
I1127 13:19:38.115802 1855 http_server.cc:3652] "[request id: abc] Infer failed: expected 1 inputs but got 0 inputs for model 'ner'"
I1127 13:19:37.908281 1855 infer_request.cc:132] "[request id: <id_unknown>] Setting state"
Traceback (most recent call last):
  File "/m/qa_tokenizer/7/model.py", line 3, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 1, in <module>
ValueError: two

hello from a model
{"level": "info", "message": "its own JSON"}
E0101 00:00:00.000001 7 model_lifecycle.cc:621] failed to load 'old' version 1: Internal: ValueError: boom

At:
  /m/old/1/model.py(12): initialize

I1127 13:16:31.590440 20726 model_lifecycle.cc:624] "successfully unloaded 'ner_postprocess' version 2"
Signal (11) received.
 0# 0x000055 in tritonserver
 1# 0x00007f in /lib/libc.so.6
"""  # noqa: E501, W291


def objects(pieces: list[bytes], **options: Any) -> list[dict[str, Any]]:
    lines = JsonLines(utc=True, **options)
    text = b"".join([*(lines.feed(piece) for piece in pieces), lines.flush()])
    return [json.loads(line) for line in text.splitlines()]


def test_every_message_is_one_object() -> None:
    entries = objects([OUTPUT.encode()])
    said = [(each["level"], each.get("model"), each.get("version")) for each in entries]
    assert said == [
        ("info", None, None),
        ("error", None, None),
        ("warning", None, None),
        ("info", "ner_postprocess", "2"),
        ("info", "ner_postprocess", "2"),
        ("info", "ner_postprocess", "2"),
        ("error", "ner_postprocess", "2"),
        ("info", "ner", None),
        ("info", None, None),
        ("error", "qa_tokenizer", "7"),
        ("info", None, None),
        ("info", None, None),
        ("error", "old", "1"),
        ("info", "ner_postprocess", "2"),
        ("error", None, None),
    ]
    table, _, warning, *_ = entries
    assert table["message"].splitlines()[1] == "| Repository Agent | Path |"
    assert warning["time"].endswith("-11-27T13:16:28.048397Z")
    assert (warning["source"], warning["pid"]) == ("metrics.cc:798", 20726)
    assert [each["request_id"] for each in entries if "request_id" in each] == ["abc"]
    assert entries[9]["message"].endswith("ValueError: two") and "During handling" in entries[9]["message"]
    assert entries[11] == {"level": "info", "message": "its own JSON"}
    assert entries[12]["message"].endswith("initialize")
    assert entries[14]["message"].count("\n") == 2


def test_pieces_may_be_of_any_size() -> None:
    data, numbers = OUTPUT.encode(), random.Random(1)
    whole = objects([data])
    for _ in range(20):
        cuts = sorted(numbers.sample(range(len(data)), 12))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        timeless = [{k: v for k, v in e.items() if k != "time" or "source" in e} for e in objects(pieces)]
        assert timeless == [{k: v for k, v in e.items() if k != "time" or "source" in e} for e in whole]


def test_a_version_is_not_guessed_of_two() -> None:
    lines = [f'I1127 13:16:28.000000 1 a.cc:1] "loading: bert:{version}"' for version in (1, 2)]
    *_, last = objects(["\n".join([*lines, "I1127 13:16:28.0 1 a.cc:1] \"loaded 'bert'\"", ""]).encode()])
    assert last["model"] == "bert" and "version" not in last


def test_a_message_without_an_end_is_cut() -> None:
    (entry, *_) = objects([b"x" * (log_lines.MOST + 10), b"\n", b"\xff\n"])
    assert len(entry["message"]) >= log_lines.MOST


def test_causes_of_failures_are_read_from_both_forms() -> None:
    lines = JsonLines()
    more = b'{"route":"/v1/x","level":"error","message":"/v1/x 500"}\nwarning: no spans\nterminate called\n'
    as_json = (lines.feed(OUTPUT.encode() + more) + lines.flush()).decode()
    errors = failure_causes.last_errors(log_lines.as_text(as_json), 99)
    assert "RuntimeError: boom" in errors and "failed to load 'old'" in errors
    assert "/v1/x" not in errors and "no spans" not in errors and "terminate called" in errors
    assert "loading" not in errors and log_lines.as_text(OUTPUT) == OUTPUT


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [("warning: it ended", "warning", "it ended"), ("loading 4 models", "info", "loading 4 models")],
)
def test_lines_of_trb_itself(text: str, level: str, message: str) -> None:
    entry = json.loads(log_lines.line(text))
    assert (entry["level"], entry["message"]) == (level, message)


def test_quotes_come_back() -> None:
    text = 'a\nb "c" \\n\t'
    assert log_lines.unquote(log_lines.quote(text)) == text
