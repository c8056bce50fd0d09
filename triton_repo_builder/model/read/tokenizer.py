"""tokenizer.json and the files beside it → ``TokenizerSpec``.

A tokenizer.json may carry padding and truncation settings of its training or export (all-MiniLM's pads
every text to 128 tokens). They are settings of a run, not of the vocabulary: none of them reaches serving.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import (
    slow_tokenizer,
    tokenizer_config,
    tokenizer_limits,
    transformers_library,
)

FILE = "tokenizer.json"
SLOW_ONLY = (*slow_tokenizer.VOCABULARIES, "tokenizer_config.json")
_RELATIVE = ("t5", "mt5", "umt5", "longt5", "modernbert", "nomic_bert")
_CUTS_IN_PYTHON = {"RoFormerTokenizer": "rjieba"}
"""Classes with a fast form whose pre-tokenizer is Python, and the library that it needs."""
FEWEST = 3
"""Tokens besides the special ones: an empty SentencePiece model has its mark of a space."""
UNSURE = 1000
"""A vocabulary of more tokens is not looked through for them."""
SENTENCE_FILES = tuple(
    f"sentence_{model}_config.json"
    for model in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Settings of sentence-transformers' Transformer module: today's name, and those before release 1.0."""
STATIC = "StaticEmbedding"
"""The module of sentence-transformers that is a table of vectors: its texts get no special tokens."""
UNSET = 1_000_000
"""transformers writes 10**30 for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """Facts about a tokenizer that serving needs."""

    file: Path
    """The tokenizer.json, or the vocabulary of a slow tokenizer."""
    max_length: int | None
    """Most tokens the model was made for; None if no file states it."""
    max_length_from: str
    pad_id: int
    largest_id: int
    """Largest id it can produce, added tokens included."""
    largest_own_id: int
    """Largest id of its vocabulary, templates and padding; an added token has to be spelled by a text."""
    special_tokens: int
    """How many it adds to every text, so that a limit must be larger."""
    content: bytes | None = None
    """The tokenizer.json to serve, if it differs from ``file``."""
    truncation_side: str = "right"
    """The end of a long text that is cut off."""
    padding_side: str = "right"
    """Where transformers fills rows up; the pipeline of question answering reads the context first by it."""
    lowered: bool = False
    """The sentence-transformers files lower-case texts, even if the tokenizer's own do not."""
    positions_from_pad: bool = False
    """Position ids count from pad id + 1 and skip padding, as RoBERTa's do."""
    gives_types: bool = True
    """transformers hands the model its token types; else the model takes 0 for all of them."""
    splits_special: bool = False
    """Special tokens written in a text are text like any other (``split_special_tokens``)."""
    own_python: bool = False
    """Whether its class is Python code of the model's own, which is not run."""
    notes: tuple[str, ...] = ()

    @cached_property
    def library(self) -> Any:
        """The served tokenizer of ``tokenizers``, without padding and truncation. Shared: leave it so."""
        library = load(self.served.decode("utf-8"))
        library.encode_special_tokens = self.splits_special
        return library

    @cached_property
    def unknown_id(self) -> int:
        """Id of the token for text that is not in the vocabulary; -1: it has none."""
        model = json.loads(self.served).get("model", {})
        if isinstance(number := model.get("unk_id"), int):
            return number
        token = model.get("unk_token")
        number = self.library.token_to_id(token) if isinstance(token, str) else None
        return -1 if number is None else int(number)

    def beyond(self, rows: int) -> tuple[str, ...]:
        """The added tokens that a table of so many rows has none for."""
        added = self.library.get_added_tokens_decoder()
        return tuple(token.content for number, token in sorted(added.items()) if number >= rows)

    def encode(self, texts: Iterable[tuple[str, ...]], max_length: int | None) -> list[Any]:
        """Each text, or pair of texts, as the server encodes it: cut to ``max_length`` tokens."""
        if max_length:
            self.library.enable_truncation(max_length, direction=self.truncation_side)
        try:
            with transformers_library.panics():
                return [self.library.encode(*text) for text in texts]
        except Exception as error:
            raise _invalid(self.file, error) from None
        finally:
            self.library.no_truncation()

    @property
    def served(self) -> bytes:
        """The tokenizer.json that is served."""
        return files.read(self.file) if self.content is None else self.content


