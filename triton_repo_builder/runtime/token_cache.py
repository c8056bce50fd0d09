"""Runs inside tritonserver, beside the tokenizer model that was built with ``--tokenizer-cache N``.

The encodings of the N texts that were used last, so that a text that comes again is not tokenized again; a
text that is in a batch several times is tokenized once. How many were found is on the server's metrics page:
``trb_tokenizer_cache_hits`` and ``trb_tokenizer_cache_misses``, counters of texts by model. Each instance has
a cache of its own, as each is a process of its own; the counters are of all together.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

LONGEST = 8192
"""Characters of a text that is kept: longer ones are rare, and would take the memory of many."""
HITS, MISSES = "trb_tokenizer_cache_hits", "trb_tokenizer_cache_misses"

Encode = Callable[[list[Any]], list[Any]]
"""Texts, or pairs of them, to encodings; an exception in the place of one that fails."""


class TokenCache:
    """``encode`` with a memory."""

    def __init__(self, encode: Encode, most: int, model: str) -> None:
        self._encode, self._most = encode, most
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        families = [_family(name) for name in (HITS, MISSES)]
        self._counters = [family and family.Metric(labels={"model": model}) for family in families]
        # A counter is dead once its family is no longer held.
        self._families = families

    def __call__(self, texts: Sequence[Any]) -> list[Any]:
        """As ``encode``."""
        known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        made = dict(zip(missing, self._encode(missing), strict=True)) if missing else {}
        for text in texts:
            if text in made:
                self._keep(text, made[text])
            else:
                self._kept.move_to_end(text) if text in self._kept else self._keep(text, known[text])
        for counter, count in zip(self._counters, (len(texts) - len(missing), len(missing)), strict=True):
            if counter and count:
                counter.increment(count)
        return [made[text] if text in made else known[text] for text in texts]

    def _keep(self, text: Any, encoding: Any) -> None:
        size = sum(map(len, text)) if isinstance(text, tuple) else len(text)
        if size > LONGEST or isinstance(encoding, Exception):
            return
        self._kept[text] = encoding
        self._kept.move_to_end(text)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _family(name: str) -> Any:
    """None on a server without metrics."""
    about = "Texts that the tokenizer cache " + ("held" if name == HITS else "did not hold")
    try:
        return pb_utils.MetricFamily(name=name, description=about, kind=pb_utils.MetricFamily.COUNTER)
    except Exception:
        return None
