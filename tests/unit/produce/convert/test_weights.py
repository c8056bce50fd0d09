"""What is read of a folder of weights before torch is asked, and each refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import weight_files
from triton_repo_builder.model.read.foreign import EXPORTED
from triton_repo_builder.produce.convert import weights, worker

SAFETENSORS = b"\x02\0\0\0\0\0\0\0{}"


def folder(place: Path, config: Any = None, *names: str) -> Path:
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config or {"architectures": ["BertModel"]}))
    for name in names or (weight_files.WHOLE,):
        (place / name).write_bytes(SAFETENSORS)
    return place


def refusal(place: Path, task: str | None = None) -> TrbError:
    with pytest.raises(TrbError) as caught:
        weights.find(place, task)
    assert caught.value.remedy and caught.value.where
    return caught.value


@pytest.mark.parametrize(
    ("config", "modules", "task"),
    [
        ({"architectures": ["BertModel"]}, (), ("feature-extraction", "BertModel")),
        ({"architectures": ["DPRQuestionEncoder"]}, (), ("feature-extraction", "DPRQuestionEncoder")),
        (
            {"architectures": ["BertForSequenceClassification"]},
            (),
            ("text-classification", "BertForSequenceClassification"),
        ),
        ({"architectures": ["BertForMaskedLM"]}, ("Transformer", "Pooling"), ("feature-extraction", "")),
        (
            {"architectures": ["BertForMaskedLM"]},
            ("MLMTransformer", "SpladePooling"),
            ("fill-mask", "BertForMaskedLM"),
        ),
        ({"architectures": ["Qwen3ForCausalLM"]}, ("Transformer", "Pooling"), ("feature-extraction", "")),
        (
            {"architectures": ["Wav2Vec2ForSequenceClassification"], "model_type": "wav2vec2"},
            (),
            ("audio-classification", "Wav2Vec2ForSequenceClassification"),
        ),
        (
            {"architectures": ["CLIPModel"], "text_config": {}, "vision_config": {}},
            (),
            ("zero-shot-image-classification", "CLIPModel"),
        ),
    ],
)
def test_the_task_follows_from_the_files(config: Any, modules: Any, task: tuple[str, str]) -> None:
    assert weights.purpose(config, modules, None, "here") == task


def test_a_stated_task_overrides(tmp_path: Path) -> None:
    place = folder(tmp_path / "in", {"architectures": ["BertForSequenceClassification"]})
    found = weights.find(place, "feature-extraction")
    assert (found.task, found.stated_class) == ("feature-extraction", "")


def test_every_task_has_a_class() -> None:
    assert set(EXPORTED) == worker.CLASSES.keys()


def test_shards_and_companions(tmp_path: Path) -> None:
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    place = folder(tmp_path / "in", None, *shards)
    index = {"weight_map": dict(zip("ab", shards, strict=True))}
    (place / weight_files.INDEX).write_text(json.dumps(index))
    (place / "tokenizer.json").write_text("{}")
    (place / "modeling.py").write_text("raise SystemExit")
    (place / "1_Dense").mkdir()
    (place / "1_Dense" / "model.safetensors").write_bytes(SAFETENSORS)
    modules = [{"path": "1_Dense", "type": "sentence_transformers.models.Dense"}]
    (place / "modules.json").write_text(json.dumps(modules))
    found = weights.find(place, None)
    assert found.files == (weight_files.INDEX, *shards)
    expected = {"config.json", "tokenizer.json", "modules.json", "1_Dense/model.safetensors"}
    assert set(found.companions) == expected
    (place / shards[1]).unlink()
    missing = refusal(place)
    assert missing.code is Code.NOT_FOUND and shards[1] in missing.message


def test_refusals(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").code is Code.NOT_FOUND
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "config.json" in refusal(empty).message
    pickled = refusal(folder(tmp_path / "pickled", None, "pytorch_model.bin"))
    assert pickled.code is Code.UNSUPPORTED_MODEL and "can run code" in pickled.message
    nothing = refusal(folder(tmp_path / "nothing", None, "notes.txt"))
    assert nothing.code is Code.NOT_FOUND and weight_files.WHOLE in nothing.message
    causal = refusal(folder(tmp_path / "causal", {"architectures": ["LlamaForCausalLM"]}))
    assert causal.code is Code.UNSUPPORTED_MODEL and "generates text" in causal.message
    unclear = refusal(folder(tmp_path / "unclear", {"architectures": ["HF_ColBERT"]}))
    assert unclear.code is Code.TASK_UNCLEAR and "--task" in unclear.remedy
    pointer = folder(tmp_path / "pointer")
    (pointer / weight_files.WHOLE).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert refusal(pointer).code is Code.LFS_POINTER


def test_own_code_is_refused(tmp_path: Path) -> None:
    config = {
        "architectures": ["StrangeModel"],
        "model_type": "strange",
        "auto_map": {"AutoModel": "modeling_strange.StrangeModel"},
    }
    own = refusal(folder(tmp_path / "own", config))
    assert own.code is Code.UNSUPPORTED_MODEL
    assert "auto_map" in own.message and "modeling_strange" in own.message
    # transformers has this architecture: its own class is used, and the model's code is not.
    native = {**config, "architectures": ["BertModel"], "model_type": "bert"}
    assert weights.find(folder(tmp_path / "native", native), None).stated_class == "BertModel"


def test_weights_that_lead_out_are_refused(tmp_path: Path) -> None:
    place = folder(tmp_path / "in", None, "notes.txt")
    (tmp_path / "secret").write_bytes(SAFETENSORS)
    (place / weight_files.WHOLE).symlink_to(tmp_path / "secret")
    assert refusal(place).code is Code.OUTSIDE_FOLDER
