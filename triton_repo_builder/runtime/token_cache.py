"""Runs inside tritonserver, beside the tokenizer model that was built with ``--tokenizer-cache N``.

The encodings of the N texts that were used last, so that a text that comes again is not tokenized again; a
text that is in a batch several times is tokenized once. Each instance has a cache of its own, as each is a
process of its own.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

LONGEST = 8192
"""Characters of a text that is kept: longer ones are rare, and would take the memory of many."""

Encode = Callable[[list[Any]], list[Any]]
"""Texts, or pairs of them, to encodings; an exception in the place of one that fails."""
Add = Callable[[float], None]
"""A counter of texts."""


class TokenCache:
    """``encode`` with a memory."""

    def __init__(self, encode: Encode, most: int, hits: Add, misses: Add) -> None:
        self._encode, self._most = encode, most
        self._hits, self._misses = hits, misses
        self._kept: OrderedDict[Any, Any] = OrderedDict()

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
        self._hits(len(texts) - len(missing))
        self._misses(len(missing))
        return [made[text] if text in made else known[text] for text in texts]

    def _keep(self, text: Any, encoding: Any) -> None:
        size = sum(map(len, text)) if isinstance(text, tuple) else len(text)
        if size > LONGEST or isinstance(encoding, Exception):
            return
        self._kept[text] = encoding
        self._kept.move_to_end(text)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
