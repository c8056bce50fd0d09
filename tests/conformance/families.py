"""Small tokenizers in the exact shape of the real ones, trained on ``corpus``. Runs in .venv-export.

WordPiece and byte-level BPE are trained by ``tokenizers``, the Unigram models of SentencePiece by
``sentencepiece``; the transformers class of each family then makes its own normalizer, template and special
tokens, as it does for a downloaded vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import transformers
from tokenizers import (
    AddedToken,
    ByteLevelBPETokenizer,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from conformance.corpus import LINES

SIZE = 700
"""Entries of a vocabulary."""


def make(family: str, folder: Path, settings: Mapping[str, Any]) -> Any:
    """The fast tokenizer of a family; ``settings`` are those of its class.

    ``folder`` keeps the trained vocabulary: training breaks ties in another way each time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FAMILIES[family](folder, {"model_max_length": 512, **settings})


def _wordpiece(special: list[str], **normalizer: Any) -> list[str]:
    """A vocabulary by BERT's rules, the special tokens first."""
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(**normalizer)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special, show_progress=False)
    )
    vocabulary = trained.get_vocab()
    return sorted(vocabulary, key=lambda token: vocabulary[token])


BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _bert(name: str, *, cased: bool = False) -> Callable[[Path, Mapping[str, Any]], Any]:
    def make(folder: Path, settings: Mapping[str, Any]) -> Any:
        if not (folder / "vocab.txt").is_file():
            lines = _wordpiece(BERT_SPECIAL, lowercase=not cased, strip_accents=not cased)
            (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = {"do_lower_case": not cased, **settings}
        return getattr(transformers, name)(str(folder / "vocab.txt"), **options)

    return make


def _mpnet(folder: Path, settings: Mapping[str, Any]) -> Any:
    """BERT's vocabulary behind RoBERTa's special tokens: pad id 1."""
    if not (folder / "vocab.txt").is_file():
        lines = ["<s>", "<pad>", "</s>", "<unk>", *_wordpiece(BERT_SPECIAL), "<mask>"]
        (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return transformers.MPNetTokenizerFast(str(folder / "vocab.txt"), **settings)


def _mpnet_late(folder: Path, settings: Mapping[str, Any]) -> Any:
    """The same with the padding token at the end of the vocabulary."""
    if not (folder / "vocab.txt").is_file():
        lines = ["<s>", "[UNK]", "</s>", "<unk>", *_wordpiece(BERT_SPECIAL)[5:], "<mask>", "<pad>"]
        (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return transformers.MPNetTokenizerFast(str(folder / "vocab.txt"), **settings)


def _roberta(folder: Path, settings: Mapping[str, Any]) -> Any:
    if not (folder / "merges.txt").is_file():
        trained = ByteLevelBPETokenizer()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trained.train_from_iterator(LINES, vocab_size=SIZE, special_tokens=special, show_progress=False)
        trained.save_model(str(folder))
    return transformers.RobertaTokenizerFast(
        str(folder / "vocab.json"), str(folder / "merges.txt"), **settings
    )


def _modernbert(folder: Path, settings: Mapping[str, Any]) -> Any:
    """A tokenizer.json of no class of its own, with its special tokens, the pad id too, at the end."""
    if not (folder / "tokenizer.json").is_file():
        _train_modernbert().save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True, special=True),
        model_input_names=["input_ids", "attention_mask"],
        **settings,
    )


def _byte_level() -> Tokenizer:
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.NFC()
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(LINES, trainer)
    return trained


def _train_modernbert() -> Tokenizer:
    trained = _byte_level()
    special = [AddedToken(token, special=True) for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")]
    trained.add_special_tokens([*special, AddedToken("[MASK]", lstrip=True, special=True)])
    ends = [(token, trained.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    return trained


def _decoder(folder: Path, settings: Mapping[str, Any]) -> Any:
    """As Qwen's: byte-level, no first token; the end of a text is its last token, and pads."""
    if not (folder / "tokenizer.json").is_file():
        trained = _byte_level()
        end = "<|endoftext|>"
        trained.add_special_tokens([AddedToken(end, special=True)])
        trained.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, trained.token_to_id(end))]
        )
        trained.save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")),
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        model_input_names=["input_ids", "attention_mask"],
        **settings,
    )


def _byte_level_files(name: str, special: list[str], **own: Any) -> Callable[[Path, Mapping[str, Any]], Any]:
    """vocab.json and merges.txt, as GPT-2's class and its like read them."""

    def make(folder: Path, settings: Mapping[str, Any]) -> Any:
        if not (folder / "merges.txt").is_file():
            trained = ByteLevelBPETokenizer()
            trained.train_from_iterator(LINES, vocab_size=SIZE, special_tokens=special, show_progress=False)
            trained.save_model(str(folder))
        return getattr(transformers, name)(
            str(folder / "vocab.json"), str(folder / "merges.txt"), **own, **settings
        )

    return make


def _llama(folder: Path, settings: Mapping[str, Any]) -> Any:
    """As Llama 2's: a space before each text, spaces as ▁, bytes for what is unknown; <s> comes first."""
    if not (folder / "tokenizer.json").is_file():
        trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        trained.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        codes = [f"<0x{number:02X}>" for number in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=SIZE + 256, special_tokens=["<unk>", "<s>", "</s>", *codes], show_progress=False
        )
        trained.train_from_iterator([line.replace(" ", "▁") for line in LINES], trainer)
        trained.save(str(folder / "tokenizer.json"))
    return transformers.LlamaTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<unk>", **settings
    )


