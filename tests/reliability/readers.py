"""Every reader of files from outside: real seeds, how they are damaged, and how the reader is called."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.reliability import mutate

from triton_repo_builder.errors import TrbError

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "data" / "models"
REPOSITORY = ROOT / "model_repository"
TARGET = "target"
"""Folder of a case in which a reader may write."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One reader. An input is one file's bytes; where the name matters, ``NAME\\nCONTENT``."""

    name: str
    about: str
    seeds: Callable[[], list[bytes]]
    damage: mutate.Mutate
    read: Callable[[Path], None]
    """Reads what is laid out in a case's folder."""
    lay: Callable[[bytes, Path], None]
    """Puts an input into a case's folder."""
    base: Callable[[Path], None] = lambda case: None
    """Lays out what stays the same."""
    fresh: bool = False
    """A new folder for every execution, since the reader writes."""
    writes: tuple[str, ...] = ()
    """Names in the folder in which it may."""
    allowed: tuple[type[Exception], ...] = ()
    """Exceptions that it states, besides ``TrbError``; its callers turn them into one."""
    share: float = 1.0
    """Of the executions, against other readers'."""


def _write(name: str) -> Callable[[bytes, Path], None]:
    def lay(data: bytes, case: Path) -> None:
        (case / name).write_bytes(data)

    return lay


def _write_named(folder: str) -> Callable[[bytes, Path], None]:
    """``NAME\\nCONTENT``; the file of the case before is put back."""
    before: dict[Path, bytes | None] = {}

    def lay(data: bytes, case: Path) -> None:
        for file, content in before.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(content)
        before.clear()
        name, _, content = data.partition(b"\n")
        file = case / folder / name.decode()
        before[file] = file.read_bytes() if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return lay


def _named_seeds(root: Path, *patterns: str, most: int = 60_000) -> list[bytes]:
    files = sorted({file for pattern in patterns for file in root.rglob(pattern) if file.stat().st_size < most})
    contents = {file.relative_to(root).as_posix().encode() + b"\n" + file.read_bytes() for file in files}
    return sorted(contents)


def _files(*patterns: str, root: Path = MODELS, most: int = 60_000) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found = {
            file.read_bytes()
            for pattern in patterns
            for file in sorted(root.rglob(pattern))
            if file.is_file() and file.stat().st_size < most
        }
        return sorted(found, key=lambda data: (len(data), data))

    return seeds


# --- ONNX


@cache
def _small_models() -> tuple[bytes, ...]:
    """Graphs of real exports with their weights cut to a few bytes outside, and small whole ones."""
    import onnx

    models = [(REPOSITORY / "sentiment_model/1/model.onnx").read_bytes()]
    for name in ("vision/resnet", "embedding/classifier", "tasks/qa", "embedding/minilm_pooled"):
        model = onnx.load(str(MODELS / name / "model.onnx"))
        for number, tensor in enumerate(model.graph.initializer):
            if len(tensor.raw_data) > 64:
                tensor.raw_data = b""
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", "weights.bin"), ("offset", str(number * 8)), ("length", "8")):
                    tensor.external_data.add(key=key, value=value)
        models.append(model.SerializeToString())
    return tuple(models)


def _weights(case: Path) -> None:
    (case / "weights.bin").write_bytes(bytes(4096))


def _onnx(case: Path) -> None:
    from triton_repo_builder.graph import external_data, reader, shape_inference
    from triton_repo_builder.read import skeleton

    path = case / "model.onnx"
    graph = skeleton.read(path)
    signature = reader.signature(graph)
    shape_inference.output_shapes(graph)
    if external_data.leaves(path, tuple(file.location for file in signature.external)):
        external_data.resolved(graph)


def _inspect(case: Path) -> None:
    from triton_repo_builder.build.inspect import as_json, inspect

    document = as_json(inspect(case / "model.onnx" if (case / "model.onnx").exists() else case))
    json.dumps(document)


def _build(case: Path) -> None:
    from triton_repo_builder.build.build import build
    from triton_repo_builder.hardware import Hardware
    from triton_repo_builder.read.options import BuildOptions

    machine = Hardware(cores=2, gpus=())
    for file in build(BuildOptions(model=case / "model.onnx", golden=False), machine=machine).files:
        file.size()


def _copied(name: str) -> Callable[[Path], None]:
    def base(case: Path) -> None:
        shutil.copytree(MODELS / name, case, dirs_exist_ok=True)

    return base


# --- the files beside a model


