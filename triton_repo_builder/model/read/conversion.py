"""conversion.json: the record that ``trb convert`` leaves beside the graph that it made."""

from __future__ import annotations

from pathlib import Path

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.manifest import Conversion, HubModel

FILE, ANSWERS = "conversion.json", "pytorch_answers.npz"
"""The record, and PyTorch's answers to the golden inputs."""
AGAIN = "convert the weights again with trb convert"


def of(model: Path) -> tuple[Conversion, HubModel | None] | None:
    """The conversion that an ONNX file comes from, and its weights' place on a Hub; None without a record.

    The graph must be the one that was written: another one would be compared with PyTorch's answers to this
    one. Raises ``TrbError``.
    """
    file = containment.within(model.parent, FILE)
    if file is None or not files.is_file(file):
        return None
    try:
        document = files.load_json(files.read(file, files.LARGEST_DOCUMENT))
        graph = {str(name): str(sha) for name, sha in document["graph"].items()}
        conversion = Conversion.of_json(document["conversion"])
        hub = HubModel.of_json(document["hub"]) if "hub" in document else None
    except (OSError, LookupError, TypeError, AttributeError, *files.DAMAGED):
        message = "this is not the record that trb convert writes"
        raise TrbError(Code.GOLDEN_FAILED, message, where=str(file), remedy=AGAIN) from None
    if model.name not in graph:
        return None
    for name, sha in graph.items():
        path = containment.within(model.parent, name)
        if path is None or not files.is_file(path) or files.hash_file(path) != sha:
            raise TrbError(
                Code.DIGEST_MISMATCH,
                f"{name} is not as trb convert wrote it: PyTorch's answers beside it are another graph's",
                where=str(model.parent),
                remedy=f"{AGAIN}; or delete {FILE} and {ANSWERS} to build it as a file of your own",
            )
    return conversion, hub
