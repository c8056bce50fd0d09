"""What ``trb check`` calls an error a real tritonserver refuses, in these very words; what it passes loads.

Python models and ensembles of the bad repositories; the ONNX ones are compared with the texts that
test_onnxruntime_refusals.py proves. Left out are the faults that kill the server (version-overflow,
warmup-batch-size) or hang the load (model-file-missing-python, version-misread).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from types import TracebackType

import pytest
import tiny_onnx
from bad_repositories import findings, lay_out

from tests.integration import test_onnxruntime_refusals as refusals
from tests.support.raw_server import RawServer, raw_server

pytestmark = pytest.mark.server
log = logging.getLogger(__name__)

REFUSED = [
    "backend-unknown",
    "batch-input-source",
    "batch-input-type",
    "batch-input-unknown",
    "batch-output-unknown",
    "cache-unsupported-decoupled",
    "cache-unsupported-sequence",
    "ensemble-batch-size",
    "ensemble-cycle-self",
    "ensemble-cycle-two",
    "ensemble-forbidden-instance-group",
    "ensemble-forbidden-optimization",
    "ensemble-forbidden-warmup",
    "ensemble-input-unmapped",
    "ensemble-key-input",
    "ensemble-key-output",
    "ensemble-platform-backend",
    "ensemble-platform-backend-only",
    "ensemble-platform-missing",
    "ensemble-scheduling-missing",
    "ensemble-scheduling-no-map",
    "ensemble-scheduling-no-step",
    "ensemble-shape",
    "ensemble-shape-rank",
    "ensemble-step-unknown",
    "ensemble-step-version-absent",
    "ensemble-step-version-default",
    "ensemble-type",
    "ensemble-unconnected",
    "ensemble-unconnected-loop",
    "ensemble-unused-input",
    "ensemble-unused-output",
    "ensemble-unused-tensor",
    "ensemble-written-twice",
    "field-too-new",
    "field-too-new-ensemble",
    "instance-gpus-cpu",
    "instance-gpus-model",
    "instance-profile",
    "labels-missing",
    "max-batch-size-negative",
    "name-mismatch",
    "platform-backend-pair",
    "platform-unknown",
    "platform-unknown-filename",
    "platform-unknown-no-backend",
    "platform-unknown-python",
    "preferred-size-sequence",
    "preferred-size-too-large",
    "preferred-size-without-batching",
    "preferred-size-zero",
    "preserve-ordering-delay",
    "preserve-ordering-priorities",
    "priority-range-default",
    "priority-range-policy",
    "python-class-missing",
    "python-syntax",
    "tensor-dims-negative",
    "tensor-dims-zero",
    "tensor-format",
    "tensor-incomplete-dims",
    "tensor-incomplete-name",
    "tensor-incomplete-output",
    "tensor-incomplete-type",
    "tensor-reshape-empty",
    "tensor-reshape-size",
    "tensor-reshape-variable",
    "tensor-shape-tensor",
    "version-missing-01",
    "version-missing-ensemble",
    "version-missing-latest",
    "version-missing-none",
    "version-missing-specific",
    "version-missing-v1",
    "warmup-data",
    "warmup-file-missing",
    "warmup-file-short",
    "warmup-inputs",
    "warmup-shape-open",
    "warmup-shape-other",
    "warmup-type",
]
SYNTAX = [
    "config-syntax-bracket",
    "config-syntax-enum",
    "config-syntax-misspelt",
    "config-syntax-negative",
    "config-syntax-parameter",
    "config-syntax-quoted-enum",
    "config-syntax-quoted-number",
    "config-syntax-trailing-comma",
    "config-syntax-twice",
    "config-syntax-two-schedulers",
    "config-syntax-unknown-field",
]
ACCEPTED = [
    "batching-idle",
    "python-io-missing",
    "queue-delay-clearml",
    "version-absent",
    "version-empty",
    "version-ignored",
]
"""Warnings only: the server takes these."""


class Bench:
    """One server over one repository, whose models change from case to case.

    A server that died of a case (once in some thousand loads of a broken Python model) is started again, and
    the case with it: a fault that kills the server each time fails, with its log.
    """

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._directory = directory
        self._arguments = ("--model-control-mode=explicit", *arguments)
        self._starts = 0
        self._running: AbstractContextManager[RawServer]
        self.server: RawServer
        self.repository: Path

    def __enter__(self) -> Bench:
        self._starts += 1
        scratch = self._directory / str(self._starts)
        self.repository = scratch / "repository"
        self.repository.mkdir(parents=True)
        self._running = raw_server(self.repository, scratch, arguments=self._arguments)
        self.server = self._running.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def judge(self, name: str) -> tuple[list[str], str]:
        """Messages of our errors, and what the server said ("" if it loaded all)."""
        try:
            return self._judge(name)
        except (OSError, HTTPException):
            self.__exit__(None, None, None)
            log.error("the server died:\n%s", self.server.log.read_text(errors="replace")[-4000:])
            self.__enter__()
            return self._judge(name)

    def clear(self) -> None:
        """An empty repository again."""
        for entry in self.repository.iterdir():
            self.server.unload(entry.name)
            shutil.rmtree(entry)

    def _judge(self, name: str) -> tuple[list[str], str]:
        source = lay_out(name, self._directory / f"{name}-{self._starts}")
        for entry in source.iterdir():
            if entry.is_dir():
                shutil.copytree(entry, self.repository / entry.name)
        errors = [finding.message for finding in findings(self.repository) if finding.severity == "error"]
        said = self._load(source)
        self.clear()
        return errors, said

    def _load(self, source: Path) -> str:
        start = self.server.log.stat().st_size
        # Ensembles are named e and b, their steps m: an ensemble loads its steps by itself.
        names = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
        refused = [text for text in map(self.server.load, names) if text]
        with self.server.log.open("rb") as lines:
            lines.seek(start)
            said = lines.read().decode(errors="replace")
        return "\n".join([*refused, said]) if refused else ""


@pytest.fixture(
    scope="module",
    params=[
        # Completing a configuration starts each Python model twice.
        pytest.param(("--disable-auto-complete-config",), id="as it stands"),
        pytest.param((), id="completed", marks=pytest.mark.slow),
    ],
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Started once, on an empty repository; it takes configurations as they stand, or completes them."""
    with Bench(tmp_path_factory.mktemp("bench"), *request.param) as started:
        yield started


