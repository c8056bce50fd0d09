"""Speech recognition by CTC: the token of each moment from the graph, the text after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from triton_repo_builder.base import containment, files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.plan.model import TensorPlan
from triton_repo_builder.endpoint.tasks.support import audio, head_output
from triton_repo_builder.endpoint.tasks.task import Arrays, Kind, Postprocess, TaskPlan, architecture
from triton_repo_builder.model.graph.heads import tokens
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read import tokenizer, transformers_library
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import TensorSpec
from triton_repo_builder.model.read.source import Source
from triton_repo_builder.repository import tensor_names

NAME = "automatic-speech-recognition"
KIND = Kind.AUDIO
OPTIONS: tuple[str, ...] = ()
ARCHITECTURES = ("ForCTC",)
VOCABULARY = "vocab.json"
USUAL = "|"
CLASSES = ("Wav2Vec2CTCTokenizer", "Wav2Vec2Tokenizer")
"""Tokenizers whose rules these are; the second is an older name."""
ADDED = "added_tokens_decoder"
SHOWN = 6
"""Most languages that a message names."""
FOLLOWED = (
    "as tokenizer_config.json says and transformers 4 follows; transformers 5.23 reads '|' whatever it says"
)
OUTPUTS = (TensorPlan(name="text", data_type="TYPE_STRING", dims=(1,)),)


def fits(source: Source) -> bool:
    """It takes samples, has logits of each moment, and config.json names the architecture, or none."""
    if not audio.sounds(source) or _logits(source) is None:
        return False
    named = bool(source.config.get("architectures"))
    return bool(architecture(source, *ARCHITECTURES)) if named else _has_vocabulary(source)


def plan(source: Source, options: BuildOptions) -> TaskPlan:
    """The rules of Wav2Vec2CTCTokenizer, by the files beside the model."""
    audio.check(source, NAME)
    logits = _logits(source)
    if logits is None:
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{NAME} needs an output logits [batch, moments, tokens]; it has {head_output.shown(source)}",
            where=str(source.path),
            remedy=f"export it for {NAME} (optimum-cli export onnx --task {NAME}), or use --task tensor",
        )
    settings = tokenizer.settings(source.folder, "tokenizer_config.json")
    _check_class(source, settings)
    width = logits.dims[-1]
    vocabulary = _vocabulary(source, settings, width)
    blank = _text(settings.get("pad_token") or _special(source, settings, "pad_token", "<pad>"))
    delimiter = _text(settings.get("word_delimiter_token", USUAL))
    space = str(settings.get("replace_word_delimiter_char", " "))
    rules = {"lower": "do_lower_case", "clean": "clean_up_tokenization_spaces"}
    if blank not in vocabulary or width not in (-1, len(vocabulary)):
        raise TrbError(
            Code.TASK_UNCLEAR,
            f"{VOCABULARY} has {len(vocabulary)} tokens, {'with' if blank in vocabulary else 'without'} the "
            f"blank {blank!r}; the model has logits of {width}",
            where=str(_vocabulary_file(source)),
            remedy="put the files of the model's own tokenizer beside it",
        )
    return TaskPlan(
        name=NAME,
        head=Head(text=tokens.likeliest(width), bind={"logits": logits.name}),
        outputs=(TensorPlan(name=tensor_names.IDS, data_type="TYPE_INT32", dims=(-1,)),),
        reference=_reference(logits.name, source, delimiter),
        post=Postprocess(
            module="speech_recognition.py",
            inputs=(tensor_names.IDS,),
            outputs=OUTPUTS,
            parameters=(
                ("blank", blank),
                ("delimiter", delimiter),
                *((("space", space),) if space != " " else ()),
                *((rule, "true") for rule, key in rules.items() if settings.get(key)),
            ),
            files=lambda: {"tokens.json": json.dumps(vocabulary, ensure_ascii=False).encode()},
        ),
        unsure=lambda outputs, noise: _unsure(outputs[logits.name], noise),
        facts=(("blank", blank), ("vocabulary", len(vocabulary))),
        notes=(f"words end at {delimiter!r}, {FOLLOWED}",) if delimiter != USUAL else (),
    )


def _logits(source: Source) -> TensorSpec | None:
    logits = source.signature.output(head_output.LOGITS)
    if logits is None and architecture(source, *ARCHITECTURES):
        width = source.config.get("vocab_size")
        logits = head_output.find(source, 3, {width} if isinstance(width, int) else ())
    return logits if logits is not None and len(logits.dims) == 3 else None


def _vocabulary_file(source: Source) -> Path:
    return source.folder / VOCABULARY


def _has_vocabulary(source: Source) -> bool:
    return containment.within(source.folder, VOCABULARY) is not None


def _check_class(source: Source, settings: Mapping[str, Any]) -> None:
    """``TrbError`` for a tokenizer that makes another text of the same tokens."""
    kind = settings.get("tokenizer_class")
    if kind and kind not in CLASSES:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"tokenizer_class is {kind}, which makes other texts than {CLASSES[0]}",
            where=str(source.folder / "tokenizer_config.json"),
            remedy="use --task tensor and make the text on the client",
        )


def _special(source: Source, settings: Mapping[str, Any], name: str, usual: str) -> Any:
    """A token that older folders name in a file of its own, which transformers reads beside no newer list."""
    older = {} if ADDED in settings else tokenizer.settings(source.folder, "special_tokens_map.json")
    return older.get(name) or usual


def _added(source: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Added tokens and their numbers: those of tokenizer_config.json, else of added_tokens.json."""
    if ADDED not in settings:
        return dict(tokenizer.settings(source.folder, "added_tokens.json"))
    return {_text(token): number for number, token in dict(settings[ADDED]).items()}


