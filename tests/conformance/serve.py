"""Builds the cells of one architecture with ``trb build``, serves them, and compares every answer.

Each input is asked alone, several at a time so that requests join, and again as a row of a larger request.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from conformance import compare, sounds
from conformance.tasks import REFUSED as MUST_REFUSE
from conformance.tasks import Cell, Task, slug
from triton_repo_builder import cli
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.endpoint.tasks import TASKS
from triton_repo_builder.run import serve as serve_module
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.client.grpc import GrpcClient

PASS, FAIL, PENDING, REFUSED = "pass", "fail", "pending", "refused"
CLIENTS = 8
ROWS = 6
"""Rows of a larger request."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a cell."""

    cell: Cell
    state: str
    asked: int = 0
    same: int = 0
    difference: float = 0.0
    reason: str = ""


class NotBuilt(Exception):
    """``trb build`` refused; the message is its error."""


def run(cells: Sequence[Cell], exports: Path, work: Path) -> Iterator[Result]:
    """The cells of one architecture, on one server. ``work`` takes the repository."""
    repository = work / "model_repository"
    built: list[Cell] = []
    for cell in cells:
        try:
            if reason := not_ready(cell, exports):
                yield reason
            elif reason := pending(cell, build(cell, exports, repository)):
                yield Result(cell=cell, state=PENDING, reason=reason)
            else:
                built.append(cell)
        except NotBuilt as error:
            words = MUST_REFUSE.get(str(cell))
            state = REFUSED if words and words in str(error) else FAIL
            yield Result(cell=cell, state=state, reason=f"trb build: {error}")
    if built:
        yield from serve(built, exports, repository)


def serve(built: Sequence[Cell], exports: Path, repository: Path) -> Iterator[Result]:
    """Ask the endpoints on one server; each on its own where one of them keeps the server from starting."""
    models = tuple(cell.endpoint for cell in built)
    options = serve_module.ServeOptions(http_port=0, grpc_port=0, metrics_port=0, models=models)
    try:
        server = serve_module.start(repository, options)
    except TrbError as error:
        if len(built) > 1:
            for cell in built:
                yield from serve([cell], exports, repository)
        else:
            yield Result(cell=built[0], state=FAIL, reason=f"trb serve: {error.message}")
        return
    with server:
        client = GrpcClient(server.urls.grpc, timeout=120)
        for cell in built:
            yield ask(client, cell, exports)
        client.close()


def not_ready(cell: Cell, exports: Path) -> Result | None:
    """Why a cell cannot be built at all: ``trb`` has no such task, or the export failed."""
    if cell.task.task not in TASKS:
        return Result(cell=cell, state=PENDING, reason=f"trb has no task {cell.task.task} yet")
    failed = exports / f"{cell.export}.failed.txt"
    if failed.is_file():
        return Result(cell=cell, state=FAIL, reason=f"the export failed: {failed.read_text().strip()}")
    return None


def build(cell: Cell, exports: Path, repository: Path) -> dict[str, Any]:
    """What ``trb build --json`` says, run as from the command line. Raises ``NotBuilt``."""
    argv = ["build", "--model", str(exports / cell.export), "--name", cell.endpoint]
    argv += ["--output", str(repository), "--instances", "1", "--json", *cell.task.options, *cell.row.options]
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(argv)
        except SystemExit as stop:
            code = stop.code
    if code:
        lines = err.getvalue().strip().splitlines() or [f"exit code {code}"]
        reason = next((line for line in lines if "rror" in line), lines[-1])
        raise NotBuilt(reason.removeprefix("error: ").replace(f"{exports}/", ""))
    made: dict[str, Any] = json.loads(out.getvalue())
    return made


def pending(cell: Cell, made: dict[str, Any]) -> str:
    """Why the endpoint cannot be asked this yet; a wrong task is an error."""
    if made["task"] != cell.task.task:
        raise NotBuilt(f"it was taken for the task {made['task']}")
    inputs = {tensor["name"] for tensor in made["inputs"]}
    absent = [name for name in cell.task.fields if name not in inputs]
    return f"the endpoint has no input {', '.join(absent)} yet" if absent else ""


def ask(client: GrpcClient, cell: Cell, exports: Path) -> Result:
    """Every entry alone and as a row among others."""
    file = exports / cell.export / "answers" / f"{slug(cell.task.name)}.json"
    document = json.loads(file.read_text())
    entries, answers = [_entry(entry) for entry in document["entries"]], document["answers"]
    if cell.task.task == "tensor":
        answers = [answer for answer in answers if not _refused(answer)]
        entries = [{name: answer[name] for name in cell.task.fields} for answer in answers]
    model = cell.endpoint + cell.task.model
    batched = _batched(client, model)
    judge = Judge(cell.task)

    def alone(number: int) -> None:
        judge.row(
            number,
            entries[number],
            answers[number],
            lambda: request(client, model, [entries[number]], batched),
        )

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(alone, range(len(entries))))
    if batched:
        for numbers in groups(cell, entries, answers):
            together(client, model, judge, [(n, entries[n], answers[n]) for n in numbers])
    return judge.result(cell, len(entries))