def test_a_folder_without_any_model_is_refused(tmp_path: Path) -> None:
    """Only a server that completes configurations loads a folder that has none."""
    with Bench(tmp_path) as bench:
        errors, said = bench.judge("not-a-model")
    assert errors
    assert any(_dense(message) in _dense(said) for message in errors), f"{errors}\n{said}"


def _dense(text: str) -> str:
    return text.replace(" ", "")


@pytest.mark.parametrize("name", REFUSED)
def test_the_server_refuses_in_our_words(bench: Bench, name: str) -> None:
    errors, said = bench.judge(name)
    assert errors
    # Blanks apart: the server forgets one in "provided from shortonly has 2 bytes".
    assert any(_dense(message) in _dense(said) for message in errors), f"{errors}\n{said}"


@pytest.mark.parametrize("name", SYNTAX)
def test_the_server_cannot_parse_it_either(bench: Bench, name: str) -> None:
    errors, said = bench.judge(name)
    assert len(errors) == 1
    assert "failed to read text proto from" in said
    # Protobuf's parsers for C++ and Python differ in words and columns, not in the line.
    line = (
        (Path(__file__).parents[1] / "errors" / "repositories" / name / "expected.txt")
        .read_text()
        .split(":")[1]
    )
    assert f"inference.ModelConfig: {line}:" in said


@pytest.mark.parametrize("name", ACCEPTED)
def test_warnings_load(bench: Bench, name: str) -> None:
    errors, said = bench.judge(name)
    assert errors == []
    assert said == ""


def test_a_good_ensemble_has_no_finding_and_loads(bench: Bench) -> None:
    source = lay_out("version-empty", bench.repository)
    (source / "e" / "1" / ".gitkeep").touch()
    try:
        assert findings(source) == []
        assert bench.server.load("e") == ""
    finally:
        bench.clear()


ONNX = [
    case
    for case in [*refusals.GRAPH, *refusals.OPTIONS]
    # Without a type in the config, the fault shows only in what the server completes by itself; the others
    # ask for an accelerator, which depends on how the backend was built.
    if case.name not in ("bf16_none", "openvino", "accelerator")
]


@pytest.mark.parametrize("case", ONNX, ids=lambda case: case.name)
def test_onnx_refusals_are_found_in_the_same_words(case: refusals.Case, tmp_path: Path) -> None:
    tiny_onnx.write(tmp_path, case.name, f'backend: "onnxruntime"\n{case.config}', case.content)
    errors = [finding.message for finding in findings(tmp_path) if finding.severity == "error"]
    assert any(case.expected[0].rstrip(";") in message for message in errors), errors