def places(folder: Path) -> tuple[Path, ...]:
    """``folder``, and its parent if that is the model's own (Hugging Face keeps models in ``onnx/``).

    A parent without tokenizer or image processor, or of a folder with its own config.json, does not count.
    Of a folder with modules.json the transformer's own one does.
    """
    parent = folder.resolve().parent
    described = (parent / FILE, parent / "preprocessor_config.json")
    foreign = not any(map(files.is_file, described)) and not slow_only(parent)
    if (inner := _first_module(folder)) is not None:
        return folder, inner
    return (folder,) if foreign or files.is_file(folder / "config.json") else (folder, parent)


def is_static(*folders: Path) -> bool:
    """Whether modules.json in the first of these folders that has it begins with a StaticEmbedding."""
    listed = next((place for place in folders if containment.within(place, "modules.json")), None)
    kind = _first_entry(listed).get("type") if listed else ""
    return str(kind).rsplit(".", 1)[-1] == STATIC


def _first_entry(folder: Path) -> Mapping[str, Any]:
    """The first entry of modules.json; empty without it, or if it is not a list of entries."""
    try:
        listed = containment.within(folder, "modules.json")
        module = files.load_json(files.read(listed, files.LARGEST_DOCUMENT))[0] if listed else {}
    except (OSError, LookupError, TypeError, *files.DAMAGED):
        return {}
    return module if isinstance(module, dict) else {}


def _first_module(folder: Path) -> Path | None:
    """The folder of the transformer in an older layout of sentence-transformers (0_Transformer/)."""
    try:
        inner = folder / str(_first_entry(folder)["path"])
    except KeyError:
        return None
    inside = inner != folder and inner.parent == folder
    return inner if inside and files.is_file(inner / "config.json") else None


def find(folder: Path) -> Path | None:
    """The tokenizer.json in ``folder``, or in the parent that belongs to it; else a slow one's vocabulary."""
    for place in places(folder):
        if file := containment.within(place, FILE):
            return file
        if sign := slow_only(place):
            return place / sign if sign in slow_tokenizer.VOCABULARIES else None
    return None


def slow_only(folder: Path) -> str | None:
    """The file of a slow tokenizer in this folder, which has no tokenizer.json."""
    if containment.within(folder, FILE):
        return None
    return next((name for name in SLOW_ONLY if containment.within(folder, name)), None)


def locate(path: Path) -> Path:
    """The tokenizer.json, or slow tokenizer, that ``--tokenizer`` names, as a file or a folder."""
    with contextlib.suppress(OSError):  # a name that is too long
        if path.is_file():
            return path
        if path.is_dir() and (file := containment.within(path, FILE)):
            return file
        if path.is_dir() and (sign := slow_only(path)):
            if sign in slow_tokenizer.VOCABULARIES:
                return path / sign
            raise slow_error(path, sign)
    raise TrbError(
        Code.NOT_FOUND,
        "no such tokenizer",
        where=str(path),
        remedy="give --tokenizer a tokenizer.json or a folder that holds one",
    )


def slow_error(folder: Path, sign: str) -> TrbError:
    """A tokenizer that only exists in the Python form of transformers."""
    if _own_python(settings(folder, "tokenizer_config.json")):
        return TrbError(
            Code.SLOW_TOKENIZER,
            "its tokenizer is Python code of the model's own, which is not run, and has no tokenizer.json",
            where=str(folder),
            remedy=f"write a tokenizer.json for it and put it there, or {slow_tokenizer.WITHOUT}",
        )
    if name := slow_tokenizer.no_fast_form(folder):
        return TrbError(
            Code.SLOW_TOKENIZER,
            f"{name} has no fast form: no tokenizer.json can be written for it",
            where=str(folder),
            remedy=slow_tokenizer.WITHOUT,
        )
    return TrbError(
        Code.SLOW_TOKENIZER,
        f"the tokenizer has '{sign}', but neither tokenizer.json nor a vocabulary",
        where=str(folder),
        # transformers 5 would write a tokenizer.json without words here.
        remedy=f"take {FILE}, or the vocabulary ({', '.join(slow_tokenizer.VOCABULARIES[:3])} …), from the "
        "model's source: --from-model FOLDER, or --tokenizer FOLDER",
    )


