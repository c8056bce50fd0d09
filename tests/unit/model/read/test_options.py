from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import LONGEST_DELAY, FilePath, FilePaths
from triton_repo_builder.model.read import options, trb_toml
from triton_repo_builder.model.read.options import BuildOptions


def refused(**values: Any) -> TrbError:
    with pytest.raises(TrbError) as caught:
        trb_toml.merge({"model": Path("m.onnx"), **values}, None)
    assert caught.value.code == Code.USAGE
    assert caught.value.remedy
    return caught.value


def refused_file(path: Path, text: str) -> TrbError:
    path.write_text(text)
    with pytest.raises(TrbError) as caught:
        trb_toml.merge({}, path)
    assert caught.value.code == Code.USAGE
    assert str(path) in caught.value.where
    return caught.value


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("200us", 200),
        ("200µs", 200),
        ("200", 200),
        ("5ms", 5000),
        ("0.1s", 100_000),
        (" 2 ms ", 2000),
        ("10s", 10**7),
    ],
)
def test_durations(text: str, microseconds: int) -> None:
    assert options.parse("max_queue_delay", text) == microseconds


@given(st.integers(0, LONGEST_DELAY), st.sampled_from([("us", 1), ("ms", 3), ("s", 6)]))
def test_every_whole_microsecond_can_be_written_in_every_unit(number: int, unit: tuple[str, int]) -> None:
    name, digits = unit
    whole, part = divmod(number, 10**digits) if name != "us" else (number, 0)
    text = f"{whole}.{part:0{digits}}{name}" if name != "us" else f"{number}us"
    assert options.parse("max_queue_delay", text) == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "'abc' is not a duration"),
        ("-1", "'-1' is not a duration"),
        ("5 hours", "'5 hours' is not a duration"),
        ("nan", "'nan' is not a duration"),
        ("inf", "'inf' is not a duration"),
        ("1e3us", "'1e3us' is not a duration"),
        ("", "'' is not a duration"),
        ("11s", "'11s' is longer than 10 s"),
        ("9" * 400, f"'{'9' * 400}' is longer than 10 s"),
        ("0.5us", "'0.5us' is finer than a microsecond"),
        ("9" * 1_500_000, f"'{'9' * 1000}' is not a duration"),
    ],
)
def test_durations_that_are_none(text: str, message: str) -> None:
    with pytest.raises(TrbError) as caught:
        options.parse("max_queue_delay", text)
    assert (caught.value.code, caught.value.message) == (Code.USAGE, message)
    assert caught.value.where == "--max-queue-delay"


def test_sizes_are_sorted_and_each_once() -> None:
    assert options.parse("preferred_batch_size", "16, 8,8") == (8, 16)


@pytest.mark.parametrize("text", ["", "8,,16", "a", "8;16", "1.5"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(TrbError, match="is not a list of sizes"):
        options.parse("preferred_batch_size", text)


def test_flags_override_the_file_which_overrides_defaults(tmp_path: Path) -> None:
    file = tmp_path / "trb.toml"
    file.write_text('[build]\nmodel = "m.onnx"\ninstances = 3\nthreads = 2\nwarmup = false\n')
    merged = trb_toml.merge({"instances": 5, "threads": None}, file)
    assert merged == BuildOptions(model=tmp_path / "m.onnx", instances=5, threads=2, warmup=False)
    assert merged.origins == {"model": "trb.toml", "threads": "trb.toml", "warmup": "trb.toml"}


def test_who_set_what_in_several_files() -> None:
    common = {"threads": 1, "instances": 2, "origins": {"threads": "a.toml", "instances": "a.toml"}}
    own = {"threads": 3, "device": "cpu", "origins": {"threads": "b.toml", "device": "b.toml"}}
    flags = {"device": "gpu", "instances": None}
    assert trb_toml.layered({"threads": 9}, common, own, flags) == {
        "threads": 3,
        "instances": 2,
        "device": "gpu",
        "origins": {"threads": "b.toml", "instances": "a.toml"},
    }


def test_a_strange_name_of_the_file_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "a\nb.toml"
    file.write_text('[build]\nmodel = "m"\nthreads = 2\n')
    assert trb_toml.merge({}, file).origins["threads"] == "the file of --config"


def test_paths_in_the_file_are_relative_to_it_and_dashes_are_underscores(tmp_path: Path) -> None:
    file = tmp_path / "trb.toml"
    file.write_text(
        '[build]\nmodel = "/abs/m.onnx"\noutput = "out"\nmax-queue-delay = "2ms"\n'
        "preferred-batch-size = [16, 8]\n"
    )
    merged = trb_toml.merge({}, file)
    assert (merged.model, merged.output) == (Path("/abs/m.onnx"), tmp_path / "out")
    assert (merged.max_queue_delay, merged.preferred_batch_size) == (2000, (8, 16))


def test_an_empty_list_of_sizes_is_none(tmp_path: Path) -> None:
    file = tmp_path / "trb.toml"
    file.write_text('[build]\nmodel = "m"\npreferred_batch_size = []\n')
    assert trb_toml.merge({}, file).preferred_batch_size == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[build]\ninstance = 2", "unknown option 'instance' in [build]"),
        ("[build]\nxyzzy = 2", "unknown option 'xyzzy' in [build]"),
        ("[bild]\n", "unknown table 'bild'"),
        ("model = 'x'", "unknown table 'model'"),
        ("build = 3", "[build] must be a table"),
        ("[[build]]\nmodel = 'x'", "[build] must be a table"),
        ("[build]\norigins = {}", "unknown option 'origins' in [build]"),
        ("[build]\ninstances = 'two'", "instances = 'two' is not valid"),
        ("[build]\ninstances = true", "instances = True is not valid"),
        ("[build]\ninstances = 2.0", "instances = 2.0 is not valid"),
        ("[build]\nwarmup = 1", "warmup = 1 is not valid"),
        ("[build]\nname = 3", "name = 3 is not valid"),
        ("[build]\nmodel = 3", "model = 3 is not valid"),
    ],
)
def test_files_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    assert refused_file(tmp_path / "trb.toml", text).message == message


