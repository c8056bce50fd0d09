"""Vectors that a user has of some texts, read from a file, beside an endpoint's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_repo_builder.base import files, user_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.doctor import vector_causes
from triton_repo_builder.measure.doctor.vector_causes import Examples
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.observe.snapshot import Snapshot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from triton_repo_builder.measure.doctor.variants import Original

    Vectors = npt.NDArray[np.float64]

FORMAT = '{"text": "…", "vector": [0.1, …]}'
MOST = 200
"""Texts that are compared."""
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A file's vectors beside an endpoint's."""

    endpoint: str
    file: Path
    summary: str
    """Figures in words."""
    same: bool
    message: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class _Endpoint:
    http: HttpClient
    name: str
    text: str
    output: str
    rows: int

    def vectors(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        step = max(1, self.rows)
        parts = []
        for start in range(0, len(texts), step):
            batch = [[text.encode()] for text in texts[start : start + step]]
            inputs = np.array(batch if self.rows else batch[0], dtype=object)
            answer = self.http.infer(self.name, encode_binary({self.text: inputs}))[self.output]
            parts.append(np.asarray(answer, dtype=np.float64).reshape(len(batch), -1))
        return np.concatenate(parts)


def compare(
    file: Path,
    snapshot: Snapshot,
    *,
    endpoint: str = "",
    original: Callable[[], Original] | None = None,
    progress: Progress = lambda stage: None,
) -> Comparison:
    """The endpoint's vectors beside the file's; ``original`` loads the model. Raises ``TrbError``."""
    examples = _read(file)
    target = _endpoint(snapshot, endpoint)
    progress(f"{target.name}: vectors of {len(examples.texts)} texts")
    try:
        served = target.vectors(examples.texts)
        width = min(examples.vectors.shape[1], served.shape[1])
        difference = vector_causes.difference_of(examples.vectors[:, :width], served[:, :width])
        summary = f"{len(examples.texts)} texts of {file}: {difference}"
        if examples.vectors.shape[1] != served.shape[1]:
            explanation = vector_causes.of_width(examples, served, difference)
        elif difference.same:
            return Comparison(endpoint=target.name, file=file, summary=summary, same=True)
        elif difference.cosine >= 1 - 1e-6:
            explanation = vector_causes.of_length(examples)
        elif original is not None:
            progress("the original model in other variants")
            explanation = vector_causes.by_original(examples, served, original())
        else:
            explanation = vector_causes.by_prompts(examples, target.vectors)
    except RequestFailed as error:
        raise TrbError(
            Code.UNREACHABLE,
            f"'{target.name}' does not answer a text of {file}: {error}",
            where=snapshot.urls.http,
            remedy="send the text with 'trb client' to see why; name another model with --endpoint",
        ) from None
    message, evidence, remedy = explanation
    return Comparison(
        endpoint=target.name,
        file=file,
        summary=summary,
        same=False,
        message=message,
        evidence=(summary, *evidence),
        remedy=remedy,
    )


def _endpoint(snapshot: Snapshot, name: str) -> _Endpoint:
    """The embedding endpoint: one text in, one vector out."""
    http = HttpClient(snapshot.urls.http)
    candidates = []
    for each in snapshot.endpoints:
        interface = http.describe(each)
        rows = interface.max_batch_size
        texts = [tensor for tensor in interface.needed if tensor.datatype == "BYTES"]
        numbers = [
            tensor
            for tensor in interface.outputs
            if tensor.datatype.startswith("FP") and len(tensor.shape) == (2 if rows else 1)
        ]
        if len(texts) == len(interface.needed) == 1 and len(numbers) == 1 and not interface.decoupled:
            candidates.append(_Endpoint(http, each, texts[0].name, numbers[0].name, rows))
    chosen = [each for each in candidates if name in ("", each.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(each.name for each in candidates) or "none"
    raise TrbError(
        Code.USAGE,
        f"--endpoint {name} takes no single text and gives no vector"
        if name
        else "no endpoint takes a text and gives a vector"
        if not candidates
        else "several endpoints take a text and give a vector",
        where=snapshot.urls.http,
        remedy=f"name one with --endpoint; endpoints of this kind: {names}",
    )


def _read(file: Path) -> Examples:
    """Texts and vectors of a file of JSON lines. Raises ``TrbError``."""
    import numpy as np

    lines = user_file.lines(file)
    count = min(len(lines), MOST)
    texts: list[str] = []
    vectors: list[list[float]] = []
    for number in (place * len(lines) // count for place in range(count)):
        text, vector = _entry(file, number + 1, lines[number])
        texts.append(text)
        vectors.append(vector)
        if len(vector) != len(vectors[0]):
            raise _wrong(file, number + 1, f"has {len(vector)} values, and line 1 has {len(vectors[0])}")
    return Examples(tuple(texts), np.array(vectors, dtype=np.float64))


def _entry(file: Path, number: int, line: str) -> tuple[str, list[float]]:
    try:
        document: Any = files.load_json(line)
    except ValueError:
        raise _wrong(file, number, "is not JSON") from None
    text = document.get("text") if isinstance(document, dict) else None
    vector = document.get("vector") if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise _wrong(file, number, "has no text")
    plain = isinstance(vector, list) and all(type(value) in (int, float) for value in vector)
    if not plain or not vector or not all(map(math.isfinite, vector)):
        raise _wrong(file, number, "has no vector of finite numbers")
    return text, list(map(float, vector))


def _wrong(file: Path, number: int, message: str) -> TrbError:
    return TrbError(
        Code.USAGE,
        f"line {number} {message}",
        where=str(file),
        remedy=f"write a line for each text: {FORMAT}",
    )
