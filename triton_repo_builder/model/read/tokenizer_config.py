"""Changes that tokenizer_config.json makes to the tokenizer.json beside it.

For transformers, tokenizer_config.json has the last word: ``do_lower_case`` decides for BERT's family,
``add_prefix_space`` puts a space before a text for byte-level tokenizers, ``src_lang`` is the language with
which MBart's marks a text, and ``added_tokens_decoder`` lists the texts that are one token. The server knows
tokenizer.json only, so the difference is written into the served one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

_NOTHING: Mapping[str, Any] = {}
_LOWERING = {
    f"{name}Tokenizer"
    for name in (
        "Bert",
        "DPRContextEncoder",
        "DPRQuestionEncoder",
        "DPRReader",
        "Realm",
        "RetriBert",
        "ConvBert",
        "DistilBert",
        "Electra",
        "Funnel",
        "LayoutLM",
        "LayoutLMv2",
        "Lxmert",
        "MPNet",
        "MobileBert",
        "RoFormer",
        "Splinter",
        "SqueezeBert",
    )
}
"""The classes of transformers that rewrite their BertNormalizer when they are made."""
_ENDS = {
    "CodeLlamaTokenizer": ("<s>", "</s>", True),
    "CohereTokenizer": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", True),
    "GPTNeoXTokenizer": ("<|endoftext|>", "<|endoftext|>", False),
    "GemmaTokenizer": ("<bos>", "<eos>", True),
    "LlamaTokenizer": ("<s>", "</s>", True),
}
"""The classes that put a first and a last token around each text, as ``add_bos_token`` and ``add_eos_token``
say: these tokens, and whether the first is the default (transformers 4:
``LlamaTokenizerFast.update_post_processor``; 5 takes tokenizer.json as it is)."""
_PLACES = tuple(f"{name}Tokenizer" for name in ("Bart", "Blenderbot", "LED", "Longformer", "Mvp", "Roberta"))
"""The classes that set the places of tokens, too, by ``add_prefix_space`` and ``trim_offsets``."""
_LANGUAGES = {
    "MBartTokenizer": ("en_XX", False),
    "MBart50Tokenizer": ("en_XX", True),
    "NllbTokenizer": ("eng_Latn", True),
}
"""The classes that mark each text with ``src_lang``: its default, and whether it comes first."""
_LEFT = (
    "CodeLlamaTokenizer",
    "CohereTokenizer",
    "GemmaTokenizer",
    "LlamaTokenizer",
    "XLNetTokenizer",
)
"""The classes that fill rows up on the left if no file says otherwise."""
_WITHOUT_TYPES = ("BigBirdTokenizer", "MPNetTokenizer")
"""Classes that give a model no token types, though their tokenizer.json numbers the texts of a pair."""
_NAMED = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_MODELS = {
    "Bert": "align bark bert blip bros chinese_clip dpr ernie git grounding-dino megatron-bert nezha qdqbert "
    "tvp vilt visual_bert",
    "ConvBert": "convbert",
    "DistilBert": "distilbert",
    "Electra": "electra",
    "Funnel": "funnel",
    "LayoutLM": "layoutlm",
    "LayoutLMv2": "layoutlmv2",
    "Lxmert": "lxmert",
    "MobileBert": "mobilebert",
    "MPNet": "mpnet",
    "Realm": "realm",
    "RetriBert": "retribert",
    "RoFormer": "roformer",
    "Splinter": "splinter",
    "SqueezeBert": "squeezebert",
    "CodeLlama": "code_llama",
    "Cohere": "cohere cohere2",
    "Gemma": "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 "
    "siglip2 t5gemma",
    "GPTNeoX": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm",
    "Llama": "arcee deepseek_v2 deepseek_v3 diffllama ernie4_5 ernie4_5_moe jamba jetmoe llama llama4 "
    "llama4_text ministral mistral mistral3 mixtral persimmon phi3 phimoe zamba zamba2",
    "MBart": "mbart",
    "MBart50": "mbart50",
    "Nllb": "nllb nllb-moe",
    "XLNet": "xlnet",
    "Bart": "bart",
    "Blenderbot": "blenderbot",
    "LED": "led",
    "Longformer": "longformer",
    "Mvp": "mvp",
    "Roberta": "bridgetower clap data2vec-text ibert mega mra roberta roberta-prelayernorm",
}
_BY_MODEL = {model: f"{kind}Tokenizer" for kind, models in _MODELS.items() for model in models.split()}
"""The class that AutoTokenizer takes by config.json's ``model_type``, if no file names one."""


