"""``--labels FILE``: the names of a classifier's labels, if the model's own files have none or others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.model.read.options import usage
from triton_repo_builder.model.read.signature import ModelSignature

FORMS = 'write one label a line, or JSON: {"0": "cat", "1": "dog"}'


def read(file: Path, signature: ModelSignature) -> dict[str, str]:
    """``id2label`` of a file whose labels are as many as an output has. Raises ``TrbError`` USAGE."""
    names = _names(file)
    widths = [spec.dims[-1] for spec in signature.outputs if spec.dims]
    if -1 not in widths and len(names) not in widths:
        listed = ", ".join(map(str, signature.outputs[:4]))
        raise _refused(
            f"{file} names {len(names)} labels, and no output of the model has so many: {listed}",
            "name every label once, in the order of the output's numbers",
        )
    return {str(number): name for number, name in enumerate(names)}


def _names(file: Path) -> list[str]:
    try:
        text = files.read(file).decode("utf-8-sig")
    except OSError as error:
        raise _refused(f"{file} cannot be read: {error.strerror}", "name an existing file") from None
    except UnicodeDecodeError:
        raise _refused(f"{file} is not UTF-8 text", FORMS) from None
    document = file.suffix == ".json" or text.lstrip().startswith("{")
    names = _of_json(file, text) if document else text.strip().splitlines()
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise _refused(f"{file}: label {number} is {name!r:.40}, not a name", FORMS)
    if not names:
        raise _refused(f"{file} names no label", FORMS)
    return [name.strip() for name in names]


def _of_json(file: Path, text: str) -> list[Any]:
    """The values of a list, or of an object whose keys are the numbers; a config.json has such an object."""
    try:
        document = files.load_json(text)
    except ValueError as error:
        raise _refused(f"{file} is not valid JSON: {error}", FORMS) from None
    if isinstance(document, dict):
        document = document.get("id2label", document)
    if isinstance(document, list):
        return document
    try:
        numbered = {int(key): name for key, name in document.items()}
    except files.DAMAGED:
        numbered = {-1: None}
    if sorted(numbered) != list(range(len(numbered))):
        raise _refused(f'{file}: the keys are not "0", "1" and so on, each once', FORMS)
    return [numbered[number] for number in range(len(numbered))]


def _refused(message: str, remedy: str) -> TrbError:
    return usage("labels", message, remedy)
