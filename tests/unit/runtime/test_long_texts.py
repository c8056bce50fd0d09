"""Texts much longer than the model takes: shortened before they are tokenized, to the same tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from importlib import util
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from triton_repo_builder.base import resources

spec = util.spec_from_file_location("trb_long_texts", resources.runtime("long_texts.py"))
assert spec is not None
assert spec.loader is not None
long_texts = util.module_from_spec(spec)
spec.loader.exec_module(long_texts)

WORDS = (
    *("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs"),
    *("naïve", "café", "übergröße", "résumé", "12345", "isn't", "e-mail"),
)
CORPUS = [" ".join(random.Random(seed).choices(WORDS, k=40)) for seed in range(200)]
LIMIT = 32


def word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"]))
    return made


def byte_pairs() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return made


def byte_pairs_of_everything() -> Tokenizer:
    """As Gemma's: no word ends anywhere."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"]))
    return made


GROUPED = (
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"(?=(\d{3})+(?!\d))",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*\P{N})|\p{N}",
    r"\d{1,3}(?=(?:\d{3})*(?:[^\d]|$))",
    r"[0-9]+(?=x)|[0-9]",
    r"\d+\b|\d",
)
"""What these take of a run depends on where it ends, or on what is behind it."""


@cache
def split(pattern: str) -> Callable[[], Tokenizer]:
    """Byte pairs of the words that a regular expression makes."""

    def make() -> Tokenizer:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        digits = [str(number) for number in range(1000)] * 3
        trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet)
        code = ["def f():\n    \n    \n        return 1\n  \n\n x"] * 50
        made.train_from_iterator(CORPUS + digits + code, trainer)
        return made

    return make