def class_of(settings: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The tokenizer's class as transformers finds it, without "Fast"; empty if no file leads to one."""
    named = settings.get("tokenizer_class") or config.get("tokenizer_class")
    return str(named or _BY_MODEL.get(str(config.get("model_type", "")), "")).removesuffix("Fast")


def gives_types(settings: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether transformers hands the model the token types that tokenizer.json states."""
    named = settings.get("model_input_names")
    return "token_type_ids" in named if named else class_of(settings, config) not in _WITHOUT_TYPES


def side(
    settings: Mapping[str, Any],
    document: Mapping[str, Any],
    operation: str,
    config: Mapping[str, Any] = _NOTHING,
) -> str:
    """``left`` or ``right``: where rows are cut (``operation``: "truncation") or filled up ("padding").

    transformers reads tokenizer_config.json first, then tokenizer.json, which has a part of this name if it
    was saved with one, then the class's default.
    """
    left_sided = _LEFT if operation == "padding" else ()
    saved = (document.get(operation) or {}).get("direction")
    usual = "left" if class_of(settings, config) in left_sided else "right"
    stated = settings.get(f"{operation}_side") or saved or usual
    return "left" if str(stated).lower() == "left" else "right"


def lowered(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """tokenizer.json that makes texts lower-case first; None if it does so already.

    As sentence-transformers does it for ``do_lower_case`` of sentence_bert_config.json.
    """
    normalizer: Mapping[str, Any] = document.get("normalizer") or {}
    steps = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    if any(step.get("type") == "Lowercase" or step.get("lowercase") for step in steps):
        return None
    present = [step for step in steps if step]
    return {**document, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *present]}}


def applied(
    document: Mapping[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any] = _NOTHING
) -> dict[str, Any] | None:
    """tokenizer.json as transformers uses it with tokenizer_config.json; None if nothing changes.

    ``config``: config.json, for the class of a tokenizer that names none, and for the release of transformers
    that made the model.
    """
    if not settings:
        return None
    settings = {**settings, "tokenizer_class": class_of(settings, config)}
    version = str(config.get("transformers_version", ""))
    changed = copy.deepcopy(dict(document))
    template = _ends(document, settings, version) or _marked(document, settings)
    if template is not None:
        changed["post_processor"] = template
    if (added := _added(document, settings)) != (document.get("added_tokens") or []):
        changed["added_tokens"] = added
    normalizer = changed.get("normalizer")
    kind = settings["tokenizer_class"]
    if kind in _LOWERING and normalizer and normalizer.get("type") == "BertNormalizer":
        normalizer["lowercase"] = settings.get("do_lower_case", True)
        normalizer["strip_accents"] = settings.get("strip_accents")
        if kind != "MPNetTokenizer":
            normalizer["handle_chinese_chars"] = settings.get("tokenize_chinese_chars", True)
    splitter = changed.get("pre_tokenizer")
    # Older files have that key in a Metaspace, too, which the library reads for itself.
    if splitter and splitter.get("type") == "ByteLevel":
        splitter["add_prefix_space"] = bool(settings.get("add_prefix_space", False))
    places = changed.get("post_processor")
    if kind in _PLACES and places and places.get("type") in ("RobertaProcessing", "ByteLevel"):
        places["add_prefix_space"] = bool(settings.get("add_prefix_space", False))
        places["trim_offsets"] = bool(settings.get("trim_offsets", True))
    return None if changed == document else changed


def _ends(document: Mapping[str, Any], settings: Mapping[str, Any], version: str) -> dict[str, Any] | None:
    """The post-processor that transformers 4 would make; None if that stays."""
    usual = _ENDS.get(settings["tokenizer_class"])
    if usual is None or (version and not version.startswith("4.")):
        return None
    ids = {entry["content"]: entry["id"] for entry in document.get("added_tokens") or ()}
    tokens: dict[str, str] = {}
    for role, default, token in (("bos", usual[2], usual[0]), ("eos", False, usual[1])):
        stated = settings.get(f"{role}_token", token)
        text = stated.get("content") if isinstance(stated, dict) else stated
        if settings.get(f"add_{role}_token", default) and isinstance(text, str) and text in ids:
            tokens[role] = text

    def ends(sequence: str, number: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"Sequence": {"id": sequence, "type_id": number}}]
        if "bos" in tokens:
            parts.insert(0, {"SpecialToken": {"id": tokens["bos"], "type_id": number}})
        if "eos" in tokens:
            parts.append({"SpecialToken": {"id": tokens["eos"], "type_id": number}})
        return parts

    return {
        "type": "TemplateProcessing",
        "single": ends("A", 0),
        "pair": [*ends("A", 0), *ends("B", 1)],
        "special_tokens": {
            text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in sorted(tokens.values())
        },
    }


def _marked(document: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The post-processor of a tokenizer of many languages; None for others."""
    usual = _LANGUAGES.get(settings["tokenizer_class"])
    if usual is None:
        return None
    ids = {entry["content"]: entry["id"] for entry in document.get("added_tokens") or ()}
    language, end = settings.get("src_lang") or usual[0], _content(settings.get("eos_token", "</s>"))
    if language not in ids or end not in ids:
        return None
    first = usual[1] and not settings.get("legacy_behaviour")
    before, after = ([language], [end]) if first else ([], [end, language])

    def parts(*sequences: str) -> list[dict[str, Any]]:
        return [
            *({"SpecialToken": {"id": token, "type_id": 0}} for token in before),
            *({"Sequence": {"id": sequence, "type_id": 0}} for sequence in sequences),
            *({"SpecialToken": {"id": token, "type_id": 0}} for token in after),
        ]

    tokens = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in sorted((language, end))}
    return {
        "type": "TemplateProcessing",
        "single": parts("A"),
        "pair": parts("A", "B"),
        "special_tokens": tokens,
    }


def _added(document: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``added_tokens`` with the flags of tokenizer_config.json, and the tokens named there that have an id.

    A named token without an id (a padding token that was never trained) stays out: transformers gives it one
    for which the model has no row.
    """
    entries = {entry["content"]: dict(entry) for entry in document.get("added_tokens") or ()}
    registered = dict(entries)
    stated: dict[str, Mapping[str, Any]] = {}
    for entry in (settings.get("added_tokens_decoder") or {}).values():
        stated[str(entry["content"])] = entry
    groups = settings.get("additional_special_tokens") or [], settings.get("extra_special_tokens") or []
    listed = [token for group in groups for token in (group.values() if isinstance(group, dict) else group)]
    for token in (*(settings.get(name) for name in _NAMED), *listed):
        text = _content(token)
        if text and text not in registered and text not in stated:
            flags = token if isinstance(token, dict) else {}
            stated[text] = {"normalized": False, **flags, "special": True}
    missing = [text for text in stated if text not in registered]
    ids = _ids(document, missing) if missing else {}
    for text, entry in stated.items():
        flags = {name: bool(entry.get(name)) for name in _FLAGS}
        if text in entries:
            entries[text] |= flags
        elif text in ids:
            entries[text] = {"id": ids[text], "content": text, **flags}
    return sorted(entries.values(), key=lambda entry: int(entry["id"]))


def _ids(document: Mapping[str, Any], texts: Sequence[str]) -> dict[str, int]:
    """Ids of ``texts``; texts outside the vocabulary are left out."""
    vocabulary = (document.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, dict):
        return {text: int(vocabulary[text]) for text in texts if text in vocabulary}
    pieces = set(texts)
    return {piece[0]: number for number, piece in enumerate(vocabulary) if piece[0] in pieces}


def _content(stated: Any) -> str:
    return str(stated.get("content", "")) if isinstance(stated, dict) else str(stated or "")
