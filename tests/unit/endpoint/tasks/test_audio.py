"""Audio tasks: which one a model has, and what is refused or said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tiny
import tiny_onnx as t
import tiny_sounds
import transformers
from onnx import TensorProto

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint import tasks
from triton_repo_builder.endpoint.tasks import audio_classification, speech_recognition
from triton_repo_builder.endpoint.tasks.task import TaskPlan
from triton_repo_builder.model.graph import compose, reader
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.repository import tensor_names
from triton_repo_builder.runtime.answers import speech_recognition as served


def chosen(folder: Path, wanted: str | None = None) -> tuple[str, str]:
    module, reason = tasks.choose(reader.read_source(folder), wanted)
    return module.NAME, reason


def planned(folder: Path, module: Any = speech_recognition, **options: Any) -> TaskPlan:
    made: TaskPlan = module.plan(reader.read_source(folder), BuildOptions(model=folder, **options))
    return made


def edit(file: Path, **changed: Any) -> None:
    document = {**json.loads(file.read_text()), **changed}
    tiny.put_json(file, {key: value for key, value in document.items() if value is not None})


def test_which_task(tmp_path: Path) -> None:
    assert chosen(tiny_sounds.classifier(tmp_path / "c")) == ("audio-classification", "")
    assert chosen(tiny_sounds.recogniser(tmp_path / "r")) == ("automatic-speech-recognition", "")
    for name, wanted in (("c", "audio-classification"), ("r", "automatic-speech-recognition")):
        edit(tmp_path / name / "config.json", architectures=None)
        task, reason = chosen(tmp_path / name)
        assert task == wanted
        assert "is a guess from the model's files" in reason


def test_an_output_without_a_name_is_known_by_its_width(tmp_path: Path) -> None:
    """As torch's own exporter calls it; of hidden states of that width nobody knows."""
    folder = tiny_sounds.recogniser(tmp_path / "r")
    tiny.rename(folder / "model.onnx", {"logits": "linear_13"})
    assert chosen(folder) == ("automatic-speech-recognition", "")
    assert planned(folder).head is not None
    edit(folder / "config.json", hidden_size=len(tiny_sounds.LETTERS))
    assert chosen(folder)[0] == "tensor"


def test_a_feature_extractor_is_plain_tensors(tmp_path: Path) -> None:
    """Its hidden states are neither labels nor tokens."""
    folder = tiny_sounds.recogniser(tmp_path / "r")
    edit(folder / "config.json", architectures=["Wav2Vec2Model"])
    name, reason = chosen(folder)
    assert name == "tensor"
    assert "no known task of audio fits its outputs" in reason


@pytest.mark.parametrize(
    ("named", "make", "task"),
    [
        ("Wav2Vec2ForSequenceClassification", tiny_sounds.recogniser, "audio-classification"),
        ("Wav2Vec2ForCTC", tiny_sounds.classifier, "automatic-speech-recognition"),
    ],
)
def test_a_head_that_the_graph_does_not_have_is_named(
    named: str, make: Any, task: str, tmp_path: Path
) -> None:
    folder = make(tmp_path / "m")
    edit(folder / "config.json", architectures=[named])
    name, reason = chosen(folder)
    assert name == "tensor"
    assert f"config.json names {named}, and the graph does not have its head" in reason
    assert f"for {task} export it with optimum-cli export onnx --task {task}" in reason


def test_spectrograms_are_plain_tensors(tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "c")
    edit(folder / "preprocessor_config.json", feature_extractor_type="ASTFeatureExtractor")
    assert chosen(folder)[0] == "tensor"
    assert "ASTFeatureExtractor is not served" in chosen(folder)[1]
    with pytest.raises(TrbError, match="ASTFeatureExtractor is not served, only Wav2Vec2FeatureExtractor"):
        chosen(folder, "audio-classification")


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "c")
    inputs = [t.tensor("input_values", ["b", "s"]), t.tensor("attention_mask", ["b", "s"])]
    nodes = [t.node("Add", ["input_values", "attention_mask"], ["logits"])]
    (folder / "model.onnx").write_bytes(t.model(nodes, inputs, [t.tensor("logits", ["b", 4])]))
    with pytest.raises(
        TrbError, match=r"needs one input input_values \[batch, samples\], the model takes input"
    ):
        chosen(folder, "audio-classification")


