"""What InferenceClient posts, and the shapes that it parses."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_images
import transformers
from PIL import Image
from tokenizers import Tokenizer

from tests.support.fake_endpoints import Fake, floats, numbers, served
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.run.gateway import mapping, recognition, routes
from triton_repo_builder.run.gateway.masks import masks
from triton_repo_builder.run.gateway.refusal import Refusal
from triton_repo_builder.run.gateway.routes.huggingface_texts import Sequences
from triton_repo_builder.run.gateway.text_rules import TextRules
from triton_repo_builder.runtime.answers.semantic_segmentation import Png

MODELS = Path(__file__).resolve().parents[4] / "data" / "models"
PNG = b"\x89PNG of a cat"
SOUND = b"RIFF of a dog"
LABELS = ["bad", "fair", "good", "great"]


def texts(*rows: Any) -> Any:
    return np.array(rows, dtype=object)


def embedding(columns: Any) -> dict[str, Any]:
    [rows] = columns.values()
    return {"embedding": np.stack([numbers(row) for row in rows])}


def classes(columns: Any) -> dict[str, Any]:
    scores = np.stack([numbers(text) for text in columns["TEXT"]])
    return {"scores": scores, "score": scores[:, :1], "label": texts(*[[b"bad"]] * len(scores))}


def entities(columns: Any) -> dict[str, Any]:
    """An entity for each capital letter."""
    rows = [
        [place for place, letter in enumerate(text.decode()) if letter.isupper()] for text in columns["TEXT"]
    ]
    most = max(map(len, rows))
    starts = np.array([row + [0] * (most - len(row)) for row in rows], np.int32).reshape(len(rows), most)
    full = [[bool(place < len(row)) for place in range(most)] for row in rows]
    label = np.array(
        [[b"LOC" if at % 2 else b"PER" if here else b"" for at, here in enumerate(row)] for row in full]
    )
    text = [[columns["TEXT"][n][s : s + 1] for s in row] for n, row in enumerate(starts.tolist())]
    return {
        "start": starts,
        "end": starts + 1,
        "label": np.where(full, label, b"").astype(object).reshape(len(rows), most),
        "score": starts.astype(np.float32) / 7,
        "text": np.array(text, dtype=object).reshape(len(rows), most),
    }


def span(columns: Any) -> dict[str, Any]:
    rows = list(zip(columns["QUESTION"], columns["CONTEXT"], strict=True))
    return {
        "answer": texts(*[[context[:2]] for _, context in rows]),
        "start": np.zeros((len(rows), 1), np.int32),
        "end": np.full((len(rows), 1), 2, np.int32),
        "score": np.stack([numbers(*row, count=1) for row in rows]),
    }


def shots(columns: Any) -> dict[str, Any]:
    rows = next(value for name, value in columns.items() if name != "LABELS")
    labels = np.array(columns["LABELS"], dtype=object)
    return {"labels": labels, "scores": np.stack([numbers(row, count=labels.shape[1]) for row in rows])}


def filled(columns: Any) -> dict[str, Any]:
    """The same two tokens for each mask."""
    counts = [text.count(b"[MASK]") for text in columns["TEXT"]]
    shape = (len(counts), max(counts), 2)
    on = np.arange(shape[1])[None, :, None] < np.array(counts)[:, None, None]
    ids = np.array([tiny.WORDS.index("fox"), tiny.WORDS.index("the")], np.int32)
    return {
        "ids": np.where(on, ids, 0).astype(np.int32),
        "scores": np.where(on, np.array([0.7, 0.1], np.float32), 0).astype(np.float32),
        "tokens": np.where(on, np.array([b"fox", b"the"], dtype=object), b""),
    }


def best(columns: Any) -> dict[str, Any]:
    [rows] = columns.values()
    scores = np.stack([-np.sort(-numbers(row)) for row in rows])
    return {"top_labels": texts(*[[label.encode() for label in LABELS]] * len(rows)), "top_scores": scores}


def objects(columns: Any) -> dict[str, Any]:
    count = len(columns["IMAGE"])
    return {
        "boxes": np.array([[[1.9, -2.9, 3.5, 4.5]] * 3] * count, np.float32),
        "labels": texts(*[[b"cat", b"dog", b""]] * count),
        "scores": np.array([[0.9, 0.6, 0]] * count, np.float32),
        "count": np.full((count, 1), 2, np.int32),
    }


MAP = np.array([[0, 2, 2], [2, 2, 0]], np.uint8)


def areas(columns: Any) -> dict[str, Any]:
    count = len(columns["IMAGE"])
    file = Png(*MAP.shape, 3)
    file.add(MAP)
    return {
        "label_map": texts(*[[base64.b64encode(file.end())]] * count),
        "labels": texts(*[[b"sky", b"sea", b""]] * count),
        "label_ids": np.array([[2, 0, 0]] * count, np.int32),
    }


def heard(columns: Any) -> dict[str, Any]:
    said = [sound.decode(errors="replace").upper().encode() for sound in columns["AUDIO"]]
    return {"text": texts(*[[text] for text in said])}


R = recognition
BEST = ("top_labels", "top_scores")
ANSWERS = {
    "vectors": (R.EMBEDDING, embedding, {}),
    "classes": (R.CLASSIFICATION, classes, {"labels": LABELS, "activation": "softmax"}),
    "entities": (R.ENTITIES, entities, {"aggregation": "simple"}),
    "answers": (R.QUESTION_ANSWERING, span, {"handle_impossible_answer": False, "longest_answer": 15}),
    "shots": (R.ZERO_SHOT, shots, {"hypothesis_template": "It is {}.", "multi_label": False}),
    "masks": (R.FILL_MASK, filled, {"mask": "[MASK]", "top_k": 2}),
    "images": (R.IMAGE_CLASSIFICATION, best, {"activation": "softmax", "labels": [*LABELS, "more"]}),
    "image_vectors": (R.IMAGE_EMBEDDING, embedding, {}),
    "objects": (R.OBJECT_DETECTION, objects, {"score_threshold": 0.5}),
    "areas": (R.SEGMENTATION, areas, {}),
    "image_shots": (R.ZERO_SHOT_IMAGE, shots, {"hypothesis_template": "A photo of {}."}),
    "sounds": (R.AUDIO_CLASSIFICATION, best, {"activation": "softmax", "labels": LABELS}),
    "speech": (R.SPEECH, heard, {}),
}


@pytest.fixture(scope="module")
def fake() -> Fake:
    more = {"images": BEST, "sounds": BEST}
    endpoints = [served(name, task, facts, more.get(name, ())) for name, (task, _, facts) in ANSWERS.items()]
    return Fake(endpoints, {name: answer for name, (_, answer, _) in ANSWERS.items()})


def plain(answer: Any, key: str = "label") -> list[tuple[str, Any]]:
    return [(one[key], np.float32(one["score"])) for one in answer]


def test_embeddings_by_url_by_model_and_by_task(fake: Fake) -> None:
    expected = [numbers(b"a"), numbers(b"b")]
    task = "pipeline/feature-extraction"
    for path in ("models/vectors", f"models/vectors/{task}", task, f"{task}/vectors", "models/vectors/embed"):
        assert (floats(fake.json(f"/{path}", {"inputs": ["a", "b"]})) == expected).all()
    body = {"inputs": ["a", "b"], "parameters": {"truncate": True}}
    assert (floats(fake.json("/pipeline/feature-extraction", body)) == expected).all()
    assert (floats(fake.only("vectors").json("/", {"inputs": ["a", "b"]})) == expected).all()
    assert (floats(fake.json("/", {"inputs": ["a", "b"], "model": "vectors"})) == expected).all()


def test_the_body_says_which_task_it_is_for(fake: Fake) -> None:
    similar = {"inputs": {"source_sentence": "a", "sentences": ["a", "b"]}, "parameters": {}}
    for path in ("/", "/models/vectors", "/models/vectors/pipeline/sentence-similarity", "/similarity"):
        assert fake.json(path, similar) == fake.json("/similarity", similar)
    question = {"inputs": {"question": "q", "context": "some text"}}
    for path in ("/", "/models/answers", "/pipeline/question-answering"):
        answer = fake.json(path, question)
        score = numbers(b"q", b"some text", count=1)[0]
        assert {**answer, "score": np.float32(answer["score"])} == {
            "answer": "so",
            "start": 0,
            "end": 2,
            "score": score,
        }
    assert fake.json("/", {"inputs": [question["inputs"]]})[0] == fake.json("/", question)


def test_a_file_is_for_the_only_endpoint_of_its_kind(fake: Fake) -> None:
    few = Fake([one for one in fake.endpoints if one.name in ("objects", "speech", "vectors")], fake.answers)
    assert few.json("/", SOUND, "audio/wav") == {"text": "RIFF OF A DOG"}
    assert [one["label"] for one in few.json("/", PNG, "image/png")] == ["cat", "dog"]
    assert few.ask("/", PNG, "").status == 422
    assert few.json("/models/speech", SOUND, "") == {"text": "RIFF OF A DOG"}
    refused = fake.ask("/", PNG, "image/png")
    assert (
        refused.status == 422
        and "images" in refused.json["error"]
        and "/models/NAME" in refused.json["error"]
    )


def test_labels_of_texts_are_lists_of_lists(fake: Fake) -> None:
    expected = sorted(zip(LABELS, numbers(b"a"), strict=True), key=lambda pair: -pair[1])
    [answer] = fake.json("/models/classes", {"inputs": "a"})
    assert plain(answer) == expected
    two = {"inputs": ["a", "b"], "parameters": {"top_k": 2, "function_to_apply": "softmax"}}
    first, second = fake.json("/pipeline/text-classification", two)
    assert plain(first) == expected[:2] and len(second) == 2


def test_entities(fake: Fake) -> None:
    answer = fake.json("/models/entities", {"inputs": "An Ox"})
    assert plain(answer, "entity_group") == [("PER", 0), ("LOC", np.float32(3) / np.float32(7))]
    assert [(one["word"], one["start"], one["end"]) for one in answer] == [("A", 0, 1), ("O", 3, 4)]
    body = {"inputs": ["An Ox", "nothing"], "parameters": {"ignore_labels": ["O", "PER"]}}
    rows = fake.json("/pipeline/token-classification", body)
    assert [[one["entity_group"] for one in row] for row in rows] == [["LOC"], []]
    none = fake.only("entities", facts={"aggregation": "none"})
    body = {"inputs": "An Ox", "parameters": {"aggregation_strategy": "none"}}
    assert [one["entity"] for one in none.json("/", body)] == ["PER", "LOC"]


def test_labels_that_come_with_the_request(fake: Fake) -> None:
    scores = numbers(b"a", count=2)
    stated = {"candidate_labels": ["x", "y"], "multi_label": False, "hypothesis_template": "It is {}."}
    assert plain(fake.json("/models/shots", {"inputs": "a", "parameters": stated})) == list(
        zip("xy", scores, strict=True)
    )
    rows = fake.json("/models/shots", {"inputs": ["a"] * 7, "parameters": {"candidate_labels": "x, y"}})
    assert len(rows) == 7 and plain(rows[6]) == list(zip("xy", scores, strict=True))
    image = {"inputs": base64.b64encode(PNG).decode(), "parameters": {"candidate_labels": ["x", "y"]}}
    assert plain(fake.json("/models/image_shots", image)) == list(
        zip("xy", numbers(PNG, count=2), strict=True)
    )


def test_masks_of_texts(fake: Fake, tmp_path: Any) -> None:
    [first, second] = fake.json("/models/masks", {"inputs": "A [MASK] ran"})
    assert (first["token_str"], first["sequence"], np.float32(first["score"])) == (
        "fox",
        "A fox ran",
        np.float32(0.7),
    )
    assert second["token"] == tiny.WORDS.index("the")
    body = {"inputs": ["[MASK] [MASK]", "x [MASK]"], "parameters": {"top_k": 1}}
    two, one = fake.json("/pipeline/fill-mask", body)
    assert [[each["sequence"] for each in mask] for mask in two] == [["fox [MASK]"], ["[MASK] fox"]]
    assert [each["sequence"] for each in one] == ["x fox"]
    file = tiny.tokenizer(tmp_path / "tokenizer.json", extra=["[MASK]"])
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(file))
    counted = fake.only("masks", rules=TextRules(file=file))
    [first, _] = counted.json("/", {"inputs": "The  [MASK] x"})
    assert first["sequence"] == "the fox x"


@pytest.mark.parametrize("labels", [3, 300])
def test_maps_of_few_and_of_many_labels(labels: int) -> None:
    numbers = np.array([[0, labels - 1, 1]], np.uint16)
    file = Png(*numbers.shape, labels)
    file.add(numbers)
    for id, mask in zip((labels - 1, 1), masks(base64.b64encode(file.end()), [labels - 1, 1]), strict=True):
        image = np.asarray(Image.open(io.BytesIO(base64.b64decode(mask))))
        assert (image == np.where(numbers == id, 255, 0)).all()


@pytest.mark.parametrize("file", [b"", b"no base64", base64.b64encode(b"\x89PNG\r\n\x1a\n"), PNG])
def test_a_map_that_is_damaged_is_an_error(file: bytes) -> None:
    with pytest.raises(Refusal):
        masks(file, [1])


def test_a_route_of_the_map_may_name_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[routes]\n"/pipeline/feature-extraction" = "others"\n')
    paths = frozenset(route.path for route in routes.ALL)
    stated = mapping.read(file, paths).routing.routes
    one = Fake([served(name, R.EMBEDDING) for name in ("vectors", "others")], {"others": embedding}, stated)
    assert len(one.json("/pipeline/feature-extraction", {"inputs": "a"})) == 1
    file.write_text('[routes]\n"/pipelines" = "others"\n')
    with pytest.raises(TrbError):
        mapping.read(file, paths)


@pytest.mark.parametrize(
    ("name", "mask"), [("mlm", "[MASK]"), ("mlm_roberta", "<mask>"), ("mlm_unigram", "<mask>")]
)
def test_filled_masks_are_written_as_transformers_does(name: str, mask: str) -> None:
    folder = MODELS / "tasks" / name
    texts = json.loads((folder / "reference.json").read_text())["texts"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    one = served(name, R.FILL_MASK, {"mask": mask}, rules=TextRules(file=folder / "tokenizer.json"))
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        places = [place for place, id in enumerate(ids) if id == tokenizer.mask_token_id]
        single = len(places) == 1
        sequences = Sequences(one, text, single)
        for number, place in enumerate(places):
            filled = [*ids[:place], 300, *ids[place + 1 :]]
            expected = tokenizer.decode(filled, skip_special_tokens=single)
            assert sequences.filled(number, 300, "unused") == expected


def test_images_and_sounds_have_labels(fake: Fake) -> None:
    expected = list(zip(LABELS, -np.sort(-numbers(PNG)), strict=True))
    assert plain(fake.json("/models/images", PNG, "image/png")) == expected
    coded = {
        "inputs": base64.b64encode(PNG).decode(),
        "parameters": {"top_k": 2, "function_to_apply": "softmax"},
    }
    assert plain(fake.json("/models/images", coded)) == expected[:2]
    linked = {**coded, "inputs": f"data:image/png;base64,{coded['inputs']}", "parameters": {}}
    assert plain(fake.json("/pipeline/image-classification", linked)) == expected
    assert len(fake.json("/models/sounds", {**coded, "parameters": {"top_k": 9}})) == 4
    assert len(fake.json("/models/images", {"inputs": [coded["inputs"]] * 5})) == 5
    assert (floats(fake.json("/models/image_vectors", PNG, "image/png")) == [numbers(PNG)]).all()


def test_objects_have_whole_pixels(fake: Fake) -> None:
    first, _ = fake.json("/models/objects", PNG, "image/jpeg")
    assert first == {
        "score": pytest.approx(0.9),
        "label": "cat",
        "box": {"xmin": 1, "ymin": -2, "xmax": 3, "ymax": 4},
    }
    coded = {"inputs": base64.b64encode(PNG).decode(), "parameters": {"threshold": 0.7}}
    assert [one["label"] for one in fake.json("/models/objects", coded)] == ["cat"]


def test_areas_have_masks(fake: Fake) -> None:
    sky, sea = fake.json("/models/areas", PNG, "image/png")
    assert (sky["label"], sea["label"], sky["score"]) == ("sky", "sea", None)
    for one, number in ((sky, 2), (sea, 0)):
        mask = np.asarray(Image.open(io.BytesIO(base64.b64decode(one["mask"]))))
        assert (mask == np.where(number == MAP, 255, 0)).all()
    # Another's PNG file is refused, not misread.
    strange = {**areas({"IMAGE": [PNG]}), "label_map": texts([base64.b64encode(tiny_images.file())])}
    other = Fake(fake.endpoints, {"areas": lambda _: strange})
    assert other.ask("/models/areas", PNG, "image/png").status == 424


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/models/classes", {"inputs": "a", "parameters": {"function_to_apply": "none"}}, 422, "'softmax'"),
        (
            "/models/classes",
            {"inputs": "a", "parameters": {"temperature": 1}},
            422,
            "function_to_apply, top_k",
        ),
        ("/models/classes", {"inputs": "a", "parameters": []}, 200, ""),
        ("/models/classes", {"inputs": "a", "parameters": [1]}, 422, "parameters"),
        ("/models/classes", {"inputs": "a", "parameters": {"top_k": 0}}, 422, "top_k"),
        ("/models/entities", {"inputs": "a", "parameters": {"aggregation_strategy": "max"}}, 422, "'simple'"),
        ("/models/entities", {"inputs": "a", "parameters": {"ignore_labels": []}}, 422, "ignore_labels"),
        ("/models/answers", {"inputs": {"question": "a"}}, 422, "context"),
        (
            "/models/answers",
            {"inputs": {"question": "a", "context": "b"}, "parameters": {"top_k": 2}},
            422,
            "gives 1",
        ),
        ("/models/answers", {"inputs": "a"}, 422, "question"),
        ("/models/shots", {"inputs": "a"}, 422, "candidate_labels"),
        ("/models/shots", {"inputs": "a", "parameters": {"candidate_labels": ["x", ""]}}, 422, "empty"),
        (
            "/models/shots",
            {"inputs": "a", "parameters": {"candidate_labels": "x", "multi_label": True}},
            422,
            "False",
        ),
        ("/models/masks", {"inputs": "[MASK]", "parameters": {"top_k": 3}}, 422, "--top-k 3"),
        ("/models/masks", {"inputs": "[MASK]", "parameters": {"targets": ["x"]}}, 422, "targets"),
        ("/models/images", {"inputs": "QQ==", "parameters": {"top_k": 5}}, 422, "--top-k 5"),
        ("/models/images", {"inputs": "no base64!"}, 422, "base64"),
        ("/models/images", {"inputs": "http://127.0.0.1/x.png"}, 422, "fetches none"),
        ("/models/images", {"inputs": 5}, 422, "base64"),
        ("/models/images", {"inputs": []}, 400, "empty"),
        ("/models/objects", {"inputs": "QQ==", "parameters": {"threshold": 0.1}}, 422, "is 0.5"),
        ("/models/areas", {"inputs": "QQ==", "parameters": {"subtask": "panoptic"}}, 422, "'semantic'"),
        ("/models/speech", {"inputs": "QQ==", "parameters": {"return_timestamps": True}}, 422, "False"),
        ("/models/vectors", {"inputs": "[MASK]", "parameters": {}}, 424, "masks"),
        (
            "/pipeline/feature-extraction",
            {"inputs": "a", "parameters": {"normalise": True}},
            422,
            "normalize",
        ),
        ("/models/vectors", {"inputs": {"question": "a", "context": "b"}}, 424, "answers"),
        ("/models/vectors/pipeline/fill-mask", {"inputs": "a"}, 424, "masks"),
        ("/models/vectors", {"inputs": {"other": 1}}, 422, "source_sentence"),
        ("/models/none", {"inputs": "a"}, 404, "none"),
        (
            "/models/vectors/v1/embeddings",
            {"input": "a"},
            404,
            "no route /v1/embeddings below /models/vectors;",
        ),
        ("/models/vectors/pipeline/fill-mask/x", {"inputs": "a"}, 404, "no task 'fill-mask/x'"),
        ("/pipeline/translation", {"inputs": "a"}, 404, "fill-mask"),
        ("/pipeline/feature-extraction", b"text", 400, "JSON"),
        ("/models/vectors/embed", b"text", 400, "JSON"),
        ("/", {"inputs": "a"}, 422, "/models/NAME"),
    ],
)
def test_refusals(fake: Fake, path: str, body: Any, status: int, words: str) -> None:
    answer = fake.ask(path, body)
    assert answer.status == status, answer.body
    if status != 200:
        assert words in answer.json["error"]


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"function_to_apply": "softmax"}, "classes (text-classification)"),
        ({"top_k": 2}, "classes (text-classification), masks (fill-mask)"),
        ({}, "classes (text-classification), entities (token-classification), masks (fill-mask)"),
    ],
)
def test_an_embedder_names_the_endpoints_of_the_task_that_is_meant(
    fake: Fake, parameters: Any, names: str
) -> None:
    answer = fake.ask("/models/vectors", {"inputs": "a", "parameters": parameters})
    assert answer.json["error"].endswith(f"models that can: {names}")