def groups(cell: Cell, entries: Sequence[Any], answers: Sequence[Any]) -> list[list[int]]:
    """Entries that one request can hold: those with answers, of one shape, far apart in the list."""
    fit: dict[Any, list[int]] = {}
    for number, entry in enumerate(entries):
        if not _refused(answers[number]):
            lists = (value for value in entry.values() if isinstance(value, (list, tuple)))
            shape = (*map(len, lists), *_size(cell, entry))
            fit.setdefault(shape, []).append(number)
    found = []
    for numbers in fit.values():
        step = -(-len(numbers) // ROWS)
        found += [numbers[start::step] for start in range(step)]
    return found


def _size(cell: Cell, entry: Any) -> tuple[int, ...]:
    """What a file becomes, as far as that depends on the file."""
    if "AUDIO" in entry:
        return (sounds.samples(entry["AUDIO"]).size,)
    if cell.row.edges:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(entry["IMAGE"])))
        return image.size
    return ()


def together(client: GrpcClient, model: str, judge: Judge, asked: Sequence[tuple[int, Any, Any]]) -> None:
    """Several entries as the rows of one request."""
    try:
        rows = request(client, model, [entry for _, entry, _ in asked], True)
    except RequestFailed as error:
        for number, _, _ in asked:
            judge.wrong(number, f"in a request of {len(asked)} rows: {error.message}")
        return
    for position, (number, entry, answer) in enumerate(asked):
        row = {name: array[position] for name, array in rows.items()}
        judge.compare(number, entry, answer, row, " in a request of several rows")


class Judge:
    """Collects what is wrong with the answers of one cell."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.problems: dict[int, str] = {}
        self.difference = 0.0

    def wrong(self, number: int, why: str) -> None:
        self.problems.setdefault(number, why)

    def row(self, number: int, entry: Any, expected: Any, ask: Any) -> None:
        """An entry asked alone; where transformers refuses it, the server must too."""
        try:
            rows = ask()
        except RequestFailed as error:
            if not _refused(expected):
                self.wrong(number, f"refused: {error.message}")
            return
        if _refused(expected):
            self.wrong(number, f"answered, where transformers refuses: {expected['error']}")
            return
        self.compare(number, entry, expected, {name: array[0] for name, array in rows.items()}, "")

    def compare(self, number: int, entry: Any, expected: Any, row: Any, when: str) -> None:
        try:
            moved = getattr(compare, self.task.compare)(row, expected, entry)
        except compare.Different as error:
            self.wrong(number, f"{error}{when}")
        except (KeyError, ValueError, TypeError, IndexError) as error:
            self.wrong(number, f"the answer has another form: {type(error).__name__}: {error}{when}")
        else:
            self.difference = max(self.difference, moved)
            if moved > compare.TOLERANCE:
                self.wrong(number, f"a number differs by {moved:.2g}{when}")

    def result(self, cell: Cell, asked: int) -> Result:
        first = min(self.problems, default=None)
        reason = "" if first is None else f"input {first}: {self.problems[first]}"
        return Result(
            cell=cell,
            state=FAIL if self.problems else PASS,
            asked=asked,
            same=asked - len(self.problems),
            difference=self.difference,
            reason=reason,
        )


def _refused(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Bytes travel through JSON as base64."""
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) else value
        for name, value in entry.items()
    }


def _batched(client: GrpcClient, model: str) -> bool:
    """Whether requests have a batch axis."""
    return any(tensor.shape[0] == -1 for tensor in client.endpoint(model).inputs)


def request(client: GrpcClient, model: str, entries: Sequence[Any], batched: bool) -> dict[str, Any]:
    """One request of these rows. Without a batch axis there is one row, and outputs have none either."""
    inputs = {}
    for name in entries[0]:
        array = np.stack([_array(entry[name]) for entry in entries])
        inputs[name] = array if batched else array[0]
    answers = client.infer(model, inputs)
    return answers if batched else {name: array.reshape(1, *array.shape) for name, array in answers.items()}


def _array(value: Any) -> Any:
    """A text, bytes or a list of texts as BYTES, numbers as FP32."""
    if isinstance(value, (str, bytes)):
        value = [value]
    if value and isinstance(value[0], (str, bytes)):
        raw = [item.encode() if isinstance(item, str) else item for item in value]
        array = np.empty(len(raw), dtype=object)
        array[:] = raw
        return array
    return np.array(value, dtype=np.float32)