def read(file: Path, sentence: tuple[Path, Mapping[str, Any]] | None = None) -> TokenizerSpec:
    """Read a tokenizer.json, or convert a slow tokenizer, with the configuration files beside it.

    ``sentence``: the result of ``sentence_settings``, if it is not from the tokenizer's own folder.
    """
    folder = file.parent
    sentence = sentence or sentence_settings(folder)
    config = settings(folder, "tokenizer_config.json")
    _check_python(file, config)
    text, is_original = _text(file)
    library = _checked(file, text)
    document = _document(file, text)
    _check_limits(file, document)
    lowered = sentence[1].get("do_lower_case") is True
    content = None if is_original else text.encode("utf-8")
    try:
        served = tokenizer_config.applied(document, config, settings(folder, "config.json")) or document
        served = (tokenizer_config.lowered(served) if lowered else None) or served
        if served != document:
            content = json.dumps(served, indent=2, ensure_ascii=False).encode("utf-8")
    except files.DAMAGED as error:
        raise _invalid(file, error) from None
    length, source = max_length(folder, sentence)
    needed_ids = (*tokenizer_limits.template_ids(document), _pad_id(library, folder, served))
    spec = TokenizerSpec(
        file=file,
        content=content,
        max_length=length,
        max_length_from=source,
        pad_id=needed_ids[-1],
        largest_id=max((*library.get_vocab(with_added_tokens=True).values(), *needed_ids)),
        largest_own_id=max((*library.get_vocab(with_added_tokens=False).values(), *needed_ids)),
        special_tokens=library.num_special_tokens_to_add(False),
        truncation_side=tokenizer_config.side(config, document, "truncation"),
        padding_side=tokenizer_config.side(config, document, "padding", settings(folder, "config.json")),
        lowered=lowered,
        positions_from_pad=_counts_from_pad(settings(folder, "config.json")),
        gives_types=tokenizer_config.gives_types(config, settings(folder, "config.json")),
        splits_special=config.get("split_special_tokens") is True,
        own_python=_own_python(config),
        notes=_python_notes(config) if is_original else (),
    )
    # A large vocabulary takes a second to load.
    vars(spec)["library"] = tokenizer = library if served == document else _changed(file, spec.served)
    tokenizer.encode_special_tokens = spec.splits_special
    _check_words(spec)
    return spec


def _check_python(file: Path, config: Mapping[str, Any]) -> None:
    """``TrbError`` if a class cuts texts in Python before the rules that it saves in tokenizer.json."""
    named = tokenizer_config.class_of(config, settings(file.parent, "config.json"))
    if library := _CUTS_IN_PYTHON.get(named):
        raise TrbError(
            Code.SLOW_TOKENIZER,
            f"{named} cuts texts into words with the Python package {library}, which tokenizer.json does not "
            "say",
            where=str(file.parent),
            remedy=f"{slow_tokenizer.WITHOUT}; if the model was trained without {library}, set "
            "tokenizer_class to BertTokenizer in tokenizer_config.json",
        )


def _check_words(spec: TokenizerSpec) -> None:
    """``TrbError`` if all tokens are special: so transformers 5 saves a tokenizer whose files it lacked."""
    if spec.library.get_vocab_size(with_added_tokens=False) > UNSURE:
        return
    added = {token.content for token in spec.library.get_added_tokens_decoder().values()}
    words = [word for word in spec.library.get_vocab(with_added_tokens=False) if word not in added]
    if len(words) < FEWEST:
        raise TrbError(
            Code.TOKENIZER_INVALID,
            f"it knows no words: its vocabulary is {len(added)} special tokens",
            where=str(spec.file),
            remedy="get the original files again from the model's source",
        )


def _python_notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """A note on a class whose Python code, not tokenizer.json, makes transformers' tokens."""
    own_python, named = _own_python(config), str(config.get("tokenizer_class", ""))
    if not own_python and named not in slow_tokenizer.NO_FAST_FORM:
        return ()
    whose = "Python code of the model's own" if own_python else "Python code of transformers"
    return (
        f"tokenizer_config.json names {named or 'a class'}, {whose}, which is not run: the server follows "
        "tokenizer.json alone",
    )


