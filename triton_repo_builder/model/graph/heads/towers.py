"""The head of a graph with an image tower and a text tower."""

from __future__ import annotations

from triton_repo_builder.repository.tensor_names import LOGITS


def similarity() -> str:
    """Scores of every image and every text [images, texts] → those of each image's own texts, [images, most].

    ``places`` [images, most]: the rows of the text tower that belong to an image, filled up with its last.
    """
    return f"""own (float[B, S] logits, int64[B, K] places) => (float[B, K] {LOGITS}) {{
    logits32 = Cast <to = 1> (logits)
    {LOGITS} = GatherElements <axis = 1> (logits32, places)
}}"""
