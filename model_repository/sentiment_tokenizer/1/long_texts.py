"""Runs inside tritonserver, beside the tokenizer's ``model.py``: texts much longer than the model takes are
shortened before they are tokenized, and those beyond a limit of bytes are refused.

While the tokenizer reads a long text nobody else is answered, and all but the text's first tokens are cut off
afterwards. What is left of a text here still gives more tokens than are kept, so that the kept ones are the
same: a cut changes only the tokens beside it.
"""

import json
import re
import unicodedata
from functools import cache
from itertools import groupby
from typing import Any

CHARACTERS = 8
"""Characters for each token that is kept, at first: prose has four or five."""
LONG = 4
"""Times that as long a text is, before it is worth a look."""
MARGIN = 128
"""Tokens beyond those kept that stay beside a cut: more than a word is made of, if it is not unknown."""
WHOLE = 1 << 18
"""Characters that are tokenized all the same where no shorter part is sure to give the same tokens; half as
many of one word of a Unigram model, which takes longest."""
WORD = re.compile(rf"\w{{{WHOLE // 16}}}")
"""Too long a run if the split looks ahead, for each match reads the rest of it: 20,000 digits, grouped from
the right, took 0.5 to 2.7 s, and 131,072 took 21 to 156 s."""
BLANK = re.compile(r"(?<=\S)\s")
"""The first of a run of white space: some tokenizers join its characters, counted from its start."""
MORE = 16
"""Tokens beyond the limit that a text of a pair keeps, if both are cut to equal shares."""

Pair = tuple[str, str]