def periodic() -> Tokenizer:
    """Parts of a run, which the best way through a word takes from its end."""
    pieces = [
        ("<unk>", -20.0),
        ("▁", -1.0),
        ("=", -9.0),
        ("====", -9.5),
        ("=======", -10.0),
        ("haha", -5.0),
        ("h", -8.0),
    ]
    made = Tokenizer(models.Unigram(pieces, 0, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>"))
    return made


@cache
def trained(kind: Callable[[], Tokenizer]) -> str:
    return kind().to_str()


TEXTS: dict[str, Callable[[random.Random], str]] = {
    "prose": lambda r: " ".join(r.choices(WORDS, k=12_000)),
    "no blanks": lambda r: "".join(r.choices(WORDS, k=12_000)),
    "one letter": lambda r: "a" * r.randrange(50_000, 50_010),
    "chinese": lambda r: "".join(chr(r.randrange(0x4E00, 0x9FA5)) for _ in range(40_000)),
    "blanks": lambda r: " " * 60_000 + "the quick brown fox",
    "blanks between": lambda r: (" " * 500).join(r.choices(WORDS, k=300)),
    "unknown words": lambda r: " ".join("x" * 3_000 for _ in range(40)) + " the fox",
    "control characters": lambda r: "the fox" + "\u200b\x00\x07" * 20_000 + " over lazy dogs",
    "combining": lambda r: "e" + "\u0301" * 40_000 + " fox",
    "emoji": lambda r: "👩‍👩‍👧‍👦" * 8_000,
    "a run": lambda r: "=" * r.randrange(40_000, 40_050),
    "words, then a run": lambda r: " ".join(r.choices(WORDS, k=60)) + "haha" * 10_000 + "h" * r.randrange(4),
    "blanks before the end": lambda r: (
        "hello world " * 20 + " " * r.randrange(20_000, 20_050) + " some words end"
    ),
    "lines before the end": lambda r: "hello\n" * 20 + "\n" * r.randrange(20_000, 20_050) + " some words end",
    "lines": lambda r: "\n".join(r.choices(WORDS, k=12_000)),
}


def shortener(tokenizer: Tokenizer, side: str = "right", **changes: Any) -> Any:
    truncation = {
        "stride": 0,
        "strategy": "longest_first",
        "direction": side,
        **changes.pop("truncation", {}),
    }
    tokenizer.no_padding()
    tokenizer.enable_truncation(LIMIT, **truncation)
    given = {"most_rows": 0, "offsets": False, **changes}
    return long_texts.Shortener(tokenizer, LIMIT, truncation, **given)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", [word_piece, byte_pairs, byte_pairs_of_everything, unigram, periodic])
@pytest.mark.parametrize("name", TEXTS)
def test_the_tokens_are_those_of_the_whole_text(name: str, kind: Callable[[], Tokenizer], side: str) -> None:
    tokenizer = Tokenizer.from_str(trained(kind))
    short = shortener(tokenizer, side)
    for seed in range(2):
        text = TEXTS[name](random.Random(seed))
        assert tokenizer.encode(short(text)).ids == tokenizer.encode(text).ids


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_long_text_becomes_short(side: str) -> None:
    short = shortener(word_piece(), side)
    text = TEXTS["prose"](random.Random(0)) * 60
    assert len(text) > 3_000_000
    assert len(short(text)) <= 2 * long_texts.CHARACTERS * (LIMIT + long_texts.MARGIN)
    assert short("the fox") == "the fox"


@pytest.mark.parametrize("name", ["prose", "chinese", "unknown words"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
def test_pairs(strategy: str, name: str) -> None:
    tokenizer = word_piece()
    short = shortener(tokenizer, truncation={"strategy": strategy})
    text, label = TEXTS[name](random.Random(1)), "fox"
    pair = (label, text) if strategy == "only_second" else (text, label)
    cut = short(pair)
    assert sum(map(len, cut)) < 10_000 or name == "unknown words"
    assert tokenizer.encode(*cut).ids == tokenizer.encode(*pair).ids


def test_a_text_of_many_labels_is_shortened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    short = shortener(word_piece(), truncation={"strategy": "only_first"})
    text = TEXTS["prose"](random.Random(2))
    counted = []
    count = short.count
    monkeypatch.setattr(short, "count", lambda part: counted.append(part) or count(part))
    cuts = [short((text, label)) for label in ("a", "b", "c")]
    assert len(counted) == 1
    assert len({cut for cut, _ in cuts}) == 1


def test_places_in_a_text_whose_start_is_cut_off_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS["prose"](random.Random(3))
    assert shortener(word_piece(), "left", offsets=True)(text) is text
    assert shortener(word_piece(), "right", offsets=True)(text) is not text


def test_a_context_in_too_many_pieces_is_still_in_too_many() -> None:
    tokenizer = word_piece()
    short = shortener(tokenizer, truncation={"strategy": "only_second", "stride": 8}, most_rows=4)
    context = TEXTS["prose"](random.Random(4))
    cut = short(("who?", context))
    assert len(cut[1]) < len(context) / 4
    assert 1 + len(tokenizer.encode(*cut).overflowing) > 4
    few = context[:600]
    assert short(("who?", few)) == ("who?", few)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (word_piece, "\U0001f600" * 1_000_000),
        (word_piece, "\u200b" * 1_000_000),
        (unigram, "\u4eca\u65e5" * 150_000),
    ],
)
def test_a_text_that_cannot_be_cut_is_read_up_to_a_bound(
    kind: Callable[[], Tokenizer], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of a million letters took 0.6 s, for one token, and a million of a Unigram model 1.6 s."""
    short = shortener(Tokenizer.from_str(trained(kind)))
    counted = []
    count = short.count
    monkeypatch.setattr(short, "count", lambda part: counted.append(len(part)) or count(part))
    for _ in range(2):  # in its batch, then by itself
        with pytest.raises(ValueError, match="too few blanks or known words"):
            short(text)
    assert sum(counted) <= 2 * long_texts.WHOLE
    shorter = text[: long_texts.WHOLE // 2]
    assert short(shorter) == shorter


@pytest.mark.parametrize(
    "long",
    [
        *("x" * 300_000, "4f" * 150_000, " " * 300_000, "\n\t" * 150_000, "é" + "x" * 300_000),
        *("é" * 300_000, "слово" * 60_000),
    ],
)
def test_a_word_or_blank_of_any_length_is_read_at_once(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = word_piece()
    for text in (long, f"the fox {long} jumps", f"{long}-{long} dogs {long}é fox"):
        short = shortener(tokenizer)
        assert len(short(text)) < 5_000
        assert tokenizer.encode(short(text)).ids == tokenizer.encode(text).ids
        assert shortener(tokenizer, offsets=True).runs is False
    for added in ("xxy", "x-"):
        tokenizer = word_piece()
        tokenizer.add_tokens([added])
        assert shortener(tokenizer).runs is False


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_every_character_of_a_word_that_is_read_at_once_is_one_of_the_word(
    lowercase: bool, strip_accents: bool | None
) -> None:
    reads = long_texts.read_at_once()
    characters = [c for c in map(chr, range(33, 0x10000)) if reads.fullmatch(c * 256)]
    assert len(characters) > 18_000
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    text = " ".join(f"x{character}x" for character in characters)
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
    assert len(words) == len(characters)
    assert all(len(word) >= 3 for word, _ in words)


def test_a_long_text_with_few_words_is_cut_where_it_has_enough_of_them() -> None:
    tokenizer = word_piece()
    short = shortener(tokenizer)
    text = (" " * 150 + "fox") * 6_000
    assert len(short(text)) < len(text) / 4
    assert tokenizer.encode(short(text)).ids == tokenizer.encode(text).ids


@pytest.mark.parametrize("pattern", GROUPED)
@pytest.mark.parametrize("end", ["", "x", " 12"])
def test_digits_that_are_grouped_from_the_end_of_a_run_are_not_cut(pattern: str, end: str) -> None:
    tokenizer = Tokenizer.from_str(trained(split(pattern)))
    short = shortener(tokenizer)
    prose = TEXTS["prose"](random.Random(5))
    for text in ("8" * 5_999 + end, "8" * 6_001 + f"{end} {prose}"):
        assert tokenizer.encode(short(text)).ids == tokenizer.encode(text).ids
    assert len(short(prose)) < len(prose) / 10
    with pytest.raises(ValueError, match="too few blanks"):
        short("8" * 100_000)


@pytest.mark.parametrize("between", [" " * 40_000, "\r\n" * 20_000, " \n" * 20_000, "\n" + " " * 40_000])
@pytest.mark.parametrize("end", ["", "x", "\n", "\n  x"])
def test_blanks_between_two_line_ends_are_one_word(between: str, end: str) -> None:
    tokenizer = Tokenizer.from_str(trained(split(r"[^\r\n\p{L}]?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+")))
    text = f"the fox\n{between}{end}"
    assert tokenizer.encode(shortener(tokenizer)(text)).ids == tokenizer.encode(text).ids


def test_a_split_that_looks_ahead_beyond_blanks_is_never_cut() -> None:
    tokenizer = split(r"\w+(?=[^x]*x)|\w")()
    for text in (TEXTS["prose"](random.Random(6)), "the dogs " * 3_000 + "e"):
        assert shortener(tokenizer)(text) == text


@pytest.mark.parametrize(
    ("pattern", "reach"),
    [
        (r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", ""),
        (r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", ""),
        (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", ""),
        (r"[[:alpha:]&&[^(?=$)]]+|(?<=\d)\p{L}|\(\?=", ""),
        *((pattern, "run") for pattern in GROUPED),
        (r"\d+$|\d", "run"),
        (r"\d(?=.*x)|\d+", "text"),
        (r"\d(?![\s\d]+x)|\d+", "text"),
        (r"\d(?=(?:\d{3})*(?:\d| {2,}))", "text"),
        (r"\d(?=\P{L}{2,})", "text"),
        (r"\d(?=(?:(?:[^x])*|y)x)", "text"),
        (r"\d+(?:\b|\s)", "run"),
        ("x" * 20_000, "text"),
    ],
)
def test_the_reach_of_a_split(pattern: str, reach: str) -> None:
    tokenizer = Tokenizer(models.BPE())
    assert long_texts.looks_ahead(tokenizer) == ""
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    assert long_texts.looks_ahead(tokenizer) == reach
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(pattern), "-")])
    assert long_texts.looks_ahead(tokenizer) == reach