def test_a_near_miss_is_named(tmp_path: Path) -> None:
    error = refused_file(tmp_path / "trb.toml", "[build]\nmax_batchsize = 2")
    assert error.remedy == "did you mean 'max_batch_size'?"


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    assert refused_file(tmp_path / "trb.toml", "[build").message.startswith("is not valid TOML: ")
    (tmp_path / "latin.toml").write_bytes(b'[build]\nname = "\xe9"\n')
    with pytest.raises(TrbError, match="is not valid TOML"):
        trb_toml.merge({}, tmp_path / "latin.toml")
    with pytest.raises(TrbError, match="cannot be read: No such file or directory"):
        trb_toml.merge({}, tmp_path / "absent.toml")


def test_no_model() -> None:
    with pytest.raises(TrbError, match="missing"):
        trb_toml.merge({}, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batching": "maybe"}, "'maybe' is unknown"),
        ({"instances": 0}, "must be at least 1, not 0"),
        ({"tokenizer_instances": -1}, "must be at least 1, not -1"),
        ({"version": 0}, "must be at least 1, not 0"),
        ({"max_batch_size": 0}, "must be at least 1, not 0"),
        ({"max_length": -5}, "must be at least 1, not -5"),
        ({"threads": -1}, "must be at least 0, not -1"),
        ({"version": 2**63}, f"must be at most {2**63 - 1}, not {2**63}"),
        ({"max_batch_size": 2**31}, f"must be at most {2**31 - 1}, not {2**31}"),
        ({"instances": 2**31}, f"must be at most {2**31 - 1}, not {2**31}"),
        ({"threads": 2**31}, f"must be at most {2**31 - 1}, not {2**31}"),
        ({"batching": "off", "preferred_batch_size": (8,)}, "has no effect with --batching off"),
        ({"batching": "off", "max_queue_delay": 5}, "has no effect with --batching off"),
        ({"batching": "off", "max_queue_size": 5}, "has no effect with --batching off"),
        ({"max_batch_size": 1, "queue_timeout": 5}, "has no effect with --max-batch-size 1"),
        ({"max_queue_size": 0}, "must be at least 1, not 0"),
        ({"batching": "off", "priority_levels": 2}, "has no effect with --batching off"),
        ({"priority_levels": 1}, "must be at least 2, not 1"),
        ({"batching": "on", "max_batch_size": 1}, "on has nothing to batch with --max-batch-size 1"),
        ({"max_batch_size": 1, "max_queue_delay": 5}, "has no effect with --max-batch-size 1"),
        ({"max_batch_size": 1, "preferred_batch_size": (1,)}, "has no effect with --max-batch-size 1"),
        ({"preferred_batch_size": (0,)}, "0 is not a batch size"),
        ({"preferred_batch_size": (64,)}, "64 is larger than the maximum batch size 32"),
        ({"preferred_batch_size": (8,), "max_batch_size": 1}, "8 is larger than the maximum batch size 1"),
    ],
)
def test_values_that_are_refused(values: dict[str, Any], message: str) -> None:
    error = refused(**values)
    assert error.message == message
    assert error.where.startswith("--")
    assert "_" not in error.where


def test_the_largest_allowed_values_are_allowed() -> None:
    merged = trb_toml.merge({"model": Path("m"), "version": 2**63 - 1, "preferred_batch_size": (32,)}, None)
    assert merged.version == 2**63 - 1


def test_no_path_of_this_machine_is_recorded() -> None:
    for name, declared in options.OPTIONS.items():
        if isinstance(declared.value, (FilePath, FilePaths)):
            assert not declared.recorded, name
