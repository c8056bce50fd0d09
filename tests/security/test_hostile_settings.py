"""A trb.toml of the current folder is a stranger's: it is read with bounds, and one clear error says so."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from cli import call, kind

from triton_repo_builder.base import deadline, files
from triton_repo_builder.base.errors import Code

CONFIG = """
name: "m"
backend: "python"
max_batch_size: 1
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "long" value: { string_value: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab" } }
"""
DOTTED = ".".join(["a"] * 30_000)
NUMBER = "0x" + "f" * 9000
TOML = {
    "key": (f"x = 1\n{DOTTED} = 1\n", "line 2 has more than 200 dots"),
    "header": (f"[{DOTTED}]\nx = 1\n", "line 1 has more than 200 dots"),
    "tables": (f"[[check.{DOTTED}]]\nx = 1\n", "line 1 has more than 200 dots"),
    "inline table": (f"[build]\nmodel = {{{DOTTED} = 1}}\n", "line 2 has more than 200 dots"),
    "many": ("".join(f"[c{i}.{DOTTED[:379]}]\n" for i in range(600)), "nested more than 100 levels deep"),
    "lists": ("x = " + "[" * 50_000, "nested too deeply"),
    "digits": (f"[build]\nmax-batch-size = {NUMBER}\n", "a number has more than 1,024 bits"),
    "bytes": ("#" * (files.LARGEST_TOML + 1), "larger than the 262,144 bytes"),
    "value": (
        f"[build]\nmax-batch-size = '{'x' * 9000}'\n[check]\ngpus = '{'x' * 9000}'\n",
        f"gpus = '{'x' * 79}…",
    ),
}


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize("argv", [("check", "repo"), ("build", "--model", "x.onnx")])
def test_a_trb_toml_without_measure(
    name: str, argv: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repo").mkdir()
    text, message = TOML[name]
    Path("trb.toml").write_text(text)
    begin = time.monotonic()
    done = call(*argv)
    assert kind(done.stderr) is Code.USAGE
    assert "trb.toml" in done.stderr.splitlines()[0]
    assert message.replace("gpus", "max-batch-size" if argv[0] == "build" else "gpus") in done.stderr
    assert len(done.stderr) < 500 and time.monotonic() - begin < 20


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a+)+c", "[policy.x]: pattern = '(a+)+c' takes more than 1 s on 'aaaaaaa"),
        ("(" * 5000 + ")" * 5000, "trb.toml [policy.x]: pattern is no regular expression"),
        ("a{9999999999999}", "trb.toml [policy.x]: pattern is no regular expression"),
    ],
)
def test_a_pattern_of_a_policy_that_does_not_end(
    pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repo/m/1").mkdir(parents=True)
    (tmp_path / "repo/m/config.pbtxt").write_text(CONFIG)
    (tmp_path / "repo/m/1/model.py").write_text("class TritonPythonModel:\n    def execute(self, r): ...\n")
    (tmp_path / "trb.toml").write_text(
        f"[check.policy.x]\nfield = 'parameters.long'\npattern = '{pattern}'\n"
    )
    done = call("check", "repo")
    assert kind(done.stderr) is Code.USAGE
    assert f"error: {message}" in done.stderr


def test_the_alarm_of_others_is_kept() -> None:
    """pytest-timeout and programs that use trb as a library may have set one."""
    rang: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _: rang.append(number))
    before = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(deadline.Exceeded), deadline.interrupted(0.1):
            time.sleep(5)
        with deadline.interrupted(5):
            pass
        assert not rang and 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 0.3
        time.sleep(0.4)
        assert rang == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)
