"""huggingface_hub's InferenceClient, with the URL of an endpoint as its model."""

from __future__ import annotations

import asyncio
import base64
import io
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from kserve import Server
from PIL import Image
from texts import MANY, QUERY, TEXTS, png, wav

F32 = np.float32
LABELS = ["travel", "cooking", "sport"]


def client(url: str, name: str) -> InferenceClient:
    return InferenceClient(model=f"{url}/models/{name}", timeout=60)


def test_feature_extraction(url: str, server: Server) -> None:
    answer = client(url, "minilm").feature_extraction(TEXTS[0])
    assert np.array_equal(answer, server.vectors("minilm", TEXTS[:1]))


def test_feature_extraction_of_a_list(url: str, server: Server) -> None:
    answer = client(url, "minilm").feature_extraction(MANY[:100])
    assert np.array_equal(answer, server.vectors("minilm", MANY[:100]))


def test_sentence_similarity(url: str, server: Server) -> None:
    answer = client(url, "minilm").sentence_similarity(QUERY, TEXTS)
    vectors = server.vectors("minilm", [QUERY, *TEXTS]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert answer == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-6)


def test_text_classification(url: str, server: Server) -> None:
    answer = client(url, "sentiment").text_classification(TEXTS[1])
    outputs = server.ask("sentiment", TEXT=TEXTS[1:2])
    assert answer[0].label == outputs["label"][0, 0]
    assert F32(answer[0].score) == outputs["score"][0, 0]
    assert {F32(one.score) for one in answer} == set(outputs["scores"][0])


def test_token_classification(url: str, server: Server) -> None:
    text = "Angela Merkel met Barack Obama in Berlin."
    answer = client(url, "ner").token_classification(text)
    outputs = server.ask("ner", TEXT=[text])
    count = int((outputs["end"][0] > 0).sum())
    assert count
    assert [(one.start, one.end) for one in answer] == [
        (int(outputs["start"][0, place]), int(outputs["end"][0, place])) for place in range(count)
    ]
    assert [F32(one.score) for one in answer] == outputs["score"][0, :count].tolist()
    assert [one.entity_group or one.entity for one in answer] == outputs["label"][0, :count].tolist()


def test_question_answering(url: str, server: Server) -> None:
    context = "The library is in the old town, behind the station."
    answer = client(url, "qa").question_answering(question=QUERY, context=context)
    outputs = server.ask("qa", QUESTION=[QUERY], CONTEXT=[context])
    first = answer[0] if isinstance(answer, list) else answer
    assert (first.answer, first.start, first.end) == (
        outputs["answer"].flat[0],
        outputs["start"].flat[0],
        outputs["end"].flat[0],
    )
    assert F32(first.score) == outputs["score"].flat[0]


def test_fill_mask(url: str, server: Server) -> None:
    text = "The [MASK] jumps over the dog."
    answer = client(url, "mask").fill_mask(text)
    outputs = server.ask("mask", TEXT=[text])
    assert [F32(one.score) for one in answer] == outputs["scores"].ravel().tolist()
    assert [one.token for one in answer] == outputs["ids"].ravel().tolist()
    assert [one.token_str for one in answer] == outputs["tokens"].ravel().tolist()


def test_zero_shot_classification(url: str, server: Server) -> None:
    answer = client(url, "nli").zero_shot_classification(TEXTS[1], LABELS)
    outputs = server.ask("nli", TEXT=TEXTS[1:2], LABELS=[LABELS])
    assert [one.label for one in answer] == outputs["labels"][0].tolist()
    assert [F32(one.score) for one in answer] == outputs["scores"][0].tolist()


def test_image_classification(url: str, server: Server) -> None:
    answer = client(url, "vit").image_classification(png())
    outputs = server.file("vit", "IMAGE", png())
    assert [one.label for one in answer] == outputs["top_labels"][0].tolist()
    assert [F32(one.score) for one in answer] == outputs["top_scores"][0].tolist()


def test_zero_shot_image_classification(url: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(png())
    answer = client(url, "clip").zero_shot_image_classification(
        tmp_path / "image.png", candidate_labels=LABELS
    )
    columns = {"IMAGE": [base64.b64encode(png()).decode()], "LABELS": [LABELS]}
    outputs = server.ask("clip", **columns)
    assert [one.label for one in answer] == outputs["labels"][0].tolist()
    assert [F32(one.score) for one in answer] == outputs["scores"][0].tolist()


def test_image_segmentation(url: str, server: Server) -> None:
    answer = client(url, "segformer").image_segmentation(png())
    outputs = server.file("segformer", "IMAGE", png())
    areas = dict(zip(outputs["labels"][0], outputs["label_ids"][0], strict=True))
    label_map = np.asarray(Image.open(io.BytesIO(base64.b64decode(outputs["label_map"][0, 0]))))
    assert answer
    for one in answer:
        assert np.array_equal(np.asarray(one.mask) > 0, label_map == areas[one.label])


def test_audio_classification(url: str, server: Server) -> None:
    answer = client(url, "sounds").audio_classification(wav())
    outputs = server.file("sounds", "AUDIO", wav())
    assert answer[0].label == outputs["label"][0, 0]
    assert F32(answer[0].score) == outputs["score"][0, 0]


def test_object_detection(url: str, server: Server) -> None:
    answer = client(url, "yolos").object_detection(png())
    outputs = server.file("yolos", "IMAGE", png())
    count = int(outputs["count"].flat[0])
    assert count
    assert [one.label for one in answer] == outputs["labels"][0, :count].tolist()
    assert [F32(one.score) for one in answer] == outputs["scores"][0, :count].tolist()
    corners = [[one.box.xmin, one.box.ymin, one.box.xmax, one.box.ymax] for one in answer]
    assert np.allclose(corners, outputs["boxes"][0, :count], rtol=0, atol=1)  # the schema has whole pixels


def test_automatic_speech_recognition(url: str, server: Server) -> None:
    answer = client(url, "speech").automatic_speech_recognition(wav())
    assert answer.text == server.file("speech", "AUDIO", wav())["text"][0, 0] != ""


async def _similar(url: str) -> list[float]:
    async with AsyncInferenceClient(model=f"{url}/models/minilm") as asynchronous:
        return await asynchronous.sentence_similarity(QUERY, TEXTS)


def test_the_asynchronous_client(url: str) -> None:
    assert asyncio.run(_similar(url)) == client(url, "minilm").sentence_similarity(QUERY, TEXTS)


def test_an_endpoint_of_another_task_is_refused(url: str) -> None:
    with pytest.raises(HfHubHTTPError) as refused:
        client(url, "minilm").question_answering(question=QUERY, context=TEXTS[1])
    assert 400 <= refused.value.response.status_code < 500
    assert "qa" in str(refused.value)


def test_what_the_endpoint_was_not_built_for_is_refused(url: str) -> None:
    with pytest.raises(HfHubHTTPError) as refused:
        client(url, "minilm").feature_extraction(QUERY, normalize=False)
    assert refused.value.response.status_code == 422
    assert "normalize" in str(refused.value)
