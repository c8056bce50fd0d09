"""Vectors that a user has of some texts, beside an endpoint's; and the usual cause of a difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_repo_builder.base import files, user_file
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import encode_binary
from triton_repo_builder.run.observe.snapshot import Snapshot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from triton_repo_builder.measure.doctor.variants import Original, Variant

    Vectors = npt.NDArray[np.float64]

FORMAT = '{"text": "…", "vector": [0.1, …]}'
MOST, FIRST = 200, 8
"""Texts that are compared, and the longest of them, on which all variants are tried."""
ALLOWED = 1e-4
"""Difference of one number that rounding explains; vectors with larger numbers than 1 may differ more."""
NEAR = 0.9999
"""Cosine from which two vectors differ by the precision of their numbers only."""
PREFIXES = ("query: ", "passage: ")
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
class _Examples:
    texts: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True)
class _Difference:
    largest: float
    cosine: float
    """The smallest of all texts."""
    allowed: float

    @property
    def same(self) -> bool:
        return self.largest <= self.allowed

    def __str__(self) -> str:
        largest = f"largest difference {self.largest:.2g} (allowed {self.allowed:.2g})"
        return f"{largest}, smallest cosine {self.cosine:.6f}"


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
        difference = _difference(examples.vectors[:, :width], served[:, :width])
        summary = f"{len(examples.texts)} texts of {file}: {difference}"
        if examples.vectors.shape[1] != served.shape[1]:
            explanation = _of_width(examples, served, difference)
        elif difference.same:
            return Comparison(endpoint=target.name, file=file, summary=summary, same=True)
        elif difference.cosine >= 1 - 1e-6:
            explanation = _of_length(examples)
        elif original is not None:
            progress("the original model in other variants")
            explanation = _by_original(examples, served, original())
        else:
            explanation = _by_server(examples, target)
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


Explanation = tuple[str, tuple[str, ...], str]
"""Message, evidence, remedy."""


def _of_width(examples: _Examples, served: Vectors, difference: _Difference) -> Explanation:
    width, other = examples.vectors.shape[1], served.shape[1]
    message = f"the file's vectors have {width} values, the endpoint's {other}"
    if difference.cosine >= NEAR and width < other:
        remedy = f"cut them in the client, or build with --truncate-dim {width}"
        return f"{message}: they are the first {width}", (), remedy
    if difference.cosine >= NEAR:
        return f"{message}, which are the first {other}", (), "build without --truncate-dim"
    return f"{message}, and not the same ones", (), "compare the models: this one is another"


def _of_length(examples: _Examples) -> Explanation:
    """Equal directions."""
    import numpy as np

    lengths = np.linalg.norm(examples.vectors, axis=1)
    if np.abs(lengths - 1).max() < 1e-3:
        return (
            "the same direction, another length: the file's vectors are normalised, the endpoint's are not",
            (),
            "build with --normalize, or divide the endpoint's vectors by their length",
        )
    return (
        "the same direction, another length: the file's vectors are not normalised "
        f"(lengths {lengths.min():.3g} to {lengths.max():.3g})",
        (),
        "normalise them in the notebook, or build with --no-normalize",
    )


def _by_server(examples: _Examples, target: _Endpoint) -> Explanation:
    """Without the original: prompts in front of the texts, which the server can be asked with."""
    for prefix in PREFIXES:
        difference = _difference(
            examples.vectors, target.vectors([f"{prefix}{text}" for text in examples.texts])
        )
        if difference.same:
            return (
                f"the file's vectors are those of the texts with {prefix!r} in front",
                (f"the endpoint, asked with {prefix!r} in front: {difference}",),
                f"build with --prompt '{prefix}', or send texts with it in front",
            )
    return (
        "other vectors than the endpoint's; without the original only length and prompts were tried",
        (f"not it: normalising, {', '.join(map(repr, PREFIXES))} in front",),
        "name the model's folder with --model: other poolings and truncations are tried on it",
    )


def _by_original(examples: _Examples, served: Vectors, original: Original) -> Explanation:
    """The variant of the original that makes the file's vectors, named by its changes from the endpoint's."""
    # Truncation shows in the longest texts; all texts confirm what fits there.
    places = sorted(range(len(examples.texts)), key=lambda place: -len(examples.texts[place]))[:FIRST]
    texts = [examples.texts[place] for place in places]
    fitting: list[Variant] = []
    serving: list[Variant] = []
    nearest: tuple[float, Variant | None, _Difference | None] = (-1.0, None, None)
    tried = 0
    for variant, vectors in original.all(texts):
        planned = original.planned
        if fitting and serving and variant.prompt != planned.prompt and variant.limit != planned.limit:
            break  # a single change explains it: combinations come last
        tried += 1
        width = served.shape[1]
        if vectors.shape[1] < width:
            continue
        vectors = vectors[:, :width]
        from_file = _difference(examples.vectors[places], vectors)
        if from_file.same:
            fitting.append(variant)
        if _difference(served[places], vectors).same:
            serving.append(variant)
        score = from_file.cosine - min(from_file.largest, 1.0) * 1e-3
        if score > nearest[0]:
            nearest = score, variant, from_file
    current = min(serving, key=lambda each: len(each.changes(original.planned)), default=original.planned)
    at_endpoint = (
        f"the endpoint: {current}" if serving else "the endpoint's own vectors are none of the variants"
    )
    for variant in sorted(fitting, key=lambda each: len(each.changes(current))):
        vectors_of_all = original.of(variant, examples.texts)
        if vectors_of_all is None:
            continue
        difference = _difference(examples.vectors, vectors_of_all[:, : served.shape[1]])
        changes = variant.changes(current)
        if difference.same and changes:
            words = ", ".join(words for words, _ in changes)
            options = " ".join(option for _, option in changes if option)
            return (
                f"the file's vectors are made otherwise than the endpoint's: {words}",
                (at_endpoint, f"they equal {variant}, within {difference.largest:.1g}"),
                f"build with {options}, or change the notebook"
                if options
                else "change the notebook, or export the model so that the endpoint has this output",
            )
        if difference.same:
            return (
                "the file's vectors are the original model's, and the endpoint's are not",
                (at_endpoint, f"they equal {variant}, within {difference.largest:.1g}"),
                "the endpoint serves another model or other settings: compare with 'trb provenance', and run "
                "trb smoke",
            )
    closest = f"nearest of {tried} variants: {nearest[1]}: {nearest[2]}"
    if nearest[2] is not None and nearest[2].cosine >= NEAR:
        changes = nearest[1].changes(current) if nearest[1] else ()
        words = ", ".join(words for words, _ in changes)
        return (
            f"the file's vectors are made otherwise ({words}), and rounded"
            if words
            else "only rounding differs",
            (at_endpoint, closest),
            "compare with vectors in FP32 from a CPU: FP16, BF16, TF32 or int8 on one side explain this",
        )
    return (
        "none of the usual causes (pooling, normalising, a prompt, truncation) explains it",
        (at_endpoint, closest),
        "compare tokens (lower-casing, special tokens), the revision of the model, and its precision",
    )


def _difference(first: Vectors, second: Vectors) -> _Difference:
    import numpy as np

    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = np.einsum("ij,ij->i", first, second) / np.where(lengths > 0, lengths, 1.0)
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return _Difference(
        float(np.abs(first - second).max(initial=0.0)), min(1.0, float(cosines.min())), ALLOWED * scale
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


def _read(file: Path) -> _Examples:
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
    return _Examples(tuple(texts), np.array(vectors, dtype=np.float64))


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