SIDECARS = (
    *("config.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_bert_config.json"),
    *("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json", "2_Dense/config.json"),
    *("artifact.metadata", "generation_config.json", "added_tokens.json"),
)
FOLDERS = ("embedding/minilm_dense", "embedding/minilm_prompt", "retrieval/pylate", "retrieval/colbert", "tasks/qa")
FOLDERS += ("embedding/classifier", "retrieval/splade_sum", "tasks/mlm_roberta", "tasks/nli", "tasks/rerank")


def _sidecar_seeds() -> list[bytes]:
    seeds = []
    for folder in FOLDERS:
        for file in sorted((MODELS / folder).rglob("*")):
            name = file.relative_to(MODELS / folder).as_posix()
            if name.endswith((".json", ".metadata")) and not name.startswith(("tokenizer.json", "reference")):
                if file.stat().st_size < 20_000 and "passage" not in name and "tokenization" not in name:
                    seeds.append(f"{folder}/{name}\n".encode() + file.read_bytes())
    return seeds


def _sidecar_base(case: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(MODELS / folder, case / folder, dirs_exist_ok=True)


_TOUCHED: dict[str, str] = {}
_lay_sidecar = _write_named("")


def _lay_sidecars(data: bytes, case: Path) -> None:
    name = data.partition(b"\n")[0].decode()
    _TOUCHED["folder"] = next(folder for folder in FOLDERS if name.startswith(f"{folder}/"))
    _lay_sidecar(data, case)


@cache
def _graph(path: Path) -> Any:
    from triton_repo_builder.graph import reader
    from triton_repo_builder.read import skeleton

    graph = skeleton.read(path)
    return graph, reader.signature(graph)


def _sidecars(case: Path) -> None:
    """As ``trb inspect`` after it has read the graph: the tokenizer, the task and its plan."""
    from triton_repo_builder import tasks
    from triton_repo_builder.read import option_checks, source, tokenizer
    from triton_repo_builder.read.options import BuildOptions
    from triton_repo_builder.tasks.support import prompts

    path = case / _TOUCHED["folder"] / "model.onnx"
    described = source.describe(*_graph(path))
    tokenizer.max_length(path.parent)
    tokenizer.table_of_positions(described.config)
    module, _ = tasks.choose(described, None)
    options = option_checks.check(BuildOptions(model=path))
    plan = module.plan(described, options)
    prompts.check_room(described, plan, 16)
    if described.tokenizer is not None:
        from triton_repo_builder.read import tokenizer_template

        spec = described.tokenizer_spec
        spec = tokenizer_template.apply(spec, plan.rules) if plan.rules else spec
        spec.encode([("hello world",)], 16)
        list(plan.encoding.parameters)


def _tokenizer_json(case: Path) -> None:
    from triton_repo_builder.read import tokenizer, tokenizer_template
    from triton_repo_builder.read.tokenizer_template import TokenRules

    spec = tokenizer.read(case / "tokenizer.json")
    spec.encode([("hello wörld [MASK] 123",), ("a", "b")], 16)
    tokenizer_template.apply(spec, TokenRules(marker="[CLS]")).encode([("hello",)], 8)


def _tokenizer_base(case: Path) -> None:
    shutil.copy(MODELS / "embedding/classifier/tokenizer_config.json", case)
    (case / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 64}')
    (case / "sentence_bert_config.json").write_text('{"do_lower_case": true, "max_seq_length": 32}')


SLOW = ("conformance/bert_slow_only_vocab_txt_base", "tasks/mlm_roberta", "conformance/deberta_v2_classes")
SLOW_FILES = ("vocab.txt", "vocab.json", "merges.txt", "spm.model", "added_tokens.json", "tokenizer_config.json")
SLOW_FILES += ("special_tokens_map.json", "config.json")


def _slow_seeds() -> list[bytes]:
    return [
        f"{folder}/{name}\n".encode() + (MODELS / folder / name).read_bytes()
        for folder in SLOW
        for name in SLOW_FILES
        if (MODELS / folder / name).is_file()
    ]


def _slow_base(case: Path) -> None:
    for folder in SLOW:
        (case / folder).mkdir(parents=True)
        for name in SLOW_FILES:
            if (MODELS / folder / name).is_file():
                shutil.copy(MODELS / folder / name, case / folder)


_lay_slow_file = _write_named("")


def _lay_slow(data: bytes, case: Path) -> None:
    _TOUCHED["slow"] = str(Path(data.partition(b"\n")[0].decode()).parent)
    _lay_slow_file(data, case)


def _slow(case: Path) -> None:
    from triton_repo_builder.read import tokenizer

    if file := tokenizer.find(case / _TOUCHED["slow"]):
        tokenizer.read(file).encode([("hello world",)], 16)


def _preprocessor_seeds() -> list[bytes]:
    plain = [
        {"size": 8, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.01},
        {"size": {"shortest_edge": 8}, "crop_size": {"height": 6, "width": 6}, "resample": 3, "jpeg_quality": 90},
        {"do_resize": True, "size": [8, 9], "do_center_crop": True, "crop_size": 4, "do_flip_channel_order": True},
        {"size": {"height": 8, "width": 8}, "crop_pct": 0.875, "do_normalize": True, "image_mean": 0.5},
    ]
    named = [f"preprocessor_config.json\n{json.dumps(document)}".encode() for document in plain]
    named.append(f"processor_config.json\n{json.dumps({'image_processor': plain[0]})}".encode())
    return named


def _preprocessor(case: Path) -> None:
    from triton_repo_builder.read import image_processor

    for name in image_processor.FILES:
        if (case / name).exists() and image_processor.find(case / "model.onnx", case / name):
            spec = image_processor.read(case / name)
            json.dumps(spec.settings("NCHW"))
            _ = spec.size
            image_processor.prove(spec, [_image()])


@cache
def _image() -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (12, 10), (200, 100, 50)).save(stream, format="PNG")
    return stream.getvalue()


