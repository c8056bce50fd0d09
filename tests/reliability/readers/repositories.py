"""Repositories: config.pbtxt, manifest.json, journals, golden cases, references."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.reliability import mutate
from tests.reliability.readers.reader import (
    REPOSITORY,
    Reader,
    contents,
    write,
    write_named,
)
from tests.support.bad_repositories import FOLDER, files_named
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.repository.pbtxt import PbtxtError


def _named_seeds(root: Path, *patterns: str, most: int = 60_000) -> list[bytes]:
    files = sorted(
        {file for pattern in patterns for file in root.rglob(pattern) if file.stat().st_size < most}
    )
    contents = {file.relative_to(root).as_posix().encode() + b"\n" + file.read_bytes() for file in files}
    return sorted(contents)


def _pbtxt_seeds() -> list[bytes]:
    own = contents("config.pbtxt", root=REPOSITORY)()
    bad = {content for content in files_named("config.pbtxt", FOLDER) if len(content) < 60_000}
    return own + sorted(bad, key=lambda data: (len(data), data))[:40]


PBTXT = (
    *("name", "backend", "platform", "max_batch_size", "input", "output", "dims", "data_type", "TYPE_FP32"),
    *(
        "instance_group",
        "count",
        "kind",
        "KIND_CPU",
        "dynamic_batching",
        "preferred_batch_size",
        "version_policy",
    ),
    *("specific", "versions", "latest", "num_versions", "all", "ensemble_scheduling", "step", "model_name"),
    *(
        "model_version",
        "input_map",
        "output_map",
        "key",
        "value",
        "parameters",
        "string_value",
        "model_warmup",
    ),
    *(
        "sequence_batching",
        "oldest",
        "batch_input",
        "reshape",
        "shape",
        "label_filename",
        "optimization",
        "<",
        ">",
    ),
    *(
        "response_cache",
        "enable",
        "true",
        "inputs",
        "zero_data",
        "random_data",
        "input_data_file",
        "#",
        "\\",
        "'",
    ),
    *(
        "priority_levels",
        "gpus",
        "profile",
        "default_model_filename",
        "direct",
        "control_input",
        "nan",
        "inf",
    ),
)


def _pbtxt(case: Path) -> None:
    from triton_repo_builder.repository import pbtxt
    from triton_repo_builder.repository.config import ModelConfig
    from triton_repo_builder.repository.interface import Endpoint
    from triton_repo_builder.repository.pbtxt_document import Document, tokens
    from triton_repo_builder.repository.provenance import Facts

    text = (case / "config.pbtxt").read_bytes().decode("utf-8", "replace")
    pbtxt.without_policy(text)
    pbtxt.pin_steps(text, 3)
    pbtxt.serve_versions(text, (1, 2))
    assert "".join(token.text for token in tokens(text)) == text
    fields = Document(text).fields
    assert all(text.startswith(field.name, field.statement[0]) for field in fields.all())
    config = ModelConfig(pbtxt.parse(text))
    list(pbtxt.elements(config.raw))
    Endpoint.of_config("x", config)
    Facts.of_config("x", config)
    config.select((1, 2, 3))
    _ = (config.steps, config.instance_groups, config.runs_on, config.decoupled, config.optional_inputs)


def _repository_base(case: Path) -> None:
    shutil.copytree(
        REPOSITORY, case / "repo", copy_function=os.link if case.stat().st_dev == 0 else shutil.copy
    )


def _check(case: Path) -> None:
    from triton_repo_builder import repository
    from triton_repo_builder.base import releases
    from triton_repo_builder.check import check

    read = repository.read(case / "repo")
    _ = [read.needing(model.name) for model in read.models], read.endpoints
    check(read, releases.default())


def _manifest_seeds() -> list[bytes]:
    from triton_repo_builder.repository import manifest

    file = (REPOSITORY / "manifest.json").read_bytes()
    document = json.loads(file)
    name, entry = next(iter(document["endpoints"].items()))
    entry["versions"] = {"2": {**entry, "version": 2}, "3": {**entry, "version": 3}}
    entry["previous"] = 2
    hub = {
        "model": "a/b",
        "commit": "5" * 40,
        "file": "model.onnx",
        "license": "mit",
        "files": {"a": "5" * 64},
    }
    entry["provenance"] = {"source_run": "a", "dataset_id": "b", "labels": {"team": "x"}, "hub": hub}
    for record in list(document["files"].values())[:2]:
        record["url"] = "https://localhost:1/x"
    second = json.dumps(document).encode()
    assert manifest.Manifest.of_json(document).endpoints[name].previous == 2
    return [file, second]


def _manifest(case: Path) -> None:
    """All that reads a manifest and writes nothing."""
    from triton_repo_builder import repository
    from triton_repo_builder.base import releases
    from triton_repo_builder.check import check
    from triton_repo_builder.produce.write import ownership, versions
    from triton_repo_builder.repository.provenance import Facts, parameters
    from triton_repo_builder.ship.deploy import diff, snapshot
    from triton_repo_builder.ship.stores import revision

    repo = case / "repo"
    read = repository.read(repo)
    ownership.previous(repo)
    revision.labels(read.manifest)
    if read.manifest is None:
        return
    read.manifest.to_text().encode()
    for name, entry in read.manifest.endpoints.items():
        for version in entry.versions.values():
            parameters(version)
            json.dumps(Facts.of_entry(name, version).to_json()).encode()
        versions.following(repo, name)
    shots = snapshot.of_repository(read)
    diff.compare(shots, dict(reversed(shots.items())))
    check(read, releases.default())


def _manifest_writers(case: Path) -> None:
    """All that changes what a manifest names: remove, prune, promote."""
    from triton_repo_builder.produce.write import prune, publish, remove
    from triton_repo_builder.repository import manifest
    from triton_repo_builder.ship.deploy import promote

    repo = case / "repo"
    recorded = manifest.read(repo)
    if recorded is None:
        return
    for name in recorded.endpoints:
        for step in (
            lambda name=name: prune.write(prune.plan(repo, [name], 1)),
            lambda name=name: _promote(promote.plan(repo, name, 2, force=True)),
            lambda name=name: _promote(promote.plan(repo, name, None, force=True)),
            lambda name=name: publish.publish(remove.remove(repo, [name], force=True)),
        ):
            try:
                step()
            except TrbError:
                continue


def _promote(move: Any) -> None:
    from triton_repo_builder.ship.deploy import promote

    if move is not None:
        promote.in_repository(move)


def _writers_base(case: Path) -> None:
    """Three versions of each model, with what belongs to each."""
    for model in ("sentiment", "sentiment_model", "sentiment_tokenizer"):
        for version in ("1", "2", "3"):
            shared = case / "repo" / model / version / "shared"
            shared.mkdir(parents=True)
            shutil.copy(REPOSITORY / model / "config.pbtxt", shared)
        shutil.copy(REPOSITORY / model / "config.pbtxt", case / "repo" / model)
    (case / "victim" / "1").mkdir(parents=True)
    (case / "victim" / "1" / "precious").write_text("x")


def _swap_seeds() -> list[bytes]:
    names = ["sentiment_model", "sentiment", "manifest.json"]
    digest = hashlib.sha256(b"{}").hexdigest()
    moved = [{"path": name, "before": "present", "after": [digest]} for name in names]
    swap = {"kind": "swap", "created": False, "endpoint": "", "entries": moved}
    fresh = {**swap, "created": True, "entries": [{**entry, "before": ""} for entry in moved]}
    whole = {**swap, "entries": [{"path": ".", "before": "present", "after": [digest]}]}
    written = [
        {"path": "manifest.json", "before": "", "after": [digest, digest[::-1]]},
        {"path": "sentiment_model/a", "before": "0" * 64, "after": [""]},
        {"path": "sentiment/b", "before": "", "after": []},
    ]
    edit = {**swap, "kind": "edit", "entries": written}
    apply = {**swap, "kind": "apply", "endpoint": "sentiment", "entries": written[:1]}
    return [json.dumps(document).encode() for document in (swap, fresh, whole, edit, apply)]


def _swap_base(case: Path) -> None:
    stage = case / ".repo.trb-1"
    (stage / ".old" / "sentiment_model").mkdir(parents=True)
    (stage / ".old" / "sentiment_model" / "a").write_text("x")
    (stage / "sentiment").mkdir()
    (case / "repo" / "sentiment").mkdir(parents=True)
    (case / "repo" / "manifest.json").write_text("{}")
    (case / "victim").mkdir()
    (case / "outside").write_text("x")


def _lay_swap(data: bytes, case: Path) -> None:
    """A journal that is sealed, or none of it would be read."""
    from triton_repo_builder.repository.journal import record, seal

    stage, name = case / ".repo.trb-1", record.NAME
    seal.mark(stage)
    key = seal._key(create=True) or b""
    text = data.decode("utf-8", "replace")
    document = {"seal": seal._seal(key, stage, name, text.encode()), "journal": text}
    (stage / name).write_text(json.dumps(document))


def _swap(case: Path) -> None:
    from triton_repo_builder.repository.journal import recovery

    recovery.recover(case / "repo", write=False)
    recovery.recover(case / "repo", write=True)


def _cases_seeds() -> list[bytes]:
    document = json.loads((REPOSITORY / "sentiment" / "smoke.json").read_bytes())
    document["cases"] = document["cases"][:2]
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 0.5]}
    case = {
        "name": "a",
        "inputs": [tensor | {"pattern": 1}],
        "outputs": [tensor | {"indices": [0, 2, 1], "at": ""}],
    }
    image = {
        "name": "b",
        "inputs": [{**tensor, "datatype": "BYTES", "data": [{"base64": "AAAA"}] * 3}],
        "outputs": [],
    }
    keys = tensor | {"name": "K", "datatype": "INT32", "data": [1, 2, -1]}
    sparse = {"name": "c", "inputs": [tensor], "outputs": [tensor | {"at": "K"}, keys]}
    return [json.dumps(document).encode(), json.dumps({**document, "cases": [case, image, sparse]}).encode()]


def _cases(case: Path) -> None:
    """As ``trb smoke``, ``trb bench`` and ``trb diff`` take them."""
    import numpy as np

    from triton_repo_builder.repository import Repository, cases
    from triton_repo_builder.run.codegen import example
    from triton_repo_builder.run.smoke import target

    tensors = example.Tensor
    example._golden(case, (tensors(name="TEXT", datatype="BYTES", shape=(-1, 1)),))
    example._with_file(case, (tensors(name="TEXT", datatype="BYTES", shape=(-1, 1)),))
    golden = target._golden(Repository(path=case, models=(), manifest=None), "smoke.json")
    cases.dump(golden).encode()
    for one in golden.cases:
        for tensor in one.inputs:
            tensor.array()
        answer = {tensor.name: np.zeros(3, np.float32) for tensor in one.outputs}
        for tensor in one.outputs:
            cases.among(one.outputs, tensor, answer)


def _reference_base(root: Path) -> None:
    (root / "bert_tokenizer" / "1").mkdir(parents=True)
    (root / "bert_tokenizer" / "config.pbtxt").write_text('backend: "python"\n')


def _reference_seeds() -> list[bytes]:
    from triton_repo_builder.repository import reference
    from triton_repo_builder.repository.reference import Distribution, Reference

    distributions = {
        "text_tokens": Distribution(texts=500, shares={"8": 0.25, "+Inf": 0.75}),
        "answers": Distribution(texts=120, shares={"good": 0.5, "other": 0.5}, model="bert_model"),
    }
    return [reference.dump(Reference(source="texts.txt", distributions=distributions)).encode()]


def _reference(case: Path) -> None:
    """As ``trb drift --repo`` takes it."""
    from triton_repo_builder import repository
    from triton_repo_builder.run.observe import drift
    from triton_repo_builder.run.observe.exposition import Page, Sample

    labels = {"model": "bert_model", "version": "1", "label": "good"}
    stored = Page(drift.of_repository(repository.read(case)))
    for each in drift.compare(Page([Sample("trb_answers_total", labels, 300.0)]), stored=stored):
        assert each.verdict


READERS = (
    Reader(
        name="pbtxt",
        about="config.pbtxt: parse, version policy, versions of steps, lines",
        seeds=_pbtxt_seeds,
        damage=mutate.damaged_words(*PBTXT),
        lay=write("config.pbtxt"),
        read=_pbtxt,
        allowed=(PbtxtError,),
        share=1.0,
    ),
    Reader(
        name="check",
        about="`trb check` of a repository with a damaged config.pbtxt, labels or model.py",
        seeds=lambda: _named_seeds(REPOSITORY, "config.pbtxt", "labels.txt", "model.py"),
        damage=mutate.named(mutate.damaged_words(*PBTXT)),
        base=_repository_base,
        lay=write_named("repo"),
        read=_check,
        share=0.1,
    ),
    Reader(
        name="manifest",
        about="manifest.json, as check, diff, provenance and push read it",
        seeds=_manifest_seeds,
        damage=mutate.damaged_json,
        base=_repository_base,
        lay=write("repo/manifest.json"),
        read=_manifest,
        share=0.2,
    ),
    Reader(
        name="manifest-writers",
        about="manifest.json, as remove, promote, rollback and prune act on it",
        seeds=_manifest_seeds,
        damage=mutate.damaged_json,
        base=_writers_base,
        lay=write("repo/manifest.json"),
        read=_manifest_writers,
        fresh=True,
        writes=("repo", ".repo.trb-"),
        share=0.15,
    ),
    Reader(
        name="journal",
        about="the journal of a change that was killed",
        seeds=_swap_seeds,
        damage=mutate.damaged_json,
        base=_swap_base,
        lay=_lay_swap,
        read=_swap,
        fresh=True,
        writes=("repo", ".repo.trb-1"),
        share=0.5,
    ),
    Reader(
        name="cases",
        about="smoke.json",
        seeds=_cases_seeds,
        damage=mutate.damaged_json,
        lay=write("smoke.json"),
        read=_cases,
        share=1.0,
    ),
    Reader(
        name="reference",
        about="reference.json",
        seeds=_reference_seeds,
        damage=mutate.damaged_json,
        base=_reference_base,
        lay=write("bert_tokenizer/1/reference.json"),
        read=_reference,
        share=0.5,
    ),
)