def _own_python(config: Mapping[str, Any]) -> bool:
    """Whether the model brings its tokenizer's class; an older form of ``auto_map`` is that class itself."""
    auto = config.get("auto_map")
    return isinstance(auto, list) or (isinstance(auto, dict) and "AutoTokenizer" in auto)


def load(text: str) -> Any:
    """A tokenizer of the ``tokenizers`` library, without padding and truncation. Raises its ``Exception``."""
    from tokenizers import Tokenizer

    with transformers_library.panics():
        library = Tokenizer.from_str(text)
    library.no_padding()
    library.no_truncation()
    return library


def token_id(library: Any, token: str) -> int | None:
    """The id of a token; None also for half of a surrogate pair, which JSON can hold and no vocabulary."""
    try:
        number: int | None = library.token_to_id(token)
    except UnicodeEncodeError:
        return None
    return number


def _text(file: Path) -> tuple[str, bool]:
    """The tokenizer.json, and whether it is the user's own file."""
    if file.name in slow_tokenizer.VOCABULARIES:
        return slow_tokenizer.convert(file), False
    try:
        return files.read_text(file), True
    except OSError as error:
        raise files.unreadable(file, error, code=Code.TOKENIZER_INVALID) from None
    except UnicodeDecodeError as error:
        raise _invalid(file, error) from None


def _checked(file: Path, text: str) -> Any:
    try:
        return load(text)
    except Exception as error:  # the Rust library raises plain Exception
        if files.is_lfs_pointer(text[:200].encode()):
            raise TrbError(
                Code.LFS_POINTER,
                "this is a git-LFS pointer, not the tokenizer",
                where=str(file),
                remedy="run 'git lfs pull' in that repository, then build again",
            ) from None
        raise _invalid(file, error) from None


def _document(file: Path, text: str) -> Any:
    try:
        document = files.load_json(text)
    except ValueError as error:
        raise _invalid(file, error) from None
    # The library also takes a list of an object's values, in their order, which nobody writes.
    parts = ("normalizer", "pre_tokenizer", "post_processor", "padding", "truncation", "model")
    named = isinstance(document, dict) and all(isinstance(document.get(part) or {}, dict) for part in parts)
    if not named or not all(isinstance(entry, dict) for entry in document.get("added_tokens") or ()):
        raise _invalid(file, TypeError("a part of it is a list instead of an object"))
    return document


def _check_limits(file: Path, document: Mapping[str, Any]) -> None:
    """``TrbError`` for a tokenizer that would exhaust memory, or panic."""
    try:
        tokenizer_limits.in_time(lambda: tokenizer_limits.check(document, load))
    except (*files.DAMAGED, RecursionError) as error:
        raise _invalid(file, error) from None


def _changed(file: Path, served: bytes) -> Any:
    """The tokenizer as the files beside it change it."""
    try:
        return load(served.decode("utf-8"))
    except Exception as error:
        raise TrbError(
            Code.TOKENIZER_INVALID,
            f"with the settings of tokenizer_config.json beside it 'tokenizers' cannot load it: {error}",
            where=str(file),
            remedy="get the original files again from the model's source",
        ) from None


def _invalid(file: Path, error: BaseException) -> TrbError:
    return TrbError(
        Code.TOKENIZER_INVALID,
        f"is not a tokenizer.json that 'tokenizers' can load: {error}",
        where=str(file),
        remedy="save it again with transformers' save_pretrained",
    )


def settings(folder: Path, name: str) -> Mapping[str, Any]:
    """A JSON file of the model's folder (see ``places``), or empty."""
    for place in places(folder):
        if file := containment.within(place, name):
            try:
                document = files.load_json(files.read(file, files.LARGEST_DOCUMENT), halves=True)
            except (OSError, ValueError) as error:
                raise TrbError(
                    Code.TOKENIZER_INVALID,
                    f"is not readable JSON: {error}",
                    where=str(file),
                    remedy="get the original file again from the model's source",
                ) from None
            return document if isinstance(document, dict) else {}
    return {}