def _processor_seeds() -> list[bytes]:
    return [b"preprocessor_config.json\n" + data for data in _files("preprocessor_config.json")()]


# --- trb.toml and flags

TOML = """[build]
model = "model.onnx"
name = "bert"
task = "embedding"
batching = "on"
max-batch-size = 16
preferred-batch-size = [8, 16]
max_queue_delay = "200us"
device = "cpu"
instances = 2
threads = 0
padding = "fixed:128"
pooling = "mean"
normalize = true
prompt = ""
label = {team = "search", stage = "x"}
pillow-wheel = ["a.whl", "b.whl"]
tokenizers_wheel = "c.whl"
version = 3
triton-release = "24.10"
source-run = "abc"
"""


def _toml_seeds() -> list[bytes]:
    other = '[build]\npreferred_batch_size = "8,16"\nlabel = ["a=b", "c=d"]\nmax-queue-delay = 5\npillow-wheel = "x"\n'
    return [TOML.encode(), other.encode()]


def _toml(case: Path) -> None:
    from triton_repo_builder import releases
    from triton_repo_builder.read import trb_toml

    options = trb_toml.merge({"model": Path("model.onnx")}, case / "trb.toml")
    if options.triton_release:
        releases.get(options.triton_release)


FLAGS = ("8,16", "200us", "0.1s", "key=value", "team=search", "fixed:128", "ragged", "12", "bert", "a/b", "next", "5 ms")


def _flags(case: Path) -> None:
    """Every option of the text, as click hands it over."""
    from triton_repo_builder.read import options, source

    text = (case / "flags").read_bytes().decode("utf-8", "surrogateescape")
    for name, option in options.OPTIONS.items():
        if type(option.value).__name__ in ("Number", "Version", "Switch"):
            continue  # click's own types
        try:
            value = options.parse(name, (text,) if option.value.repeatable else text)
        except TrbError:
            continue
        try:
            option.value.check(value)
        except ValueError:
            continue
    try:
        source.check_name(text)
    except TrbError:
        source.check_name(source.clean_name(text))


# --- repositories


def _pbtxt_seeds() -> list[bytes]:
    bad = ROOT / "tests" / "errors" / "repositories"
    own = _files("config.pbtxt", root=REPOSITORY)()
    return own + _files("config.pbtxt", root=bad)()[:40]


PBTXT = (
    *("name", "backend", "platform", "max_batch_size", "input", "output", "dims", "data_type", "TYPE_FP32"),
    *("instance_group", "count", "kind", "KIND_CPU", "dynamic_batching", "preferred_batch_size", "version_policy"),
    *("specific", "versions", "latest", "num_versions", "all", "ensemble_scheduling", "step", "model_name"),
    *("model_version", "input_map", "output_map", "key", "value", "parameters", "string_value", "model_warmup"),
    *("sequence_batching", "oldest", "batch_input", "reshape", "shape", "label_filename", "optimization", "<", ">"),
    *("response_cache", "enable", "true", "inputs", "zero_data", "random_data", "input_data_file", "#", "\\", "'"),
    *("priority_levels", "gpus", "profile", "default_model_filename", "direct", "control_input", "nan", "inf"),
)


def _pbtxt(case: Path) -> None:
    from triton_repo_builder.check import line_numbers
    from triton_repo_builder.repository import pbtxt
    from triton_repo_builder.repository.config import ModelConfig
    from triton_repo_builder.repository.interface import Endpoint
    from triton_repo_builder.repository.provenance import Facts

    text = (case / "config.pbtxt").read_bytes().decode("utf-8", "replace")
    pbtxt.without_policy(text)
    pbtxt.pin_steps(text, 3)
    pbtxt.serve_versions(text, (1, 2))
    line_numbers.scan(text)
    config = ModelConfig(pbtxt.parse(text))
    list(pbtxt.elements(config.raw))
    Endpoint.of_config("x", config)
    Facts.of_config("x", config)
    config.select((1, 2, 3))
    _ = (config.steps, config.instance_groups, config.runs_on, config.decoupled, config.optional_inputs)


