"""The unmodified InferenceClient against the endpoints of every task: its answers are those over gRPC."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_images
import tiny_sounds
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from PIL import Image

from tests.support.rows import column
from triton_repo_builder.run.client.grpc import GrpcClient

pytestmark = [pytest.mark.server, pytest.mark.gateway]

TEXTS = ["Anna lives in Berlin.", "a great film", "Paris is in [MASK]."]
IMAGE = tiny_images.file(40, 30)
SOUND = tiny_sounds.wav(tiny_sounds.noise(8000))


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses also this machine's servers while HF_HUB_OFFLINE is set, as make does."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture
def client(gateway: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of one endpoint by its URL."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return lambda name: InferenceClient(base_url=f"{gateway}/models/{name}", api_key="none")


def ask(grpc: GrpcClient, name: str, **inputs: Any) -> dict[str, Any]:
    """The outputs of one row."""
    return {key: rows[0] for key, rows in grpc.infer(name, {k: column(v) for k, v in inputs.items()}).items()}


def pairs(answer: Any) -> list[tuple[str, np.float32]]:
    return [(one.label, np.float32(one.score)) for one in answer]


def best(row: dict[str, Any], names: str, numbers: str) -> list[tuple[str, np.float32]]:
    return [(label.decode(), score) for label, score in zip(row[names], row[numbers], strict=True)]


def test_feature_extraction(client: Any, grpc: GrpcClient) -> None:
    expected = grpc.infer("minilm", {"TEXT": column(TEXTS)})["embedding"]
    assert (client("minilm").feature_extraction(TEXTS) == expected).all()
    single = client("minilm").feature_extraction(TEXTS[0], normalize=True, truncate=True)
    assert (single == expected[:1]).all()


def test_sentence_similarity(client: Any, grpc: GrpcClient) -> None:
    first, *others = grpc.infer("minilm", {"TEXT": column(TEXTS)})["embedding"].astype(np.float64)
    answer = client("minilm").sentence_similarity(TEXTS[0], TEXTS[1:])
    np.testing.assert_allclose(answer, [first @ other for other in others], atol=1e-6)


def test_text_classification(client: Any, grpc: GrpcClient) -> None:
    answer = client("sentiment").text_classification(TEXTS[1])
    row = ask(grpc, "sentiment", TEXT=[TEXTS[1]])
    assert pairs(answer[:1]) == best(row, "label", "score")
    assert sorted(np.float32(one.score) for one in answer) == sorted(row["scores"])
    assert len(client("sentiment").text_classification(TEXTS[1], top_k=2, function_to_apply="softmax")) == 2


def test_token_classification(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "ner", TEXT=[TEXTS[0]])
    answer = client("ner").token_classification(TEXTS[0], aggregation_strategy="simple")
    assert len(answer) == len(row["start"]) > 0
    for place, one in enumerate(answer):
        assert (one.entity_group, one.word) == (row["label"][place].decode(), row["text"][place].decode())
        assert (one.start, one.end, np.float32(one.score)) == tuple(
            row[key][place] for key in ("start", "end", "score")
        )


def test_question_answering(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "qa", QUESTION=["Where?"], CONTEXT=[TEXTS[0]])
    answer = client("qa").question_answering(question="Where?", context=TEXTS[0])
    assert (answer.answer, answer.start, answer.end) == (
        row["answer"][0].decode(),
        row["start"][0],
        row["end"][0],
    )
    assert np.float32(answer.score) == row["score"][0]


def test_fill_mask(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "mask", TEXT=[TEXTS[2]])
    answer = client("mask").fill_mask(TEXTS[2])
    assert [one.token_str for one in answer] == [token.decode() for token in row["tokens"][0]]
    assert [one.token for one in answer] == row["ids"][0].tolist()
    assert [np.float32(one.score) for one in answer] == row["scores"][0].tolist()
    assert all("[MASK]" not in one.sequence for one in answer)


def test_zero_shot_classification(client: Any, grpc: GrpcClient) -> None:
    labels = ["politics", "sport", "food"]
    row = {
        key: rows[0]
        for key, rows in grpc.infer(
            "nli",
            {"TEXT": column(TEXTS[:1]), "LABELS": np.array([[x.encode() for x in labels]], dtype=object)},
        ).items()
    }
    answer = client("nli").zero_shot_classification(TEXTS[0], candidate_labels=labels)
    assert pairs(answer) == best(row, "labels", "scores")


def test_image_classification(client: Any, grpc: GrpcClient, tmp_path: Path) -> None:
    row = ask(grpc, "vit", IMAGE=[IMAGE])
    expected = best(row, "top_labels", "top_scores")
    assert pairs(client("vit").image_classification(IMAGE)) == expected
    assert pairs(client("vit").image_classification(IMAGE, top_k=2)) == expected[:2]
    file = tmp_path / "image.png"
    file.write_bytes(IMAGE)
    assert pairs(client("vit").image_classification(file)) == expected


def test_object_detection(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "yolos", IMAGE=[IMAGE])
    answer = client("yolos").object_detection(IMAGE)
    count = int(row["count"][0])
    assert count > 0
    assert pairs(answer) == best({key: row[key][:count] for key in ("labels", "scores")}, "labels", "scores")
    corners = [(one.box.xmin, one.box.ymin, one.box.xmax, one.box.ymax) for one in answer]
    assert corners == [tuple(map(int, box)) for box in row["boxes"][:count].tolist()]
    few = client("yolos").object_detection(IMAGE, threshold=0.9)
    assert pairs(few) == [pair for pair in pairs(answer) if pair[1] > 0.9]


def test_image_segmentation(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "segformer", IMAGE=[IMAGE])
    label_map = np.asarray(Image.open(io.BytesIO(base64.b64decode(row["label_map"][0]))))
    answer = client("segformer").image_segmentation(IMAGE)
    assert [one.label for one in answer] == [label.decode() for label in row["labels"]]
    for one, number in zip(answer, row["label_ids"], strict=True):
        assert (np.asarray(one.mask) == np.where(label_map == number, 255, 0)).all()


def test_zero_shot_image_classification(client: Any, grpc: GrpcClient) -> None:
    labels = np.array([[b"a cat", b"a dog"]], dtype=object)
    rows = grpc.infer("clip", {"IMAGE": column([IMAGE]), "LABELS": labels})
    answer = client("clip").zero_shot_image_classification(IMAGE, candidate_labels=["a cat", "a dog"])
    assert pairs(answer) == best({key: value[0] for key, value in rows.items()}, "labels", "scores")


def test_speech(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "speech", AUDIO=[SOUND])
    assert client("speech").automatic_speech_recognition(SOUND).text == row["text"][0].decode()


def test_audio_classification(client: Any, grpc: GrpcClient) -> None:
    row = ask(grpc, "sounds", AUDIO=[SOUND])
    expected = best(row, "top_labels", "top_scores")
    assert pairs(client("sounds").audio_classification(SOUND)) == expected
    assert pairs(client("sounds").audio_classification(SOUND, top_k=1)) == expected[:1]


def test_what_an_endpoint_cannot_do_names_those_that_can(client: Any) -> None:
    with pytest.raises(HfHubHTTPError, match="models that can: qa"):
        client("minilm").question_answering(question="Where?", context="Here.")
    with pytest.raises(HfHubHTTPError, match=r"models that can: .*mask"):
        client("minilm").fill_mask("Here [MASK].")
    with pytest.raises(HfHubHTTPError, match="was built with 'simple'"):
        client("ner").token_classification("Anna", aggregation_strategy="max")


def test_the_client_asks_for_the_endpoint_itself(gateway: str) -> None:
    client = InferenceClient(f"{gateway}/models/minilm", provider="hf-inference", token="none")
    assert client.health_check()
    assert client.get_endpoint_info()["model_id"] == "minilm"
