"""The usual causes of other vectors for the same texts: width, length, prompt, pooling, truncation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from triton_repo_builder.measure.doctor.variants import Original, Variant

    Vectors = npt.NDArray[np.float64]

FIRST = 8
"""The longest texts, on which all variants are tried."""
ALLOWED = 1e-4
"""Difference of one number that rounding explains; vectors with larger numbers than 1 may differ more."""
NEAR = 0.9999
"""Cosine from which two vectors differ by the precision of their numbers only."""
PREFIXES = ("query: ", "passage: ")
Explanation = tuple[str, tuple[str, ...], str]
"""Message, evidence, remedy."""


@dataclass(frozen=True)
class Examples:
    """Texts, and the vectors that a user has of them."""

    texts: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Difference:
    """How far vectors are apart."""

    largest: float
    cosine: float
    """The smallest of all texts."""
    allowed: float

    @property
    def same(self) -> bool:
        """Whether rounding explains it."""
        return self.largest <= self.allowed

    def __str__(self) -> str:
        largest = f"largest difference {self.largest:.2g} (allowed {self.allowed:.2g})"
        return f"{largest}, smallest cosine {self.cosine:.6f}"


def difference_of(first: Vectors, second: Vectors) -> Difference:
    """The difference of vectors of equal width, text by text."""
    import numpy as np

    from triton_repo_builder.measure.quality import cosine

    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    return Difference(
        largest=float(np.abs(first - second).max(initial=0.0)),
        cosine=min(1.0, *map(cosine, first, second)),
        allowed=ALLOWED * scale,
    )


def of_width(examples: Examples, served: Vectors, difference: Difference) -> Explanation:
    """Vectors of another width; ``difference`` is of the numbers that both have."""
    width, other = examples.vectors.shape[1], served.shape[1]
    message = f"the file's vectors have {width} values, the endpoint's {other}"
    if difference.cosine >= NEAR and width < other:
        remedy = f"cut them in the client, or build with --truncate-dim {width}"
        return f"{message}: they are the first {width}", (), remedy
    if difference.cosine >= NEAR:
        return f"{message}, which are the first {other}", (), "build without --truncate-dim"
    return f"{message}, and not the same ones", (), "compare the models: this one is another"


def of_length(examples: Examples) -> Explanation:
    """Vectors of equal direction, and another length."""
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


def by_prompts(examples: Examples, ask: Callable[[Sequence[str]], Vectors]) -> Explanation:
    """Without the original: the endpoint (``ask``) with prompts in front of the texts."""
    for prefix in PREFIXES:
        difference = difference_of(examples.vectors, ask([f"{prefix}{text}" for text in examples.texts]))
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


def by_original(examples: Examples, served: Vectors, original: Original) -> Explanation:
    """The variant of the original that makes the file's vectors, named by its changes from the endpoint's."""
    # Truncation shows in the longest texts; all texts confirm what fits there.
    places = sorted(range(len(examples.texts)), key=lambda place: -len(examples.texts[place]))[:FIRST]
    texts = [examples.texts[place] for place in places]
    fitting: list[Variant] = []
    serving: list[Variant] = []
    nearest: tuple[float, Variant | None, Difference | None] = (-1.0, None, None)
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
        from_file = difference_of(examples.vectors[places], vectors)
        if from_file.same:
            fitting.append(variant)
        if difference_of(served[places], vectors).same:
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
        difference = difference_of(examples.vectors, vectors_of_all[:, : served.shape[1]])
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