class Shortener:
    """Shortens texts for one tokenizer, whose truncation is set to ``limit`` tokens (0: none)."""

    def __init__(
        self, tokenizer: Any, limit: int, truncation: dict[str, Any], most_rows: int, offsets: bool
    ) -> None:
        self.tokenizer, self.limit, self.truncation = tokenizer, limit, truncation
        self.offsets = offsets
        """Whether places in the text are needed, which move if its start is cut off."""
        self.left = truncation["direction"] == "left"
        self.most_rows = most_rows
        self.whole_words = type(tokenizer.model).__name__ == "Unigram"
        self.ahead = looks_ahead(tokenizer)
        self.runs = not offsets and reads_by_word(tokenizer)
        self.last: tuple[str, str | ValueError] = ("", "")
        """A text and what is left of it, or why it is refused: labels share their text, and a batch that
        fails is tokenized again, text by text."""

    def __call__(self, text: Any) -> Any:
        """The text, or pair of texts, as short as it may be."""
        if not self.limit:
            return text
        if isinstance(text, tuple):
            return self.pair(text)
        return text if self.truncation["stride"] else self.single(text, self.limit)

    def single(self, text: str, kept: int) -> str:
        """A text of which ``kept`` tokens are kept; the same if it is not long."""
        size = CHARACTERS * (kept + MARGIN)
        if len(text) <= LONG * size or (self.left and self.offsets):
            return text
        if self.last[0] is not text:
            self.last = (text, self.shortened(text, kept, size))
        if isinstance(self.last[1], ValueError):
            raise self.last[1]
        return self.last[1]

    def shortened(self, text: str, kept: int, size: int) -> "str | ValueError":
        """The shortest part that gives enough tokens; white space and unknown words give few.

        An error for a text that would have to be tokenized whole, and would keep its neighbours waiting.
        """
        if self.runs:
            text = read_at_once().sub(lambda found: found[0][:256], text)
        most = max(WHOLE // 2 if self.whole_words else WHOLE, LONG * LONG * size)
        always = LONG * size
        while LONG * size < len(text) and 2 * size <= most:
            part = self.part(text, size)
            if (part is None and self.ahead != "run") or self.reads_on(part):
                break
            if part and self.count(part) >= kept + MARGIN:
                # The blank and what follows it are for what looks ahead from the last word.
                return text[: len(part) + MARGIN] if self.ahead and not self.left else part
            size *= LONG
        if self.reads_on(text):
            most = always
        if len(text) > most:
            return ValueError(
                f"it has {len(text):,} characters, and too few blanks or known words among them to be cut to "
                f"{kept} tokens before it is read; {most:,} of such a text are the most: send less"
            )
        return text

    def reads_on(self, text: "str | None") -> bool:
        """Whether a split that looks ahead would read a word of it again and again."""
        return bool(self.ahead and text and WORD.search(text))

    def part(self, text: str, size: int) -> "str | None":
        """About ``size`` to twice as many characters of the side that is kept, up to a blank.

        Without one there is none of a text whose end is kept, for a word is read from its start, nor for a
        Unigram model, which finds the best parts of a whole word, whatever its length, nor if the split looks
        ahead: digits may be grouped from the end of their run.
        """
        if self.left:
            blank = BLANK.search(text, len(text) - 2 * size, len(text) - size)
            return text[blank.start() :] if blank else None
        if self.ahead == "text":
            return None
        blank = BLANK.search(text, size, 2 * size)
        if blank is None:
            return None if self.whole_words or self.ahead else behind_line_end(text[: 2 * size])
        return text[: blank.start()]

    def count(self, text: str) -> int:
        """Tokens of the whole text, special ones aside."""
        self.tokenizer.no_truncation()
        try:
            return len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        finally:
            self.tokenizer.enable_truncation(self.limit, **self.truncation)

    def pair(self, pair: Pair) -> Pair:
        """Two texts, of which the strategy cuts one or both."""
        first, second = pair
        strategy = self.truncation["strategy"]
        if strategy == "only_first":
            return self.single(first, self.limit), second
        if strategy == "only_second":
            # In pieces: of more than the most there is an error, and so there is of what is left here.
            pieces = self.most_rows if self.truncation["stride"] else 1
            return (first, self.single(second, self.limit * pieces)) if pieces else pair
        # The shorter text has fewer tokens than are left of the longer one: a character has four at most.
        if 4 * len(second) < self.limit:
            return self.single(first, self.limit), second
        if 4 * len(first) < self.limit:
            return first, self.single(second, self.limit)
        return self.both(pair)

    def both(self, pair: Pair) -> Pair:
        """The pair without what truncation to equal shares cuts off; the same pair if that is not certain.

        The library keeps what it cuts off of both texts, in pieces, and joins every piece with every other:
        two texts of 8,000 tokens cut to 128 took four seconds.
        """
        limit = self.limit
        if self.truncation["stride"] or min(map(len, pair)) <= 4 * limit:
            return pair
        self.tokenizer.no_truncation()
        try:
            whole = self.tokenizer.encode_batch(list(pair), add_special_tokens=False)
            first, second = (len(encoding.ids) for encoding in whole)
            # Which text is the longer one decides how many tokens are left of each: it stays the longer one.
            more = (MORE, 4 * MORE) if first <= second else (4 * MORE, MORE)
            cut = [self.cut(text, e, limit + m) for text, e, m in zip(pair, whole, more, strict=True)]
            short = self.tokenizer.encode_batch(cut, add_special_tokens=False)
        finally:
            self.tokenizer.enable_truncation(limit, **self.truncation)
        kept = slice(-limit, None) if self.left else slice(limit)
        same = all(e.ids[kept] == s.ids[kept] for e, s in zip(whole, short, strict=True))
        same = same and (first <= second) == (len(short[0].ids) <= len(short[1].ids))
        return (cut[0], cut[1]) if same else pair

    def cut(self, text: str, encoding: Any, tokens: int) -> str:
        """The text of so many tokens, from the side that truncation keeps."""
        if len(encoding.ids) <= tokens:
            return text
        if self.left:
            return text[encoding.offsets[-tokens][0] :]
        return text[: encoding.offsets[tokens - 1][1]]


def behind_line_end(text: str) -> str:
    """The text without the blanks behind its last line end, if it ends in such blanks.

    Another line end behind a cut would make them one word with it: ``\\s*[\\r\\n]+``, in Llama's and Qwen's.
    """
    start = len(text.rstrip())
    line_end = max(text.rfind("\n", start), text.rfind("\r", start))
    return text if line_end < 0 else text[: line_end + 1]


def looks_ahead(tokenizer: Any) -> str:
    """What a match may depend on: the ``text`` behind it, or its ``run``, up to the next blank; else nothing.

    The ``\\s+(?!\\S)`` of GPT-2 counts as nothing: it only gives one blank back.
    """
    reach = ""
    for pattern in patterns(tokenizer):
        if len(pattern) > LONGEST:
            return "text"
        plain = without_classes(pattern.replace(r"(?!\S)", ""))
        if "$" in plain:
            reach = "run"
        while group := GROUP.search(plain):
            far = FAR.search(group[2])
            if group[1] in ("?=", "?!"):
                if far:
                    return "text"
                reach = "run"
            blank = ".+" if far else "." if "." in group[2] else "x"
            plain = plain[: group.start()] + blank + plain[group.end() :]
    return reach


LONGEST = 10_000
"""Characters of a regular expression; those of popular tokenizers have a few hundred."""
GROUP = re.compile(r"\((\?(?:<?[=!]|[>~|]|[a-zA-Z-]*:|<\w+>|))?([^()]*)\)")
"""A group without groups in it."""
FAR = re.compile(r"\.(?:[*+]|\{\d*,)")
"""A blank, if it is ``.``, any number of times."""


def patterns(tokenizer: Any) -> "list[str]":
    """The regular expressions of a tokenizer's normalizer and pre-tokenizer, Oniguruma's."""
    parts: list[Any] = [
        json.loads(part.__getstate__()) for part in (tokenizer.normalizer, tokenizer.pre_tokenizer) if part
    ]
    expressions = []
    for part in parts:
        if isinstance(part, dict):
            expressions += [value for key, value in part.items() if key == "Regex"]
        if isinstance(part, dict | list):
            parts.extend(part.values() if isinstance(part, dict) else part)
    return expressions


def without_classes(pattern: str) -> str:
    """The pattern with ``.`` for a class that may match a blank, ``$`` for an anchor, ``x`` for any other."""

    def escaped(found: "re.Match[str]") -> str:
        letter, name = found[0][1], found[0][3:4]
        if letter in "bBzZyY":
            return "$"
        return "." if letter in "sSDWPHhRXONnrtvfxu " or (letter == "p" and name in tuple("^ZSsC")) else "x"

    plain = re.sub(r"\\(?:[pP]\{[^}]*\}|x\{?\w*\}?|.)", escaped, pattern, flags=re.DOTALL)
    inner = re.compile(r"\[(\^?)([^\[\]]*)\]")
    while inner.search(plain):
        plain = inner.sub(lambda found: "." if found[1] or re.search(r"[.\s]", found[2]) else "x", plain)
    return re.sub(r"\s", ".", plain)


def reads_by_word(tokenizer: Any) -> bool:
    """Whether words and blanks are BERT's, and a word of 256 letters is unknown, whatever letters follow."""
    kinds = (tokenizer.model, tokenizer.normalizer, tokenizer.pre_tokenizer)
    if [type(kind).__name__ for kind in kinds] != ["WordPiece", "BertNormalizer", "BertPreTokenizer"]:
        return False
    # A token that begins or ends with a letter could be cut in two with the run that it is in.
    added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
    cut = any(end.isalnum() for token in added for end in (token[:1], token[-1:]))
    return tokenizer.model.max_input_chars_per_word < 256 and not cut


@cache
def read_at_once() -> "re.Pattern[str]":
    """What a BERT tokenizer reads as one unknown word, or as nothing, however long it is.

    Letters and numbers of Unicode 3.2, which every release of the library knows, apart from Chinese
    characters, each of which is a word. Marks and emoji are left as they are.
    """
    category = unicodedata.ucd_3_2_0.category
    known = (code for code in range(0x10000) if category(chr(code))[0] in "LN" and not chinese(code))
    ranges = []
    for _, group in groupby(enumerate(known), lambda pair: pair[1] - pair[0]):
        codes = [code for _, code in group]
        ranges.append(f"\\u{codes[0]:04x}-\\u{codes[-1]:04x}")
    return re.compile(f"[{''.join(ranges)}]{{256,}}|[ \\t\\r\\n]{{256,}}")


def chinese(code: int) -> bool:
    """Whether BERT puts blanks around this character of the first 65,536."""
    return 0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF


def refuse_large(raw: Any, name: str, most: int, most_together: int) -> None:
    """ValueError for a text of more than ``most`` bytes, or texts of more than ``most_together``."""
    remedy = (
        "is the most (parameter max_text_bytes in the tokenizer's config.pbtxt, trb build --max-text-bytes): "
        "send less"
    )
    together = 0
    for number, item in enumerate(raw.reshape(-1)):
        size = len(item) if isinstance(item, bytes) else len(str(item).encode())
        if size > most:
            raise ValueError(f"text {number} of input '{name}' has {size:,} bytes, {most:,} {remedy}")
        together += size
    if together > most_together:
        problem = f"the texts of input '{name}' have {together:,} bytes, {most_together:,}"
        raise ValueError(f"{problem} {remedy} in one request")
