"""Documents by their relevance to a query, for each API's rerank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triton_repo_builder.run.client.codec import Array
from triton_repo_builder.run.gateway.call import Call, encoded
from triton_repo_builder.run.gateway.catalogue import Served
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.triton import joined


@dataclass(frozen=True)
class Ranking:
    """Scores in the order of the request, and the documents' places from the best to the worst."""

    scores: Array
    order: Sequence[int]
    """Equal scores keep the order of the request."""
    tokens: int


async def ranked_pairs(call: Call, served: Served, pairs: Sequence[tuple[str, str]], field: str) -> Ranking:
    """The ranking of pairs of one query and a document, which ``field`` lists. Raises ``Refusal``."""
    columns = {
        "QUERY": encoded([pairs[0][0]], "query") * len(pairs),
        "DOCUMENT": encoded([text for _, text in pairs], field),
    }
    answers, tokens = await call.counted(served, columns, ("score",), pairs)
    scores = joined(answers, "score").reshape(-1)
    if np.isnan(scores).any():
        raise Refusal(502, "score is NaN", code="backend")
    return Ranking(scores, np.argsort(-scores, kind="stable").tolist(), tokens)
