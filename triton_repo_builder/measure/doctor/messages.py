"""Messages of tritonserver, and the code of ``trb check`` or of the doctor that explains each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repo_builder.check.codes import CODES
from triton_repo_builder.run.serve.log_lines import as_text

SHM_START, SHM_GROWTH, STUB = "shared-memory-start", "shared-memory-growth", "process-gone"
OWN = {
    SHM_START: "give the container more: docker run --shm-size=1g, in Kubernetes an emptyDir of medium "
    "Memory at /dev/shm; or run fewer Python instances",
    SHM_GROWTH: "give the container more: docker run --shm-size=1g; or send smaller batches to the Python "
    "model",
    STUB: "load the model again (trb load) or restart the server; look for a crash of native code or for "
    "memory that ran out before it",
}
EXPLAINED: tuple[tuple[str, str], ...] = (
    (r"Unable to initialize shared memory key '[^']*' to requested size \((\d+) bytes\)", SHM_START),
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
)
_MODEL = re.compile(
    r"(?:model|ensemble|directory|load|depends on) '([^']+)'|model (\S+)_\d+(?:_\d+)? |for model ([^\s:]+)"
)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A message with its explanation."""

    code: str
    model: str
    text: str
    bytes: int = 0
    """Shared memory that the message names, in bytes."""
    line: int = 0

    @property
    def remedy(self) -> str:
        """Steps that mend it."""
        return OWN.get(self.code) or CODES[self.code].remedy


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
                    yield Explained(code=code, model=model, text=shown[:300], bytes=stated, line=number)
                break


def model_of(line: str, match: re.Match[str]) -> str:
    """The model that a message is about; empty if it does not say so."""
    named = next((each for each in match.groups() if each and not each.isdigit()), "")
    if not named:
        name = _MODEL.search(line)
        named = next((each for each in name.groups() if each), "") if name else ""
    return re.sub(r"_\d+_\d+$", "", named)