def _repository_base(case: Path) -> None:
    shutil.copytree(REPOSITORY, case / "repo", copy_function=os.link if case.stat().st_dev == 0 else shutil.copy)


def _check(case: Path) -> None:
    from triton_repo_builder import releases, repository
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
    entry["provenance"] = {"source_run": "a", "dataset_id": "b", "labels": {"team": "x"}}
    for record in list(document["files"].values())[:2]:
        record["url"] = "https://localhost:1/x"
    second = json.dumps(document).encode()
    assert manifest.Manifest.of_json(document).endpoints[name].previous == 2
    return [file, second]


def _manifest(case: Path) -> None:
    """All that reads a manifest and writes nothing."""
    from triton_repo_builder import releases, repository
    from triton_repo_builder.check import check
    from triton_repo_builder.deploy import diff, snapshot
    from triton_repo_builder.repository.provenance import Facts, parameters
    from triton_repo_builder.stores import revision
    from triton_repo_builder.write import ownership, versions

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
    from triton_repo_builder.deploy import promote
    from triton_repo_builder.repository import manifest
    from triton_repo_builder.write import publish, remove, versions

    repo = case / "repo"
    recorded = manifest.read(repo)
    if recorded is None:
        return
    for name in recorded.endpoints:
        for step in (
            lambda name=name: versions.prune(repo, name, 1),
            lambda name=name: _promote(promote.plan(repo, name, 2, force=True)),
            lambda name=name: _promote(promote.plan(repo, name, None, force=True)),
            lambda name=name: publish.publish(remove.remove(repo, [name], force=True)),
        ):
            try:
                step()
            except TrbError:
                continue


def _promote(move: Any) -> None:
    from triton_repo_builder.deploy import promote

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
    fresh = {name: [["."] + [0, 0], ["a", 1, 1]] for name in names}
    whole = {"created": False, "names": names, "replaced": names, "fresh": fresh}
    return [json.dumps(whole).encode(), json.dumps({**whole, "created": True, "replaced": [], "fresh": {}}).encode()]


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
    (case / ".repo.trb-1" / ".swap.json").write_bytes(data)


def _swap(case: Path) -> None:
    from triton_repo_builder.write import swap

    swap.recover(case / "repo", write=False)
    swap.recover(case / "repo", write=True)


def _cases_seeds() -> list[bytes]:
    document = json.loads((REPOSITORY / "sentiment" / "smoke.json").read_bytes())
    document["cases"] = document["cases"][:2]
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 0.5]}
    case = {"name": "a", "inputs": [tensor | {"pattern": 1}], "outputs": [tensor | {"indices": [0, 2, 1], "at": ""}]}
    image = {"name": "b", "inputs": [{**tensor, "datatype": "BYTES", "data": [{"base64": "AAAA"}] * 3}], "outputs": []}
    keys = tensor | {"name": "K", "datatype": "INT32", "data": [1, 2, -1]}
    sparse = {"name": "c", "inputs": [tensor], "outputs": [tensor | {"at": "K"}, keys]}
    return [json.dumps(document).encode(), json.dumps({**document, "cases": [case, image, sparse]}).encode()]


def _cases(case: Path) -> None:
    """As ``trb smoke``, ``trb bench`` and ``trb diff`` take them."""
    import numpy as np

    from triton_repo_builder.codegen import example
    from triton_repo_builder.golden import cases
    from triton_repo_builder.repository import Repository
    from triton_repo_builder.smoke import target

    tensors = example.Tensor
    example.inputs(case, (tensors(name="TEXT", datatype="BYTES", shape=(-1, 1)),))
    example.file(case, (tensors(name="TEXT", datatype="BYTES", shape=(-1, 1)),))
    golden = target._golden(Repository(path=case, models=(), manifest=None), "smoke.json")
    cases.dump(golden).encode()
    for one in golden.cases:
        for tensor in one.inputs:
            tensor.array()
        answer = {tensor.name: np.zeros(3, np.float32) for tensor in one.outputs}
        for tensor in one.outputs:
            cases.among(one.outputs, tensor, answer)


# --- what was pushed