def token(folder: Path, name: str) -> Any:
    """A special token by its name in tokenizer_config.json, else in special_tokens_map.json."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if value := settings(folder, file).get(name):
            return value.get("content") if isinstance(value, dict) else value
    return None


def sentence_settings(*folders: Path) -> tuple[Path, Mapping[str, Any]]:
    """(file, content) of sentence_bert_config.json in the first folder that has it; empty without."""
    for folder in folders:
        for name in SENTENCE_FILES:
            if stated := settings(folder, name):
                stated_in = (file for place in places(folder) if (file := containment.within(place, name)))
                return next(stated_in, folder / name), stated
    return folders[0] / SENTENCE_FILES[0], {}


def sentence_part(stated: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """An object in sentence_bert_config.json under the first of these names that it has."""
    part = next((stated[name] for name in names if name in stated), None)
    return part if isinstance(part, dict) else {}


def _sentence_limit(stated: Mapping[str, Any]) -> int | None:
    """The length at which sentence-transformers cuts: the call's, else the tokenizer's, else the module's."""
    called = sentence_part(stated, "processing_kwargs")
    loaded = sentence_part(stated, "tokenizer_args", "processor_kwargs")
    limits = (
        sentence_part(called, "common").get("max_length"),
        sentence_part(called, "text").get("max_length"),
        loaded.get("model_max_length"),
        stated.get("max_seq_length"),
    )
    return next((limit for value in limits if (limit := _limit(value))), None)


def max_length(
    folder: Path, sentence: tuple[Path, Mapping[str, Any]] | None = None
) -> tuple[int | None, str]:
    """The model's true maximum: sentence-transformers' limit, else the smaller of the other two."""
    file, stated = sentence or sentence_settings(folder)
    if limit := _sentence_limit(stated):
        return limit, file.name
    limits = []
    stated = settings(folder, "tokenizer_config.json")
    limit = _limit(stated.get("model_max_length", stated.get("max_len")))  # the name that it had before 2020
    if limit:
        limits.append((limit, "tokenizer_config.json"))
    positions = _positions(settings(folder, "config.json"))
    if positions:
        limits.append((positions, "config.json"))
    return min(limits) if limits else (None, "")


def table_of_positions(config: Mapping[str, Any]) -> int | None:
    """Most tokens that a model has positions for, however few it was trained on; None if it has no table.

    T5 and DeBERTa v2 and v3 compare places in buckets, others rotate (RoPE) or add slopes (ALiBi): for them
    ``max_position_embeddings`` is what they were trained on, and a longer text runs.
    """
    if str(config.get("model_type", "")) in _RELATIVE or config.get("position_biased_input") is False:
        return None
    if config.get("position_embedding_type") in ("rotary", "rope", "alibi"):
        return None
    rotated = ("rope_", "rotary_emb", "rotary_pct", "global_rope_", "local_rope_")
    return None if any(name.startswith(rotated) for name in config) else _positions(config)


def _positions(config: Mapping[str, Any]) -> int | None:
    """Tokens that the positions of config.json are enough for."""
    positions = _limit(config.get("max_position_embeddings") or config.get("n_positions"))
    if not positions:
        return None
    # RoBERTa counts positions from pad id + 1: 514 positions hold 512 tokens (fairseq's padding_idx).
    left = positions - (position_pad_id(config) + 1 if _counts_from_pad(config) else 0)
    return left if left > 0 else None


def position_pad_id(config: Mapping[str, Any]) -> int:
    """The id that the model's own positions skip; MPNet's code has 1 in it, whatever pads."""
    pad = config.get("pad_token_id")
    return pad if isinstance(pad, int) and config.get("model_type") != "mpnet" else 1


def _counts_from_pad(config: Mapping[str, Any]) -> bool:
    families = (
        *("roberta", "camembert", "mpnet", "longformer", "xmod", "data2vec-text", "esm", "luke", "ibert"),
        *("layoutlmv3", "lilt", "markuplm", "altclip", "clap", "bridgetower"),
    )
    return any(family in str(config.get("model_type", "")) for family in families)


def _limit(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and 0 < value < UNSET else None


def _pad_id(tokenizer: Any, folder: Path, document: Mapping[str, Any]) -> int:
    token = settings(folder, "tokenizer_config.json").get("pad_token")
    token = token.get("content") if isinstance(token, dict) else token
    candidates = (
        token_id(tokenizer, token) if isinstance(token, str) else None,
        (document.get("padding") or {}).get("pad_id"),
        settings(folder, "config.json").get("pad_token_id"),
    )
    return next((value for value in candidates if isinstance(value, int)), 0)