def _vocabulary(source: Source, settings: Mapping[str, Any], width: int) -> list[str]:
    """The tokens by number, added ones among them; of one language, if the file has several.

    Added tokens beyond the ``width`` of the logits are never heard. Raises ``TrbError``.
    """
    file, language = _vocabulary_file(source), settings.get("target_lang")
    if not _has_vocabulary(source):
        raise _unusable(file, "not found, and it holds the tokens of a model for speech")
    try:
        stated = dict(files.load_json(files.read(file)))
        languages = sorted(name for name, part in stated.items() if isinstance(part, dict))
        if languages and language not in languages:
            shown = ", ".join(languages[:SHOWN]) + (" …" if len(languages) > SHOWN else "")
            message = f"it has a vocabulary for each language ({shown}), and tokenizer_config.json names none"
            raise _unusable(file, f"{message} in target_lang")
        vocabulary = stated[str(language)] if languages else stated
        tokens_of = {int(number): str(token) for token, number in vocabulary.items()}
        if len(tokens_of) != len(vocabulary):
            raise ValueError("two of them have the same number")
        added = {int(number): token for token, number in _added(source, settings).items()}
        heard = {number: token for number, token in added.items() if width < 0 or number < width}
        numbered = sorted((tokens_of | heard).items())
    except (OSError, TypeError, *files.DAMAGED) as error:
        raise _unusable(file, f"cannot be read as tokens with their numbers: {error}") from None
    if [number for number, _ in numbered] != list(range(len(numbered))):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "its numbers do not go from 0 without a gap",
            where=str(file),
            remedy="put the files of the model's own tokenizer beside it",
        )
    return [token for _, token in numbered]


def _unusable(file: Path, message: str) -> TrbError:
    return TrbError(
        Code.NOT_FOUND,
        message,
        where=str(file),
        remedy=f"put {VOCABULARY} and tokenizer_config.json of the model's Wav2Vec2CTCTokenizer beside it",
    )


def _text(stated: Any) -> str:
    return str(stated.get("content", "")) if isinstance(stated, dict) else str(stated)


def _reference(
    output: str, source: Source, delimiter: str
) -> Callable[[Arrays, npt.NDArray[np.int64]], dict[str, npt.NDArray[np.generic]]]:
    def answer(outputs: Arrays, mask: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
        try:
            library = transformers_library.from_pretrained("Wav2Vec2CTCTokenizer", source.folder)
            library.word_delimiter_token = delimiter
            texts = [library.decode(row) for row in outputs[output].argmax(axis=-1)]
        except TrbError:
            raise
        except Exception as error:
            raise TrbError(
                Code.TOKENIZER_INVALID,
                f"transformers cannot decode with it: {type(error).__name__} {error}",
                where=str(_vocabulary_file(source)),
                remedy="get the tokenizer's files again from the model's source",
            ) from None
        return {"text": np.array([[text.encode()] for text in texts], dtype=object)}

    return answer


def _unsure(logits: npt.NDArray[Any], noise: float) -> frozenset[str]:
    """The text, if the two likeliest tokens of any moment are as likely but for noise."""
    second, first = np.sort(logits.astype(np.float64), axis=-1)[..., -2:].transpose(2, 0, 1)
    scale = max(1.0, float(np.abs(logits).max()))
    return frozenset({"text"}) if (first - second < 10 * noise * scale).any() else frozenset()