def _gemma(folder: Path, settings: Mapping[str, Any]) -> Any:
    """Pairs of characters over the whole text: no word ends anywhere."""
    if not (folder / "tokenizer.json").is_file():
        trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        trained.normalizer = normalizers.Replace(" ", "▁")
        special = ["<pad>", "<eos>", "<bos>", "<unk>"]
        codes = [f"<0x{number:02X}>" for number in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=SIZE + 256, special_tokens=[*special, *codes], show_progress=False
        )
        trained.train_from_iterator([line.replace(" ", "▁") for line in LINES], trainer)
        ends = [(token, trained.token_to_id(token)) for token in ("<bos>", "<eos>")]
        trained.post_processor = processors.TemplateProcessing(
            single="<bos> $A <eos>", pair="<bos> $A <eos> <bos>:1 $B:1 <eos>:1", special_tokens=ends
        )
        trained.save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(folder / "tokenizer.json")),
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
        **settings,
    )


def _clip(folder: Path, settings: Mapping[str, Any]) -> Any:
    """Lower-cased BPE whose words end in </w>; the padding token is the end of text."""
    if not (folder / "merges.txt").is_file():
        _train_clip().model.save(str(folder))
    return transformers.CLIPTokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"), **settings)


def _train_clip() -> Tokenizer:
    trained = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    trained.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=letters,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    trained.train_from_iterator(LINES, trainer)
    return trained


def _sentencepiece(name: str, file: str, **options: Any) -> Callable[[Path, Mapping[str, Any]], Any]:
    def make(folder: Path, settings: Mapping[str, Any]) -> Any:
        if not (folder / file).is_file():
            train(folder)
        # Without it, transformers 4 makes T5's of a vocabulary without the space before a text.
        prefix = {"add_prefix_space": True} if name.startswith("T5") else {}
        return getattr(transformers, name)(str(folder / file), **prefix, **settings)

    def train(folder: Path) -> None:
        import sentencepiece

        # A model trained from a file would hold the path of that file.
        with (folder / file).open("wb") as written:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(LINES),
                model_writer=written,
                vocab_size=SIZE,
                model_type="unigram",
                hard_vocab_limit=False,
                character_coverage=1.0,
                num_threads=1,
                minloglevel=2,
                **options,
            )

    return make


_ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "pad_piece": "<pad>", "unk_piece": "<unk>"}
_ALBERT_ENDS = {"control_symbols": "[CLS],[SEP],[MASK]"}
_DEBERTA = {
    **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
    **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
}
_T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
_BIGBIRD = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 100, "control_symbols": "[CLS],[SEP],[MASK]"}
_REMBERT = {
    **{"pad_id": 0, "bos_id": -1, "eos_id": -1, "unk_id": 1, "control_symbols": "[CLS],[SEP],[MASK]"},
    **{"pad_piece": "<pad>", "unk_piece": "<unk>"},
}

FAMILIES: dict[str, Callable[[Path, Mapping[str, Any]], Any]] = {
    "wordpiece": _bert("BertTokenizerFast"),
    "wordpiece-cased": _bert("BertTokenizerFast", cased=True),
    "wordpiece-distilbert": _bert("DistilBertTokenizerFast"),
    "wordpiece-electra": _bert("ElectraTokenizerFast"),
    "wordpiece-layoutlm": _bert("LayoutLMTokenizerFast"),
    "wordpiece-mobilebert": _bert("MobileBertTokenizerFast"),
    "wordpiece-mpnet": _mpnet,
    "wordpiece-mpnet-late-pad": _mpnet_late,
    "wordpiece-squeezebert": _bert("SqueezeBertTokenizerFast"),
    "byte-level-bpe": _roberta,
    "byte-level-bpe-modernbert": _modernbert,
    "byte-level-bpe-decoder": _decoder,
    "byte-level-bpe-deberta": _byte_level_files(
        "DebertaTokenizerFast", ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    ),
    "byte-level-bpe-opt": _byte_level_files(
        "GPT2Tokenizer",
        ["<s>", "<pad>", "</s>", "<unk>"],
        **{"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"},
        add_bos_token=True,
    ),
    "bpe-clip": _clip,
    "bpe-gemma": _gemma,
    "bpe-llama": _llama,
    "unigram-camembert": _sentencepiece("CamembertTokenizerFast", "sentencepiece.bpe.model"),
    "unigram-xlmr": _sentencepiece("XLMRobertaTokenizerFast", "sentencepiece.bpe.model"),
    "unigram-albert": _sentencepiece("AlbertTokenizerFast", "spiece.model", **_ALBERT, **_ALBERT_ENDS),
    "unigram-deberta": _sentencepiece("DebertaV2TokenizerFast", "spm.model", **_DEBERTA),
    "unigram-t5": _sentencepiece("T5TokenizerFast", "spiece.model", **_T5),
    "unigram-rembert": _sentencepiece("RemBertTokenizerFast", "sentencepiece.model", **_REMBERT),
    "unigram-siglip": _sentencepiece("SiglipTokenizer", "spiece.model", **_T5),
    "unigram-bigbird": _sentencepiece("BigBirdTokenizerFast", "spiece.model", **_BIGBIRD),
}
"""How each family is made: (folder, settings) → fast tokenizer."""