def test_sounds_under_another_name_are_plain_tensors_and_said_to_be(tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "c")
    tiny.rename(folder / "model.onnx", {"input_values": "waveform"})
    name, reason = chosen(folder)
    assert name == "tensor"
    assert "prepares sounds for one input input_values [batch, samples], and the graph has waveform" in reason


def test_without_a_preprocessor(tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    (folder / "preprocessor_config.json").unlink()
    assert (
        chosen(folder)[1] == "no preprocessor_config.json (--preprocessor names one): served as plain tensors"
    )
    with pytest.raises(
        TrbError, match=r"no preprocessor_config.json beside the model: no file states its samp"
    ):
        chosen(folder, "automatic-speech-recognition")


def test_a_classifier_is_no_recogniser(tmp_path: Path) -> None:
    with pytest.raises(TrbError, match=r"needs an output logits \[batch, moments, tokens\]; it has logits"):
        planned(tiny_sounds.classifier(tmp_path / "c"))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (None, "not found, and it holds the tokens of a model for speech"),
        ([1], "cannot be read as tokens with their numbers"),
        ({"a": [1]}, "cannot be read as tokens with their numbers"),
        ({"eng": {"a": 0}, "deu": {"a": 0}}, "it has a vocabulary for each language (deu, eng), and token"),
        ({"<pad>": 0, "a": 2}, "its numbers do not go from 0 without a gap"),
        ({"<pad>": 0, "a": 1}, "vocab.json has 2 tokens, with the blank '<pad>'; the model has logits of 13"),
        ({f"t{n}": n for n in range(13)}, "has 13 tokens, without the blank '<pad>'"),
    ],
)
def test_vocabularies_that_will_not_do(vocabulary: Any, message: str, tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    (folder / "vocab.json").unlink()
    if vocabulary is not None:
        tiny.put_json(folder / "vocab.json", vocabulary)
    with pytest.raises(TrbError) as caught:
        planned(folder)
    assert message in caught.value.message
    assert caught.value.where == str(folder / "vocab.json")
    assert caught.value.code in (Code.NOT_FOUND, Code.TASK_UNCLEAR, Code.UNSUPPORTED_MODEL)


def test_a_vocabulary_of_several_languages(tmp_path: Path) -> None:
    """As of MMS, whose export is for one of them."""
    folder = tiny_sounds.recogniser(tmp_path / "r")
    letters = json.loads((folder / "vocab.json").read_text())
    tiny.put_json(folder / "vocab.json", {"deu": {"<pad>": 0, "Ä": 1}, "eng": letters})
    edit(folder / "tokenizer_config.json", target_lang="eng")
    assert dict(planned(folder).facts)["vocabulary"] == len(letters)
    own = transformers.Wav2Vec2CTCTokenizer.from_pretrained(folder)
    assert own.decode([5, 5, 0, 6]) == "ET"


@pytest.mark.parametrize("nested", [True, False])
def test_the_one_file_of_transformers_5(nested: bool, tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "c")
    (folder / "preprocessor_config.json").unlink()
    part = {"feature_extractor": tiny_sounds.PROCESSOR} if nested else {"image_processor": {}}
    tiny.put_json(folder / "processor_config.json", {"processor_class": "Wav2Vec2Processor", **part})
    assert chosen(folder)[0] == ("audio-classification" if nested else "tensor")
    if nested:
        assert tiny.make(folder, tmp_path / "repo", golden=True).entry.served.task == "audio-classification"


def test_added_tokens_count(tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    letters = {letter: number for number, letter in enumerate(tiny_sounds.LETTERS[:-2])}
    tiny.put_json(folder / "vocab.json", letters)
    tiny.put_json(folder / "added_tokens.json", {"S": 11, "H": 12})
    assert dict(planned(folder).facts)["vocabulary"] == 13


def test_added_tokens_of_tokenizer_config_go_first_and_may_lie_beyond_the_logits(tmp_path: Path) -> None:
    """Many fine-tuned models were given <s> and </s> after their head was made."""
    folder = tiny_sounds.recogniser(tmp_path / "r")
    letters = {letter: number for number, letter in enumerate(tiny_sounds.LETTERS[:-2])}
    tiny.put_json(folder / "vocab.json", letters)
    tiny.put_json(folder / "added_tokens.json", {"no": 11})
    listed = {"11": {"content": "S"}, "12": {"content": "H"}, "13": {"content": "<s>"}}
    edit(folder / "tokenizer_config.json", added_tokens_decoder=listed)
    post = planned(folder).post
    assert post is not None
    assert json.loads(post.files()["tokens.json"]) == list(tiny_sounds.LETTERS)


def test_the_blank_of_an_older_folder(tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    letters = {letter.replace("<pad>", "[PAD]"): n for n, letter in enumerate(tiny_sounds.LETTERS)}
    tiny.put_json(folder / "vocab.json", letters)
    tiny.put_json(folder / "special_tokens_map.json", {"pad_token": "[PAD]"})
    edit(folder / "tokenizer_config.json", pad_token=None)
    assert dict(planned(folder).facts)["blank"] == "[PAD]"


def test_a_tokenizer_of_other_rules_is_refused(tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    edit(folder / "tokenizer_config.json", tokenizer_class="Wav2Vec2PhonemeCTCTokenizer")
    with pytest.raises(TrbError, match="Wav2Vec2PhonemeCTCTokenizer, which makes other texts"):
        planned(folder)


@pytest.mark.parametrize(
    "changed",
    [
        *({}, {"do_lower_case": True}, {"word_delimiter_token": "E"}, {"replace_word_delimiter_char": "-"}),
        {"clean_up_tokenization_spaces": True},
        {"clean_up_tokenization_spaces": True, "do_lower_case": True},
    ],
)
def test_texts_are_those_of_transformers(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r")
    edit(folder / "tokenizer_config.json", **changed)
    if "clean_up_tokenization_spaces" in changed:
        swapped = dict(zip("ETAO", (".", ",", "'S", "N'T"), strict=True))
        letters = {swapped.get(letter, letter): n for n, letter in enumerate(tiny_sounds.LETTERS)}
        tiny.put_json(folder / "vocab.json", letters)
    task = planned(folder)
    assert task.post is not None
    (tmp_path / "tokens.json").write_bytes(task.post.files()["tokens.json"])
    answer = served.Answer(dict(task.post.parameters), tmp_path)
    # From the files alone, transformers 5 takes "|" whatever they say; 4.57 follows them.
    own = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"), **changed)
    assert any("transformers 5.23 reads '|'" in note for note in task.notes) == (
        "word_delimiter_token" in changed
    )
    random = np.random.default_rng(0)
    for length in (1, 2, 9, 40, 40, 40, 200):
        ids = np.repeat(random.integers(0, len(tiny_sounds.LETTERS), length), random.integers(1, 3, length))
        assert answer.answer({"trb_ids": ids})["text"][0].decode() == own.decode(ids.tolist())


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_the_likeliest_token_of_each_moment(dtype: int, tmp_path: Path) -> None:
    folder = tiny_sounds.recogniser(tmp_path / "r", dtype=dtype)
    src, task = reader.read_source(folder), planned(folder)
    content = compose.compose(src.skeleton, weights="model.onnx", head=task.head, release=releases.default())
    (folder / "composed.onnx").write_bytes(content)
    kind = np.float16 if dtype == TensorProto.FLOAT16 else np.float32
    feed = {"input_values": np.random.default_rng(1).normal(size=(3, 4_000)).astype(kind)}
    logits = onnxruntime.InferenceSession(str(folder / "model.onnx")).run(None, feed)[0]
    got = onnxruntime.InferenceSession(str(folder / "composed.onnx")).run([tensor_names.IDS], feed)[0]
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, logits.argmax(axis=-1))


def test_options_of_other_models(tmp_path: Path) -> None:
    folder = tiny_sounds.classifier(tmp_path / "c")
    assert planned(folder, audio_classification, top_k=2).outputs[2].dims == (2,)
    with pytest.raises(TrbError, match="--max-length"):
        tiny.make(folder, tmp_path / "repo", max_length=9)


def test_an_answer_that_noise_decides_is_no_golden_case(tmp_path: Path) -> None:
    task = planned(tiny_sounds.recogniser(tmp_path / "r"))
    assert task.unsure is not None
    clear = np.eye(13, dtype=np.float32)[None, :5]
    assert task.unsure({"logits": clear}, 1e-6) == frozenset()
    close = clear.copy()
    close[0, 3, 0] = 1 - 1e-6
    assert task.unsure({"logits": close}, 1e-6) == {"text"}