class _Bucket:
    """As much of an fsspec file system as a pull needs, over a dictionary."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path][start:end]

    def info(self, path: str) -> dict[str, Any]:
        return {"size": len(self.cat_file(path))}

    def ls(self, path: str) -> list[str]:
        return list(self._files)


def _bucket_seeds() -> list[bytes]:
    from triton_repo_builder.stores import revision

    local = revision.collect(REPOSITORY)
    digest = local.index.digest
    pointer = {"schema": 1, "revision": f"sha256:{digest}", "path": f"revisions/{digest}", "labels": {}}
    content = hashlib.sha256(b"x").hexdigest()
    small = {"schema": 1, "files": {"a/config.pbtxt": {"sha256": content, "bytes": 1}}}
    return [
        b"index\n" + local.index.document,
        f"index\n{json.dumps(small)}".encode(),
        f"pointer\n{json.dumps(pointer)}".encode(),
    ]


def _bucket(case: Path) -> None:
    from triton_repo_builder.stores import revision
    from triton_repo_builder.stores.location import Bucket
    from triton_repo_builder.stores.s3 import S3Store

    kind, _, content = (case / "input").read_bytes().partition(b"\n")
    index = content if kind == b"index" else revision.collect(REPOSITORY).index.document
    digest = hashlib.sha256(index).hexdigest()
    pointer = content if kind == b"pointer" else json.dumps({"revision": f"sha256:{digest}"}).encode()
    files = {"b/p/current.json": pointer, f"b/p/revisions/{digest}.json": index}
    try:
        listed = json.loads(index)["files"]
        files |= {f"b/p/revisions/{digest}/{path}": b"x" for path in listed}
    except Exception:
        listed = ()
    store = S3Store(Bucket(scheme="s3", bucket="b", prefix="p"), _Bucket(files))
    store.pull(case / TARGET, lambda *_: None)


class _Registry:
    """As much of a registry's client as a pull needs."""

    def __init__(self, manifest: bytes, layer: bytes) -> None:
        self._manifest, self._layer = manifest, layer

    def manifest(self, reference: str) -> tuple[str, bytes]:
        return f"sha256:{hashlib.sha256(self._manifest).hexdigest()}", self._manifest

    def blob(self, digest: str) -> Iterator[bytes]:
        yield self._layer


@cache
def _image_parts() -> tuple[bytes, bytes]:
    """A manifest, and its one layer."""
    from triton_repo_builder.files import File
    from triton_repo_builder.stores import oci_layers, registry

    files = (File(path="a/config.pbtxt", content=b'name: "a"\n'), File(path="a/1/model.py", content=b"x" * 600))
    layer = oci_layers._layer(files)
    return registry._manifest((layer,), b"{}", {"trb.x": "y"}), b"".join(layer.blocks())


def _oci(manifest: bytes, layer: bytes, case: Path) -> None:
    from triton_repo_builder.stores.location import Image
    from triton_repo_builder.stores.registry import RegistryStore

    store = RegistryStore(Image(registry="localhost:1", repository="x", tag="latest"))
    store._client = _Registry(manifest, layer)  # type: ignore[assignment]
    (case / TARGET / "pulled").mkdir()
    store.pull(case / TARGET / "pulled", lambda *_: None)


def _oci_manifest(case: Path) -> None:
    _oci((case / "input").read_bytes(), _image_parts()[1], case)


def _oci_layer(case: Path) -> None:
    layer = (case / "input").read_bytes()
    manifest = json.loads(_image_parts()[0])
    manifest["layers"][0] |= {"digest": f"sha256:{hashlib.sha256(layer).hexdigest()}", "size": len(layer)}
    _oci(json.dumps(manifest).encode(), layer, case)


def _target(case: Path) -> None:
    (case / TARGET).mkdir()


# --- wheels


def _wheel_seeds() -> list[bytes]:
    elf = b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00" + b"x" * 100
    seeds = []
    for members in (
        {"tokenizers/__init__.py": b"x = 1\n", "tokenizers/tokenizers.abi3.so": elf, "tokenizers-1.dist-info/METADATA": b"M"},
        {"PIL/__init__.py": b"", "PIL/_imaging.cpython-310-x86_64-linux-gnu.so": elf, "pillow-1.dist-info/METADATA": b"M"},
    ):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        seeds.append(stream.getvalue())
    return seeds


def _wheel(case: Path) -> None:
    from triton_repo_builder.render import vendor_pillow, vendor_tokenizers

    inside = "model/1/vendor"
    for read in (lambda file: vendor_tokenizers.tokenizers(inside, file), lambda file: vendor_pillow._from_wheel(file)[1]):
        try:
            for file in read(case / "a.whl"):
                if ".." in Path(file.path).parts or Path(file.path).is_absolute():
                    raise AssertionError(f"a file outside: {file.path!r}")
        except TrbError:
            continue


