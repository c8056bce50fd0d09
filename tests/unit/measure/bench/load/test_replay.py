"""Recorded logs: their times and texts as they were, and what is wrong with a damaged one."""

import json
from pathlib import Path

import pytest
from bench_values import TEXT, target

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.level import shares
from triton_repo_builder.measure.bench.load import replay
from triton_repo_builder.measure.bench.load.requests import encode, text_inputs
from triton_repo_builder.measure.bench.options import Shape, check, shapes
from triton_repo_builder.measure.bench.prepare import Prepared
from triton_repo_builder.measure.options import BenchOptions

LINES = (
    '{"at": 12.5, "text": "b"}',
    '{"at": 10, "text": "a"}',
    "",
    '{"at": 13, "text": "a"}',
    '{"at": 14, "text": "c"}',
)


def written(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(lines))
    return file


def test_times_count_from_the_first_request_and_repeats_stay(tmp_path: Path) -> None:
    log = replay.read(written(tmp_path, *LINES))
    assert log.texts == ("a", "b", "c")
    assert log.arrivals == ((0, 0), (2.5, 1), (3, 0), (4, 2))
    assert log.seconds == pytest.approx(4 + 4 / 3)


def test_times_may_be_dates(tmp_path: Path) -> None:
    lines = ('{"at": "2024-10-01T12:00:00Z"}', '{"at": "2024-10-01T14:00:01.500+02:00"}')
    log = replay.read(written(tmp_path, *lines))
    assert (log.texts, log.arrivals) == ((), ((0, 0), (1.5, 1)))


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        '{"text": "a"}',
        '{"at": true}',
        '{"at": "soon"}',
        '{"at": NaN}',
        '{"at": 1, "text": 3}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(TrbError) as caught:
        replay.read(written(tmp_path, '{"at": 0, "text": "a"}', line))
    assert caught.value.code is Code.USAGE
    assert "line 2" in caught.value.message


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ('{"at": 1}', '{"at": 2, "text": "a"}'),
        ('{"at": 1e300}', '{"at": 2}'),
        ('{"at": 1727784000000}', '{"at": 1727787600000}'),  # milliseconds
        ('{"at": "2024-10-01T12:00:00Z"}', '{"at": "2024-10-01T12:00:01"}'),
        ('{"at": "2024-10-01T12:00:00Z"}', '{"at": 3}'),
    ],
)
def test_logs_that_cannot_be_sent(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(TrbError) as caught:
        replay.read(written(tmp_path, *lines))
    assert caught.value.code is Code.USAGE


def test_marks_and_line_ends_of_windows_and_within_texts(tmp_path: Path) -> None:
    file = tmp_path / "log"
    text = "a\u2028b\x85c"
    lines = (
        json.dumps({"at": 0, "text": text}, ensure_ascii=False) + "\r\n\r\n" + '{"at": 1, "text": "d"}\r\n'
    )
    file.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert replay.read(file).texts == (text, "d")


def test_the_processes_share_the_log_and_every_request_has_its_text(tmp_path: Path) -> None:
    file = written(tmp_path, *LINES)
    options = BenchOptions(replay=file, concurrency=(), processes=2)
    (shape,) = shapes(options)
    assert shape == Shape(protocol="grpc", mode="open", rate=0.75)
    log = replay.read(file)
    endpoint = target(TEXT)
    inputs = {None: text_inputs(endpoint, log.texts, 1)}
    payload = Prepared(target=endpoint, inputs=inputs, about={}, notes=(), log=log).requests(shape, options)
    assert payload.bodies == encode(endpoint, "grpc", inputs[None]).bodies
    first, second = shares(shape, payload, options)
    assert sorted(first.schedule + second.schedule) == sorted(log.arrivals)


def test_a_log_excludes_other_loads(tmp_path: Path) -> None:
    for other in ({"rates": (5.0,)}, {"lengths": (8,)}, {"fixed": "a"}, {"rows": 2}):
        with pytest.raises(TrbError) as caught:
            check(BenchOptions(replay=written(tmp_path, *LINES), **{"concurrency": (), **other}))  # type: ignore[arg-type]
        assert caught.value.code is Code.USAGE
