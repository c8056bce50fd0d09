"""What ``trb check`` calls an error a real tritonserver refuses, in these very words; what it passes loads.

Python models and ensembles of the bad repositories; the ONNX ones are compared with the texts that
test_onnxruntime_refusals.py proves. Left out are the faults that kill the server (version-overflow,
warmup-batch-size, config-folder, metrics-tag, repository-agents, a folder in the place of a file,
sequence-state-huge, and sometimes sequence-state-size) or hang the load (model-file-missing-python,
version-misread, python-name, model-filename-absolute).
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from types import TracebackType

import pytest
import tiny_onnx
from bad_repositories import ACCEPTED as ACCEPTED_ONES
from bad_repositories import FOLDER, GOOD, case, findings, lay_out

from tests.integration import test_onnxruntime_refusals as refusals
from tests.support.raw_server import RawServer, raw_server

pytestmark = pytest.mark.server
log = logging.getLogger(__name__)

REFUSED = [
    "backend-unknown",
    "backend-unknown-blank",
    "backend-unknown-dot",
    "backend-unknown-case",
    "backend-unknown-path",
    "batch-input-source",
    "batch-input-type",
    "batch-input-unknown",
    "batch-output-unknown",
    "batch-strategy-sequence",
    "cache-unsupported-decoupled",
    "cache-unsupported-ensemble",
    "cache-unsupported-sequence",
    "ensemble-batch-size",
    "ensemble-cycle-self",
    "ensemble-cycle-two",
    "ensemble-decoupled",
    "ensemble-decoupled-input",
    "ensemble-decoupled-nested",
    "ensemble-decoupled-outputs",
    "ensemble-forbidden-instance-group",
    "ensemble-forbidden-optimization",
    "ensemble-forbidden-warmup",
    "ensemble-input-unmapped",
    "ensemble-key-input",
    "ensemble-key-output",
    "ensemble-key-undeclared",
    "ensemble-platform-backend",
    "ensemble-platform-backend-only",
    "ensemble-platform-filename",
    "ensemble-platform-missing",
    "ensemble-scheduling-missing",
    "ensemble-scheduling-no-map",
    "ensemble-scheduling-no-step",
    "ensemble-shape",
    "ensemble-shape-rank",
    "ensemble-shape-reshape",
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
    "instance-gpus-kind",
    "instance-gpus-model",
    "instance-gpus-negative",
    "instance-gpus-negative-gpu",
    "instance-profile",
    "labels-missing",
    "labels-missing-absolute",
    "labels-missing-outside",
    "labels-missing-twice",
    "link-dangling-model",
    "max-batch-size-negative",
    "model-filename",
    "model-filename-dots",
    "name-mismatch",
    "onnx-graph-cast",
    "onnx-graph-constant",
    "onnx-graph-sizes",
    "onnx-input-count-two-kinds",
    "onnx-name-control",
    "onnx-shape-control",
    "onnx-type-control",
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
    "python-class-missing-if-false",
    "python-class-missing-in-function",
    "python-environment-no-activate",
    "python-class-missing-constant",
    "python-parameter",
    "python-raises-config-args",
    "python-raises-config-attribute",
    "python-raises-config-by-name",
    "python-raises-config-get",
    "python-raises-config-list",
    "python-raises-config-parameter",
    "python-raises-config-text",
    "python-signature",
    "python-syntax",
    "python-syntax-return",
    "runtime-unknown",
    "runtime-unknown-python",
    "sequence-control-id-with-values",
    "sequence-control-id-without-type",
    "sequence-control-kind-twice",
    "sequence-control-one-value",
    "sequence-control-tensor-twice",
    "sequence-control-two-types",
    "sequence-control-unnamed",
    "sequence-control-without-values",
    "sequence-slot",
    "sequence-state-file-missing",
    "sequence-state-file-short",
    "sequence-state-open",
    "sequence-state-rank",
    "sequence-state-twice",
    "sequence-state-two",
    "sequence-state-type",
    "sequence-state-unnamed",
    "sequence-state-without-data",
    "tensor-dims-negative",
    "tensor-dims-zero",
    "tensor-format",
    "tensor-incomplete-dims",
    "tensor-incomplete-name",
    "tensor-incomplete-output",
    "tensor-incomplete-type",
    "tensor-non-linear",
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
    "warmup-file-many-strings",
    "warmup-file-missing",
    "warmup-file-short",
    "warmup-file-strings",
    "warmup-inputs",
    "warmup-shape-open",
    "warmup-shape-other",
    "warmup-type",
]
SYNTAX = [
    "config-syntax-bom",
    "config-syntax-bracket",
    "config-syntax-capitals",
    "config-syntax-comment",
    "config-syntax-conflict",
    "config-syntax-control",
    "config-syntax-enum",
    "config-syntax-escape",
    "config-syntax-jinja",
    "config-syntax-minus-zero",
    "config-syntax-misspelt",
    "config-syntax-negative",
    "config-syntax-no-blank",
    "config-syntax-no-break-space",
    "config-syntax-nul-in-comment",
    "config-syntax-over-lines",
    "config-syntax-parameter",
    "config-syntax-plus",
    "config-syntax-point",
    "config-syntax-quoted-enum",
    "config-syntax-quoted-number",
    "config-syntax-quotes",
    "config-syntax-too-large",
    "config-syntax-trailing-comma",
    "config-syntax-twice",
    "config-syntax-two-policies",
    "config-syntax-two-schedulers",
    "config-syntax-underscore",
    "config-syntax-unknown-field",
    "config-syntax-utf16",
    "config-syntax-yes",
]
ACCEPTED = [
    "batching-idle",
    "python-io-missing",
    "python-signature-decoupled",
    "python-signature-no-return",
    "queue-delay-clearml",
    "version-absent",
    "version-empty",
    "version-ignored",
]
"""Warnings only: the server takes these."""
REFUSED_OTHERWISE = [
    "batch-input-kind",
    "batch-output-kind",
    "batch-strategy",
    "model-file-missing-folder",
    "model-filename-dot",
    "model-filename-outside",
    "python-environment",
    "python-environment-model",
    "python-environment-folder-in-archive",
    "python-environment-no-archive",
    "python-environment-relative",
    "python-environment-zip",
    "python-import-initialize",
    "python-import-helper",
    "python-import-raised-again",
    "python-import-relative",
    "python-import-repository",
    "python-import-subfolder",
    "python-name-instance",
    "python-name-range",
    "python-raises",
    "python-raises-config-output",
    "python-raises-finally",
    "python-raises-helper",
    "python-raises-initialize",
    "python-raises-key",
    "python-raises-package",
    "python-raises-parameter",
    "python-syntax-helper",
]
ONLY_WARNED = ("batch-strategy", "python-environment", "python-import")
"""An absolute path, a module: they may be there where the server is."""
GOOD_ONES = [
    name for name in ACCEPTED_ONES if not name.startswith(("onnx-", "relocated", "name-", "parameters-"))
]
"""An agent is a library, which the server of the tests has none of; the ONNX ones need the C++ backend, and a
name that a URL must encode cannot be loaded by its name: HTTP does not decode it."""


LOAD = 15
"""Seconds for a load, which takes one."""


class Bench:
    """One server over one repository, whose models change from case to case.

    A server that died of a case, or hung (once in some thousand loads of a broken Python model), is started
    again, and the case with it: a fault that kills the server each time fails, with its log.
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
        self.server = replace(self._running.__enter__(), seconds=LOAD)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def judge(self, name: str, folder: Path = FOLDER) -> tuple[list[str], str]:
        """Messages of our errors, and what the server said ("" if it loaded all)."""
        try:
            return self._judge(name, folder)
        except (OSError, HTTPException):
            log.error("the server died:\n%s", self.server.log.read_text(errors="replace")[-4000:])
            # One that hangs in a load would not end by itself either.
            with suppress(ProcessLookupError):
                os.kill(self.server.pid, signal.SIGKILL)
            self._restart()
            return self._judge(name, folder)
        finally:
            # A server that has refused a state may die, or hang, at the next load; one that could not unpack
            # an archive unpacks no other.
            if name.startswith(("sequence-state", "python-environment-no-archive", "python-environment-zip")):
                self._restart()

    def _restart(self) -> None:
        self.__exit__(None, None, None)
        self.__enter__()

    def clear(self) -> None:
        """An empty repository again."""
        for entry in self.repository.iterdir():
            self.server.unload(entry.name)
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _judge(self, name: str, folder: Path) -> tuple[list[str], str]:
        source = lay_out(name, self._directory / f"{folder.name}-{name}-{self._starts}", folder)
        for entry in source.iterdir():
            if entry.is_dir():
                shutil.copytree(entry, self.repository / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, self.repository)
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