# --- answers of a server


ANSWERS: dict[str, Any] = {
    "index": [
        {"name": "a", "version": "1", "state": "READY", "reason": ""},
        {"name": "b", "version": "2", "state": "UNAVAILABLE", "reason": "x"},
    ],
    "metadata": {
        "name": "a",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}],
        "outputs": [{"name": "S", "datatype": "FP32", "shape": ["-1", "3"]}],
    },
    "config": {
        "name": "a",
        "backend": "onnxruntime",
        "max_batch_size": 8,
        "input": [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": ["1"], "optional": True}],
        "output": [{"name": "S", "data_type": "TYPE_FP32", "dims": [3]}],
        "ensemble_scheduling": {"step": [{"model_name": "b", "model_version": "-1", "input_map": {"a": "b"}}]},
        "instance_group": [{"name": "a", "count": 2, "kind": "KIND_CPU"}],
        "parameters": {"trb.version": {"string_value": "1"}, "trb.source_sha256": {"string_value": "a:b c:d"}},
        "version_policy": {"specific": {"versions": ["1"]}},
        "model_transaction_policy": {"decoupled": False},
        "dynamic_batching": {"preferred_batch_size": [8]},
    },
    "stats": {
        "model_stats": [
            {
                "name": "a",
                "version": "1",
                "inference_count": "5",
                "execution_count": 3,
                "inference_stats": {"success": {"count": "5", "ns": "100"}, "queue": {"count": 5, "ns": 1}},
                "batch_stats": [{"batch_size": "2", "compute_infer": {"count": "1", "ns": "2"}}],
            }
        ]
    },
    "server": {"name": "triton", "version": "2.51.0", "extensions": ["classification"]},
    "refusal": {"error": "no such model"},
    "infer": {
        "model_name": "a",
        "outputs": [
            {"name": "S", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.7]},
            {"name": "L", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]},
            {"name": "I", "datatype": "INT64", "shape": [2, 2], "data": [[1, 2], [3, 4]]},
        ],
    },
}
BINARY = {
    "outputs": [
        {"name": "L", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 12}},
        {"name": "S", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}},
    ]
}
METRICS = 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\nnv_gpu_utilization{a="b",gpu_uuid="GPU-2"} nan\n'


def _answer_seeds() -> list[bytes]:
    plain = [f"{kind}\n{json.dumps(document)}".encode() for kind, document in ANSWERS.items()]
    header = json.dumps(BINARY).encode()
    raw = b"\x02\0\0\0ab\x02\0\0\0cd" + bytes(8)
    return [*plain, f"binary {len(header)}\n".encode() + header + raw, f"metrics\n{METRICS}".encode()]


def _damaged_answer(rng: Any, data: bytes, seeds: Any) -> bytes:
    kind = data.partition(b"\n")[0]
    if kind.startswith(b"binary"):
        size = int(kind.split()[1])
        head, rest = data.partition(b"\n")[2][:size], data.partition(b"\n")[2][size:]
        if rng.random() < 0.7:
            head = mutate.damaged_json(rng, head, [head])
        else:
            rest = mutate.damaged_bytes(rng, rest, [rest])
        length = rng.choice((len(head),) * 8 + (0, len(head) + 5, -1, "x", 10**30))
        return f"binary {length}\n".encode() + head + rest
    if kind == b"metrics":
        return mutate.named(mutate.damaged_words("nan", "1e999", "gpu_uuid", "nv_gpu_utilization", "{", '"'))(rng, data, seeds)
    return mutate.named(mutate.damaged_json)(rng, data, seeds)


def _answers(case: Path) -> None:
    from triton_repo_builder.client import HttpClient, statistics
    from triton_repo_builder.client.http import HEADER_LENGTH, Answer
    from triton_repo_builder.client.values import Body, RequestFailed
    from triton_repo_builder.repository.provenance import Facts
    from triton_repo_builder.smoke import target

    kind, _, data = (case / "input").read_bytes().partition(b"\n")
    if kind == b"metrics":
        statistics.gpu_utilization(data.decode("utf-8", "replace"))
        return
    headers = {HEADER_LENGTH: kind.split()[1].decode()} if kind.startswith(b"binary") else {}
    answer = Answer(status=400 if kind == b"refusal" else 200, headers=headers, data=data)

    class Client(HttpClient):
        def send(self, method: str, path: str, body: Body | None = None) -> Answer:
            return answer

    http = Client("http://127.0.0.1:1")
    body = Body(data=b"{}", headers={})
    config: Any = None

    def configured() -> None:
        config = http.config("a")
        _ = (config.steps, config.instance_groups, config.optional_inputs, config.runs_on, config.dynamic_batching)
        config.select((1, 2))
        Facts.of_config("a", config)

    calls: dict[bytes, tuple[Callable[[], Any], ...]] = {
        b"index": (http.index, http.states, http.ready_models, lambda: http.wait_until_settled("a", 0)),
        b"metadata": (lambda: http.endpoint("a"), lambda: http.served_versions("a"), lambda: http.describe("a")),
        b"config": (configured, lambda: http.steps_of("a"), lambda: target._on_server(http)),
        b"stats": (lambda: statistics.split({}, statistics.read(http), ("a",)), lambda: statistics.read_or_empty(http)),
        b"server": (http.version,),
        b"refusal": (lambda: http.load("a"), http.version),
        b"infer": (lambda: http.infer("a", body),),
    }
    for call in calls.get(kind, (lambda: http.infer("a", body),)):
        try:
            call()
        except (TrbError, RequestFailed):
            continue


