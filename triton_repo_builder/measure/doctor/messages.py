"""Messages of tritonserver, and the code of ``trb check`` or of the doctor that explains each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.run.serve.log_lines import as_text

SHM_START, SHM_GROWTH, STUB = "shared-memory-start", "shared-memory-growth", "process-gone"
ROWS, SHAPE, TYPE, INPUT = "request-rows", "request-shape", "request-type", "request-input"
UNKNOWN_MODEL, QUEUE_FULL = "request-model", "request-queue-full"
OWN = {
    SHM_START: "give the container more: docker run --shm-size=1g, in Kubernetes an emptyDir of medium "
    "Memory at /dev/shm; or run fewer Python instances",
    SHM_GROWTH: "give the container more: docker run --shm-size=1g; or send smaller batches to the Python "
    "model",
    STUB: "load the model again (trb load) or restart the server; look for a crash of native code or for "
    "memory that ran out before it",
    ROWS: "send at most {number} rows a request: 'trb client NAME --output client.py' writes a client that "
    "splits longer lists, and 'trb gateway' splits them, too; or build with a larger --max-batch-size",
    SHAPE: "send the shape that the server states (GET /v2/models/NAME): with a max_batch_size above 0 the "
    "rows come first, so a text is [1, 1] and eight are [8, 1]; 'trb client NAME' prints a request that fits",
    TYPE: "send the data type that the server states (GET /v2/models/NAME); 'trb client NAME' prints a "
    "request that fits",
    INPUT: "send the inputs that the server states (GET /v2/models/NAME), no others and none left out; "
    "'trb client NAME' prints a request that fits",
    UNKNOWN_MODEL: "name a model that the server has loaded: POST /v2/repository/index lists them, with the "
    "reason if one failed to load",
    QUEUE_FULL: "send fewer requests at once or retry later; a longer queue (--max-queue-size) or more "
    "instances take more",
}
REFUSED = {
    ROWS: "the request has more rows than the model's max_batch_size, {number}",
    SHAPE: "the request's input has another shape than the model takes",
    TYPE: "the request's input has another data type than the model takes",
    INPUT: "the request's inputs are not the model's",
    UNKNOWN_MODEL: "the server has no such model, or not that version of it",
    QUEUE_FULL: "more requests wait than the model's queue may hold",
}
"""Codes of messages that a client gets for a request, and their causes in words."""
EXPLAINED: tuple[tuple[str, str], ...] = (
    (r"Unable to initialize shared memory key '[^']*' to requested size \((\d+) bytes\)", SHM_START),
    (r"(?i)unable to create shared memory region", SHM_START),
    (r"Failed to initialize Python stub.*No space left on device", SHM_START),
    (r"Failed to increase the shared memory pool size for key '[^']*' to (\d+) bytes", SHM_GROWTH),
    (r"Stub process '([^']+)' is not healthy|Stub process is (?:un|not )healthy", STUB),
    (r"model_warmup can not be specified for ensemble '([^']+)'", "ensemble-forbidden"),
    (r"(?:instance group|optimization) should not be specified for ensemble '([^']+)'", "ensemble-forbidden"),
    (r"allows maximum batch size \d+, but it contains model", "ensemble-batch-size"),
    (r"depends on '[^']+' whose required version \d+ is not loaded", "ensemble-step-version"),
    (r"contains models that are not available or ambiguous", "ensemble-step-unknown"),
    (r"but no GPUs are available|specifies invalid or unsupported gpu id", "instance-gpus"),
    (r"the first dimension must be -1", "onnx-batch-axis"),
    (r"the model expects \d+ dimensions \(shape", "onnx-shape"),
    (r"configuration expects \d+ inputs, model provides \d+", "onnx-input-count"),
    (r"configuration expects datatype \w+ for (?:in|out)put", "onnx-type"),
    (r"unexpected inference (?:in|out)put '[^']*', allowed", "onnx-name"),
    (r"configuration expects model provides input with shape \[-1\]", "onnx-ragged"),
    (r"Unsupported ONNX Type 'ONNX_TYPE_(?:SEQUENCE|MAP)'", "onnx-kind"),
    (r"Unsupported model IR version: \d+", "onnx-ir"),
    (r"is till opset \d+", "onnx-opset"),
    (r"Protobuf parsing failed", "onnx-unreadable"),
    (r"cannot get file size: No such file", "onnx-external-data"),
    (r"No Op registered for|is not a registered function/op", "onnx-graph"),
    (r"at least one version must be available under the version policy", "version-missing"),
    (r"failed to stat file|unable to find '[^']*' for model instance", "model-file-missing"),
    (r"failed to read text proto|Error parsing text-format inference.ModelConfig", "config-syntax"),
    (r"unexpected directory name '[^']*' for model", "name-mismatch"),
    (r"dynamic batching preferred size must be", "preferred-size"),
    (r"unable to find backend library for backend|unable to find 'libtriton_", "backend-unknown"),
    (r"failed to open text file for read \S*", "labels-missing"),
    (r"ModuleNotFoundError: No module named", "python-import"),
    (r"SyntaxError: .*model.py", "python-syntax"),
    (r"has no attribute 'TritonPythonModel'", "python-class-missing"),
    (r"Python model file not found", "model-file-missing"),
    (r"inference request batch-size must be <= (\d+) for '([^']+)'", ROWS),
    (r"unexpected shape for input '[^']*' for model '([^']+)'", SHAPE),
    (r"unexpected datatype \w+ for inference input '[^']*', expecting \w+(?: for '([^']+)')?", TYPE),
    (r"inference input '?[^']*'? ?data-type is '[^']*', but model '([^']+)' expects", TYPE),
    (
        r"expected (?:at least |between )?\d+ (?:and \d+ )?inputs but got \d+ inputs for model '([^']+)'",
        INPUT,
    ),
    (r"unexpected inference input '[^']*' for model '([^']+)'", INPUT),
    (r"Request for unknown model: '([^']+)'", UNKNOWN_MODEL),
    (r"Exceeds maximum queue size", QUEUE_FULL),
)
_TYPE = re.compile(r"datatype (\w+) for (input|output) '([^']+)', model provides (\w+)")
_MODEL = re.compile(
    r"(?:model|ensemble|directory|load|depends on) '([^']+)'|model (\S+)_\d+(?:_\d+)? |for model ([^\s:]+)"
)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A message with its explanation."""

    code: str
    model: str
    text: str
    number: int = 0
    """Number that the message names: bytes of shared memory, rows of a batch."""
    line: int = 0

    @property
    def remedy(self) -> str:
        """Steps that mend it."""
        if types := _TYPE.search(self.text):
            kind, name, provides = types[2], types[3], types[4]
            return f"write data_type: {provides} for {kind} '{name}' in {self.model}/config.pbtxt"
        if self.code in OWN:
            return OWN[self.code].format(number=self.number)
        return CODES[self.code].remedy

    @property
    def cause(self) -> str:
        """Cause of a refused request in words; of other messages, their own text."""
        return REFUSED[self.code].format(number=self.number) if self.code in REFUSED else self.text


def explained(text: str) -> Iterator[Explained]:
    """The known messages of a log or of a server's reason, each line once."""
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(as_text(text).split("\n"), start=1):
        for pattern, code in EXPLAINED:
            if match := re.search(pattern, line):
                model = model_of(line, match)
                if (code, model) not in seen:
                    seen.add((code, model))
                    stated = next((int(each) for each in match.groups() if each and each.isdigit()), 0)
                    shown = line[match.start() :].strip().strip('";')
                    yield Explained(code=code, model=model, text=shown[:300], number=stated, line=number)
                break


def model_of(line: str, match: re.Match[str]) -> str:
    """The model that a message is about; empty if it does not say so."""
    named = next((each for each in match.groups() if each and not each.isdigit()), "")
    if not named:
        name = _MODEL.search(line)
        named = next((each for each in name.groups() if each), "") if name else ""
    return re.sub(r"_\d+_\d+$", "", named)
