"""What every cell is asked: texts of many languages and lengths, and hostile ones. Plain data.

Each list has at least 50 entries. A text may hold ``{mask}``, which stands for the tokenizer's mask token.
"""

from __future__ import annotations

from conformance.corpus import LINES

HOSTILE = (
    "",
    " ",
    "\n\t  \r\n",
    "  leading and trailing spaces   ",
    "a",
    ".",
    "?!...,;:-()[]{}\"'`",
    "—–‒…«»„“”‚‘’",
    "😀",
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽",
    "text😀with👍🏽emoji🎉inside",
    "nul\x00in\x00side",
    "\x00",
    "\x01\x02\x7f control \x1b[31m characters",
    "e\u0301 cafe\u0301 n\u0303 A\u030a combining accents",
    "é café ñ Å precomposed accents",
    "Z\u0351\u036b\u0343a\u0362l\u034ag\u0344o\u0321 text",
    "ﬁ ligature, ① circled, ｆｕｌｌｗｉｄｔｈ, ½, ™, Ⅷ",
    "zero\u200bwidth\u200djoin\ufeffers and\u00a0no-break\u2003spaces",
    "\u202eright to left override\u202c",
    "東京 mixed 日本語 with English and 中文",
    "שלום world مرحبا",
    "ÄÖÜ ß ẞ İ ı Σ ς",
    "\U0001d54f\U00020bb7\U0001f9ff astral planes",
    "[CLS] [SEP] [MASK] <s> </s> <pad> <unk> <|endoftext|>",
    "##sub ##words Ġspace ▁meta",
    "x" * 3000,
    "word " * 900,
    "Supercalifragilisticexpialidocious" * 20,
    "很" * 700,
    "1234567890" * 30,
    "a-b_c.d/e\\f@g#h$i%j^k&l*m+n=o|p~q",
    "don't can't won't I'm you're they've she'd we'll",
    "UPPER lower MiXeD CamelCase snake_case",
)

TEXTS = (*HOSTILE, *LINES)
LONG = " ".join(LINES) * 3

_SECOND = (
    "It is raining cats and dogs.",
    "東京",
    "",
    " ",
    "A second text: " + "one two three " * 250,
    "😀",
    "Où est-elle?",
)
PAIRS = tuple((text, _SECOND[number % len(_SECOND)]) for number, text in enumerate(TEXTS))

_QUERIES = (
    "What is the capital of France?",
    "Wie wird das Wetter?",
    "東京",
    "reset password",
    "?",
)
DOCUMENTS = tuple((_QUERIES[number % len(_QUERIES)], text) for number, text in enumerate(TEXTS))

_ASKED = ("Who met whom?", "Where is it?", "何ですか", "Combien?", "  What   is this? ", "😀?")
_CONTEXTS = (
    *(text for text in TEXTS if text),
    *(" ".join(LINES[number : number + 4]) for number in range(0, len(LINES), 4)),
    LONG,
    LONG[::-1],
    "Ein kurzer Satz. " * 200,
)
QUESTIONS = tuple((_ASKED[number % len(_ASKED)], text) for number, text in enumerate(_CONTEXTS))

MASKED = (
    *(f"{{mask}} {line}" for line in LINES[:20]),
    *(f"{line} {{mask}}" for line in LINES[10:]),
    "{mask}",
    " {mask} ",
    "{mask}{mask}",
    "The {mask} fox {mask} over the dog.",
    "😀{mask}👍🏽",
    "e\u0301{mask}",
    "東京は{mask}の首都です。",
    "{mask} " + "word " * 900,
)

LABELS = (
    ("politics", "sport", "science"),
    ("positive", "negative"),
    ("Wetter", "Essen", "東京", "😀"),
    ("one",),
)
TOPICS = tuple((text, LABELS[number % len(LABELS)]) for number, text in enumerate(TEXTS) if text)