# --- reports of bench, and what trb keeps for itself


def _report_seeds() -> list[bytes]:
    level = {
        "variant": "default", "protocol": "grpc", "mode": "closed", "concurrency": 8, "rate": None, "length": None,
        "rows": 1, "throughput": 100.5, "server_cpu_ms": 2.5, "latency": {"p50": 1.0, "p99": 2.0}, "sent": "abc",
    }  # fmt: skip
    from triton_repo_builder.bench.report import comparison

    machine = {name: "x" for name in comparison.MACHINE}
    document = {"schema": comparison.SCHEMA, "client": "trb", "machine": machine, "levels": [level, {**level, "rows": 2}]}
    return [json.dumps(document).encode()]


def _report(case: Path) -> None:
    from triton_repo_builder.bench.report import comparison

    comparison.load(case / "report.json")


def _background_seeds() -> list[bytes]:
    entry = {
        "pid": 2**22 + 5, "born": "1", "name": "x", "repository": "/r", "engine": "embedded", "server_pid": None,
        "urls": {"http": "http://127.0.0.1:1"}, "log": "/l", "started": 1.5, "endpoints": [{"name": "a"}],
    }  # fmt: skip
    return [json.dumps(entry).encode()]


def _background(case: Path) -> None:
    from triton_repo_builder.serve.background import registry

    os.environ["XDG_STATE_HOME"] = str(case)
    entries, _ = registry.sweep()
    for entry in entries:
        registry.about(entry)