@pytest.fixture(scope="module")
def completing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A server that completes configurations, for the models that fill in their own."""
    with Bench(tmp_path_factory.mktemp("completing")) as started:
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
    line = case(name)["expected"].split(":")[1]
    assert f"inference.ModelConfig: {line}:" in said


@pytest.mark.parametrize("name", ACCEPTED)
def test_warnings_load(bench: Bench, name: str) -> None:
    errors, said = bench.judge(name)
    assert errors == []
    assert said == ""


@pytest.mark.parametrize("name", REFUSED_OTHERWISE)
def test_the_server_refuses_too(bench: Bench, name: str) -> None:
    """The server says less than we do, or something of its own; of an import we only warn."""
    errors, said = bench.judge(name)
    assert errors or name.startswith(ONLY_WARNED)
    assert said


@pytest.mark.parametrize("name", [name for name in GOOD_ONES if not name.startswith("completed")])
def test_what_looks_wrong_loads(bench: Bench, name: str) -> None:
    errors, said = bench.judge(name, GOOD)
    assert errors == []
    assert said == ""


@pytest.mark.parametrize("name", [name for name in GOOD_ONES if name.startswith("completed")])
def test_what_a_model_completes_loads(completing: Bench, name: str) -> None:
    errors, said = completing.judge(name, GOOD)
    assert errors == []
    assert said == ""


COMPLETED = [
    "python-completion-dims",
    "python-completion-lacking",
    "python-completion-policy",
    "python-completion-property",
    "python-completion-twice",
    "python-completion-type",
    "python-signature-auto-complete-self",
]


@pytest.mark.parametrize("name", COMPLETED)
def test_a_completing_server_refuses_in_our_words(completing: Bench, name: str) -> None:
    errors, said = completing.judge(name)
    assert len(errors) == 1
    assert errors[0] in said


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
