"""Rules of an endpoint's texts: counts of tokens, the limit, prompts by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder.run.gateway.refusal import Refusal, invalid

PARALLELISM = "TOKENIZERS_PARALLELISM"
LONG = 1 << 16
"""Characters of a text from which on its beginning is counted first: tokens take 150 bytes each."""
LONGEST = 1 << 20
"""Characters of a text that is counted to its end; a tokenizer model of trb takes as many bytes."""
MOST_IDS = 300_000
"""Token ids of a request, as at OpenAI."""


@dataclass(frozen=True)
class TextRules:
    """Rules of one endpoint, of its repository's files; without them nothing is known but the names."""

    file: Path | None = None
    """tokenizer.json; None: tokens cannot be counted."""
    max_length: int = 0
    """Most tokens of a row; 0: any number."""
    prompt: str = ""
    """The text that the served tokenizer itself puts before every other."""
    prompts: Mapping[str, str] | None = None
    """The model's own prompts by name; None: unknown."""
    pooled: bool = True
    """Whether the tokens of a prompt count in the embedding (``include_prompt``)."""
    normalized: bool | None = None
    """Whether embeddings have length 1; None: unknown."""
    side: str = "right"
    """The end of a long text that is cut off: ``right`` or ``left``."""

    @cached_property
    def tokenizer(self) -> Any:
        """The library's tokenizer without truncation or padding; None if there is no file."""
        if self.file is None:
            return None
        # Its threads would compete with the server's for the same cores.
        os.environ.setdefault(PARALLELISM, "false")
        from tokenizers import Tokenizer

        loaded = Tokenizer.from_file(str(self.file))
        loaded.no_padding()
        loaded.no_truncation()
        return loaded

    def lengths(self, texts: Sequence[Any]) -> list[int]:
        """Tokens of each text, or pair of texts, before truncation; empty if they cannot be counted.

        Of a long text that the model does not read to its end, the tokens of its beginning.
        Raises ``Refusal`` 413 for a text that is too long to be counted.
        """
        if self.tokenizer is None:
            return []
        if self.prompt:
            texts = [self.prompt + text if isinstance(text, str) else text for text in texts]
        counts = [len(row) for row in self.tokenizer.encode_batch_fast(list(map(beginning, texts)))]
        for number, text in enumerate(texts):
            size = characters(text)
            # The last words of a beginning may be other tokens than in the text: half of them are enough.
            if size > LONG and (counts[number] < 2 * self.max_length or not self.max_length):
                if size > LONGEST:
                    raise Refusal(413, f"text {number} has {size} characters; at most {LONGEST} are counted")
                counts[number] = len(self.tokenizer.encode_batch_fast([text])[0])
        return counts

    def cut(self, length: int) -> int:
        """Tokens of a text that the model sees."""
        return min(length, self.max_length) if self.max_length else length

    def used(self, lengths: Sequence[int]) -> int:
        """Tokens that the model sees of texts of these lengths."""
        return sum(map(self.cut, lengths))

    def check_lengths(self, lengths: Sequence[int], field: str) -> None:
        """Raises ``Refusal`` 413 for a text that truncation would shorten."""
        for number, length in enumerate(lengths):
            if self.max_length and length > self.max_length:
                raise Refusal(
                    413,
                    f"`{field}` must have at most {self.max_length} tokens; text {number} has {length}: "
                    "shorten it, or allow truncation",
                    field=field,
                    code="context_length_exceeded",
                )

    def texts_of_ids(self, rows: list[list[int]], field: str) -> list[str]:
        """The texts of token ids, without special tokens: the served tokenizer adds its own."""
        if self.tokenizer is None:
            raise invalid("token ids cannot be read: the gateway has no tokenizer (--repo); send text", field)
        count = sum(map(len, rows))
        if count > MOST_IDS:
            raise Refusal(
                413, f"`{field}` has {count} token ids; at most {MOST_IDS} are allowed", field=field
            )
        size = self.tokenizer.get_vocab_size()
        for row in rows:
            for id in row:
                if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < size:
                    raise invalid(
                        f"`{field}`: token ids are whole numbers below {size}, not {id!r:.40}", field
                    )
        texts: list[str] = self.tokenizer.decode_batch(rows)
        return texts

    def prompted(self, texts: Sequence[str], name: str, field: str) -> Sequence[str]:
        """The texts with the model's prompt of that name before them. Raises ``Refusal``."""
        if self.prompts is None:
            raise invalid(f"'{name}': the endpoint's prompts are not known", field)
        if name not in self.prompts:
            listed = ", ".join(self.prompts) or "none"
            raise invalid(f"the model has no prompt '{name}'; it has: {listed}", field)
        text = self.prompts[name]
        if self.prompt and text != self.prompt:
            raise invalid(
                f"the endpoint puts its own prompt {self.prompt!r} before every text: '{name}' would be next",
                field,
            )
        if self.prompt or not text:
            return texts
        if not self.pooled:
            raise invalid(
                f"the prompt '{name}' must not be pooled (include_prompt is false), and a prompt that comes "
                f"with the text is: build an endpoint with --prompt {name}",
                field,
            )
        return [text + each for each in texts]


def characters(text: Any) -> int:
    """The length of a text, or of a pair of texts together."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


def beginning(text: Any) -> Any:
    """The first ``LONG`` characters of a text, or of each text of a pair."""
    if isinstance(text, str):
        return text if len(text) <= LONG else text[:LONG]
    return text if characters(text) <= LONG else tuple(part[:LONG] for part in text)


def parts(texts: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The texts in parts of about four times ``LONG`` characters."""
    start = size = 0
    for number, text in enumerate(texts):
        size += min(characters(text), LONG)
        if size > 4 * LONG:
            yield texts[start : number + 1]
            start, size = number + 1, 0
    if start < len(texts):
        yield texts[start:]