def _lay_background(data: bytes, case: Path) -> None:
    (case / "trb").mkdir(exist_ok=True)
    (case / "trb" / "1.json").write_bytes(data)


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader(
            name="onnx",
            about="ONNX: skeleton, signature, external data, shape inference",
            seeds=lambda: list(_small_models()),
            damage=mutate.damaged_onnx,
            base=_weights,
            lay=_write("model.onnx"),
            read=_onnx,
            share=1.0,
        ),
        Reader(
            name="inspect",
            about="ONNX: `trb inspect` of a text model",
            seeds=lambda: list(_small_models()),
            damage=mutate.damaged_onnx,
            base=lambda case: (_copied("embedding/classifier")(case), _weights(case))[1],
            lay=_write("model.onnx"),
            read=_inspect,
            share=0.3,
        ),
        Reader(
            name="build",
            about="ONNX: `trb build --no-golden`",
            seeds=lambda: list(_small_models()),
            damage=mutate.damaged_onnx,
            base=lambda case: (_copied("embedding/classifier")(case), _weights(case))[1],
            lay=_write("model.onnx"),
            read=_build,
            share=0.03,
        ),
        Reader(
            name="tokenizer",
            about="tokenizer.json",
            seeds=_files("tokenizer.json", most=14_000),
            damage=mutate.damaged_json,
            base=_tokenizer_base,
            lay=_write("tokenizer.json"),
            read=_tokenizer_json,
            share=0.6,
        ),
        Reader(
            name="sidecars",
            about="config.json, tokenizer_config.json, sentence-transformers' and ColBERT's files",
            seeds=_sidecar_seeds,
            damage=mutate.named(mutate.damaged_json),
            base=_sidecar_base,
            lay=_lay_sidecars,
            read=_sidecars,
            share=0.5,
        ),
        Reader(
            name="slow-tokenizer",
            about="vocab.txt, vocab.json, merges.txt, SentencePiece models",
            seeds=_slow_seeds,
            damage=mutate.named(mutate.damaged_json),
            base=_slow_base,
            lay=_lay_slow,
            read=_slow,
            share=0.02,
        ),
        Reader(
            name="preprocessor",
            about="preprocessor_config.json of trb's own, proven on an image",
            seeds=_preprocessor_seeds,
            damage=mutate.named(mutate.damaged_json),
            lay=_write_named(""),
            read=_preprocessor,
            share=0.5,
        ),
        Reader(
            name="processor",
            about="preprocessor_config.json of transformers' classes",
            seeds=_processor_seeds,
            damage=mutate.named(mutate.damaged_json),
            lay=_write_named(""),
            read=_preprocessor,
            share=0.02,
        ),
        Reader(
            name="toml",
            about="trb.toml",
            seeds=_toml_seeds,
            damage=mutate.damaged_words(*FLAGS, "true", "[build]", "=", "1979-05-27", "1e999", "nan", '"""', "'", "."),
            lay=_write("trb.toml"),
            read=_toml,
            share=2.0,
        ),
        Reader(
            name="flags",
            about="values of flags",
            seeds=lambda: [flag.encode() for flag in FLAGS],
            damage=mutate.damaged_words(*FLAGS, "=", ",", ":", "."),
            lay=_write("flags"),
            read=_flags,
            share=2.0,
        ),
        Reader(
            name="pbtxt",
            about="config.pbtxt: parse, version policy, versions of steps, lines",
            seeds=_pbtxt_seeds,
            damage=mutate.damaged_words(*PBTXT),
            lay=_write("config.pbtxt"),
            read=_pbtxt,
            allowed=(__import__("triton_repo_builder.repository.pbtxt", fromlist=["PbtxtError"]).PbtxtError,),
            share=1.0,
        ),
        Reader(
            name="check",
            about="`trb check` of a repository with a damaged config.pbtxt, labels or model.py",
            seeds=lambda: _named_seeds(REPOSITORY, "config.pbtxt", "labels.txt", "model.py"),
            damage=mutate.named(mutate.damaged_words(*PBTXT)),
            base=_repository_base,
            lay=_write_named("repo"),
            read=_check,
            share=0.1,
        ),
        Reader(
            name="manifest",
            about="manifest.json, as check, diff, provenance and push read it",
            seeds=_manifest_seeds,
            damage=mutate.damaged_json,
            base=_repository_base,
            lay=_write("repo/manifest.json"),
            read=_manifest,
            share=0.2,
        ),
        Reader(
            name="manifest-writers",
            about="manifest.json, as remove, promote, rollback and prune act on it",
            seeds=_manifest_seeds,
            damage=mutate.damaged_json,
            base=_writers_base,
            lay=_write("repo/manifest.json"),
            read=_manifest_writers,
            fresh=True,
            writes=("repo", ".repo.trb-"),
            share=0.15,
        ),
        Reader(
            name="journal",
            about="the journal of a swap that was killed",
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
            lay=_write("smoke.json"),
            read=_cases,
            share=1.0,
        ),
        Reader(
            name="bucket",
            about="pointer and index of a revision in a bucket",
            seeds=_bucket_seeds,
            damage=mutate.named(mutate.damaged_json),
            base=_target,
            lay=_write("input"),
            read=_bucket,
            fresh=True,
            writes=(TARGET,),
            share=0.3,
        ),
        Reader(
            name="oci-manifest",
            about="manifest of an image",
            seeds=lambda: [_image_parts()[0]],
            damage=mutate.damaged_json,
            base=_target,
            lay=_write("input"),
            read=_oci_manifest,
            fresh=True,
            writes=(TARGET,),
            share=0.5,
        ),
        Reader(
            name="oci-layer",
            about="layers of an image",
            seeds=lambda: [_image_parts()[1]],
            damage=mutate.damaged_tar,
            base=_target,
            lay=_write("input"),
            read=_oci_layer,
            fresh=True,
            writes=(f"{TARGET}/pulled", f"{TARGET}/.trb-"),
            share=0.5,
        ),
        Reader(
            name="wheel",
            about="wheels of tokenizers and Pillow",
            seeds=_wheel_seeds,
            damage=mutate.damaged_zip,
            lay=_write("a.whl"),
            read=_wheel,
            share=1.0,
        ),
        Reader(
            name="answers",
            about="HTTP answers and metrics of a server",
            seeds=_answer_seeds,
            damage=_damaged_answer,
            lay=_write("input"),
            read=_answers,
            share=2.0,
        ),
        Reader(
            name="report",
            about="an earlier report of `trb bench`",
            seeds=_report_seeds,
            damage=mutate.damaged_json,
            lay=_write("report.json"),
            read=_report,
            share=2.0,
        ),
        Reader(
            name="background",
            about="the file of a server in the background",
            seeds=_background_seeds,
            damage=mutate.damaged_json,
            lay=_lay_background,
            read=_background,
            fresh=True,
            writes=("trb",),
            share=0.5,
        ),
    )
}


assert sys.version_info >= (3, 10)
