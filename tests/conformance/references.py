"""What transformers answers in PyTorch, one request at a time. Runs in .venv-export.

Every function takes the model, its tokenizer (or image processor), the entries and the task's settings, and
gives one JSON value per entry. Where transformers itself refuses an entry, that is ``{"error": why}``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import torch
from torch.nn.functional import normalize

from conformance import sounds

Answers = list[Any]


def _each(entries: Sequence[Any], answer: Callable[[Any], Any]) -> Answers:
    """One answer per entry; a refusal is an answer too."""
    answers = []
    for entry in entries:
        try:
            with torch.no_grad():
                answers.append(answer(entry))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    return answers


def _encode(tokenizer: Any, *texts: str | list[str]) -> Any:
    batch = tokenizer(*texts, truncation=True, return_tensors="pt")
    # transformers makes an empty list of floats of a text without tokens.
    return {name: values.long() for name, values in batch.items()}


def tokens(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """Ids and types, as the model would get them."""

    def answer(entry: Any) -> Any:
        row = tokenizer(entry["TEXT"], truncation=True, return_token_type_ids=True)
        return {"input_ids": row["input_ids"], "token_type_ids": row["token_type_ids"]}

    return _each(entries, answer)


def _pool(hidden: Any, mask: Any, pooling: str) -> Any:
    """[1, tokens, width] → [width]; sentence-transformers' definitions."""
    weights = mask[0].unsqueeze(-1).float()
    rows = hidden[0]
    if pooling == "cls":
        return rows[0]
    if pooling == "lasttoken":
        return rows[int(mask[0].sum()) - 1]
    if pooling == "max":
        return rows.masked_fill(weights == 0, -1e9).max(dim=0).values
    if pooling == "weightedmean":
        weights = weights * torch.arange(1, len(rows) + 1).unsqueeze(-1)
    total, count = (rows * weights).sum(dim=0), weights.sum(dim=0)
    return total / count.sqrt() if pooling == "mean_sqrt_len" else total / count


def embedding(
    model: Any, tokenizer: Any, entries: Sequence[Any], *, pooling: str, normalize: bool
) -> Answers:
    """Token vectors, pooled, and of length 1 if asked for."""
    scaled = torch.nn.functional.normalize if normalize else lambda vector, dim: vector

    def answer(entry: Any) -> Any:
        batch = _encode(tokenizer, entry["TEXT"])
        hidden = model(**batch).last_hidden_state
        return scaled(_pool(hidden, batch["attention_mask"], pooling), dim=0).tolist()

    return _each(entries, answer)


def text_embeds(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """The projected text vector of CLIP, or the pooled one; SigLIP's texts always have 64 tokens."""
    whole = model.config.model_type.startswith("siglip")

    def answer(entry: Any) -> Any:
        if whole:
            ids = tokenizer(entry["TEXT"], padding="max_length", truncation=True, max_length=64)["input_ids"]
            found = model(input_ids=torch.tensor([ids]))
        else:
            found = model(**_encode(tokenizer, entry["TEXT"]))
        name = next(name for name in ("text_embeds", "dense_vecs", "pooler_output") if name in found)
        return found[name][0].tolist()

    return _each(entries, answer)


def scores(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """The text-classification pipeline: every label with its score, the best first."""
    from transformers import pipeline

    ask = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")

    def answer(entry: Any) -> Any:
        text = entry["TEXT"]
        asked = {"text": text, "text_pair": entry["TEXT_PAIR"]} if "TEXT_PAIR" in entry else text
        ranked = ask(asked, top_k=None, truncation=True)
        best = ranked[0]
        by_id = {row["label"]: row["score"] for row in ranked}
        names = [by_id[model.config.id2label[number]] for number in range(len(by_id))]
        return {"label": best["label"], "score": best["score"], "scores": names}

    return _each(entries, answer)


def rerank(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """A cross-encoder's score of a pair: the sigmoid of its only logit, as sentence-transformers has it."""

    def answer(entry: Any) -> Any:
        # In lists, as sentence-transformers asks: alone, transformers takes an empty document for none.
        batch = _encode(tokenizer, [entry["QUERY"]], [entry["DOCUMENT"]])
        return float(torch.sigmoid(model(**batch).logits[0, 0]))

    return _each(entries, answer)


def entities(model: Any, tokenizer: Any, entries: Sequence[Any], **settings: Any) -> Answers:
    """The token-classification pipeline."""
    from transformers import pipeline

    ask = pipeline("token-classification", model=model, tokenizer=tokenizer, device="cpu", **settings)

    def answer(entry: Any) -> Any:
        return [
            {
                "label": found.get("entity_group", found.get("entity")),
                "score": float(found["score"]),
                "start": int(found["start"]),
                "end": int(found["end"]),
            }
            for found in ask(entry["TEXT"])
        ]

    return _each(entries, answer)


def answers(model: Any, tokenizer: Any, entries: Sequence[Any], **settings: Any) -> Answers:
    """The question-answering pipeline."""
    from transformers import pipeline

    ask = pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")

    def answer(entry: Any) -> Any:
        found = ask(question=entry["QUESTION"], context=entry["CONTEXT"], **settings)
        return {
            "answer": found["answer"],
            "start": int(found["start"]),
            "end": int(found["end"]),
            "score": float(found["score"]),
        }

    return _each(entries, answer)


def masks(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """The fill-mask pipeline: for each mask the five best tokens."""
    from transformers import pipeline

    ask = pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu", top_k=5)

    def answer(entry: Any) -> Any:
        found = ask(entry["TEXT"], tokenizer_kwargs={"truncation": True})
        rows = found if isinstance(found[0], list) else [found]
        return [
            [{"token": row["token"], "text": row["token_str"], "score": row["score"]} for row in best]
            for best in rows
        ]

    return _each(entries, answer)


def topics(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """The zero-shot-classification pipeline."""
    from transformers import pipeline

    ask = pipeline("zero-shot-classification", model=model, tokenizer=tokenizer, device="cpu")

    def answer(entry: Any) -> Any:
        found = ask(entry["TEXT"], list(entry["LABELS"]))
        return {"labels": found["labels"], "scores": found["scores"]}

    return _each(entries, answer)


def sparse(model: Any, tokenizer: Any, entries: Sequence[Any]) -> Answers:
    """SPLADE: for each word of the vocabulary the largest log(1 + relu(logit)) over the tokens."""

    def answer(entry: Any) -> Any:
        batch = _encode(tokenizer, entry["TEXT"])
        weights = torch.log1p(torch.relu(model(**batch).logits)) * batch["attention_mask"].unsqueeze(-1)
        found = weights.max(dim=1).values[0]
        kept = found.nonzero()[:, 0]
        return {"indices": kept.tolist(), "values": found[kept].tolist()}

    return _each(entries, answer)


def late(model: Any, tokenizer: Any, entries: Sequence[Any], *, max_length: int) -> Answers:
    """ColBERT's documents, without markers: every token's vector, projected and of length 1."""

    def answer(entry: Any) -> Any:
        batch = tokenizer(entry["TEXT"], truncation=True, max_length=max_length, return_tensors="pt")
        return normalize(model(**batch)[0][0], dim=-1).tolist()

    return _each(entries, answer)


def _image(entry: Any) -> Any:
    from PIL import Image

    return Image.open(BytesIO(entry["IMAGE"]))


def image_scores(model: Any, processor: Any, entries: Sequence[Any]) -> Answers:
    """The image-classification pipeline: the five best labels."""
    from transformers import pipeline

    ask = pipeline("image-classification", model=model, image_processor=processor, device="cpu")

    def answer(entry: Any) -> Any:
        found = ask(_image(entry), top_k=5)
        return {"labels": [row["label"] for row in found], "scores": [row["score"] for row in found]}

    return _each(entries, answer)


def sound_scores(model: Any, processor: Any, entries: Sequence[Any]) -> Answers:
    """The audio-classification pipeline: the five best labels."""
    from transformers import pipeline

    ask = pipeline("audio-classification", model=model, feature_extractor=processor, device="cpu")

    def answer(entry: Any) -> Any:
        found = ask(sounds.samples(entry["AUDIO"]), top_k=5)
        return {"labels": [row["label"] for row in found], "scores": [row["score"] for row in found]}

    return _each(entries, answer)


def speech(model: Any, companions: Any, entries: Sequence[Any]) -> Answers:
    """The automatic-speech-recognition pipeline."""
    from transformers import pipeline

    made = {"tokenizer": companions.tokenizer, "feature_extractor": companions.processor}
    ask = pipeline("automatic-speech-recognition", model=model, device="cpu", **made)
    return _each(entries, lambda entry: ask(sounds.samples(entry["AUDIO"]))["text"])


def pictures(model: Any, companions: Any, entries: Sequence[Any]) -> Answers:
    """The zero-shot-image-classification pipeline."""
    from transformers import pipeline

    made = {"tokenizer": companions.tokenizer, "image_processor": companions.processor}
    ask = pipeline("zero-shot-image-classification", model=model, device="cpu", **made)

    def answer(entry: Any) -> Any:
        found = ask(_image(entry), candidate_labels=list(entry["LABELS"]))
        return {key: [row[key[:-1]] for row in found] for key in ("labels", "scores")}

    return _each(entries, answer)


def objects(model: Any, processor: Any, entries: Sequence[Any], threshold: float) -> Answers:
    """The object-detection pipeline's post-processing, whose own boxes are whole numbers."""
    from transformers.image_utils import load_image

    def answer(entry: Any) -> Any:
        image = load_image(_image(entry))
        found = model(pixel_values=_pixels(processor, entry))
        size = torch.tensor([[image.height, image.width]])
        (rows,) = processor.post_process_object_detection(found, threshold=threshold, target_sizes=size)
        return {
            "labels": [model.config.id2label[number] for number in rows["labels"].tolist()],
            "scores": rows["scores"].tolist(),
            "boxes": rows["boxes"].tolist(),
            "size": max(image.size),
        }

    return _each(entries, answer)


def areas(model: Any, processor: Any, entries: Sequence[Any]) -> Answers:
    """The image-segmentation pipeline: a mask of each label that is there."""
    from transformers import pipeline

    ask = pipeline("image-segmentation", model=model, image_processor=processor, device="cpu")

    def answer(entry: Any) -> Any:
        found = ask(_image(entry), subtask="semantic")
        masks = {row["label"]: row["mask"] for row in found}
        rows = {label: base64.b64encode(mask.tobytes()).decode() for label, mask in masks.items()}
        return {"masks": rows, "size": found[0]["mask"].size}

    return _each(entries, answer)


def _pixels(processor: Any, entry: Any) -> Any:
    from transformers.image_utils import load_image

    return processor(load_image(_image(entry)), return_tensors="pt")["pixel_values"]


def image_embedding(model: Any, processor: Any, entries: Sequence[Any], pooling: str = "") -> Answers:
    """The projected vector of CLIP, else the pooled one, or that of the first token."""

    def answer(entry: Any) -> Any:
        found = model(pixel_values=_pixels(processor, entry))
        if pooling == "cls":
            return found.last_hidden_state[0, 0].tolist()
        vector = found.image_embeds if "image_embeds" in found else found.pooler_output
        return vector.flatten().tolist()

    return _each(entries, answer)


def image_logits(model: Any, processor: Any, entries: Sequence[Any]) -> Answers:
    """What the processor makes of the image, and the logits of that."""

    def answer(entry: Any) -> Any:
        pixels = _pixels(processor, entry)
        return {"pixel_values": pixels[0].tolist(), "logits": model(pixel_values=pixels).logits[0].tolist()}

    return _each(entries, answer)
