"""Where a build comes from: in the manifest, in each config.pbtxt, in the list of parts."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tiny

from triton_repo_builder import cli, repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.render import provenance
from triton_repo_builder.model.read import option_checks, trb_toml
from triton_repo_builder.model.read import options as trb_options
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.produce.write import publish, versions
from triton_repo_builder.repository import pbtxt, sbom
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.manifest import Conversion, HubModel, Origin
from triton_repo_builder.repository.provenance import Facts
from triton_repo_builder.ship.vcs.trailers import trailers

ROOT = Path(__file__).resolve().parents[3]
GIVEN: dict[str, Any] = {
    "source_run": "run-77",
    "dataset_id": 'ds 2026/10 "full"',
    "label": (("team", "search"), ("tier", "1")),
}
HUB = HubModel(
    model="a/b", commit="5" * 40, file="onnx/model.onnx", license="mit", files={"config.json": "5" * 64}
)


def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "docs/schema/manifest.schema.json").read_text())
    return document


def manifest(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return document


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.classifier(tmp_path_factory.mktemp("models") / "bert")


def test_the_schema_is_one_and_says_what_manifests_are(model: Path, output: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    tiny.put(model, output, golden=True, **GIVEN)
    validator.validate(manifest(output))
    validator.validate(manifest(ROOT / "model_repository"))
    made = tiny.make(model, output, golden=True, version=2)
    publish.publish(publish.prepare(versions.place(made, output, serve=True), output))
    document = manifest(output)
    assert document["endpoints"]["bert"]["previous"] == 1
    validator.validate(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), 2),
        (("endpoints", "bert", "models"), []),
        (("endpoints", "bert", "version"), 0),
        (("endpoints", "bert", "sources", 0, "sha256"), "abc"),
        (("endpoints", "bert", "options_digest"), "abc"),
        (("endpoints", "bert", "provenance"), {"source_run": ""}),
        (("endpoints", "bert", "provenance"), {"hub": {**HUB.to_json(), "license": ""}}),
        (("endpoints", "bert", "provenance"), {"hub": {"model": "a/b"}}),
        (("endpoints", "bert", "versions"), {"two": {}}),
        (("files", "bert/config.pbtxt", "bytes"), -1),
    ],
)
def test_the_schema_refuses_what_is_wrong(
    model: Path, output: Path, path: tuple[Any, ...], value: Any
) -> None:
    tiny.put(model, output, **GIVEN)
    document = copy.deepcopy(manifest(output))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())


@pytest.mark.parametrize(
    "damage",
    [
        *({"versions": []}, {"provenance": "run"}, {"sources": {}}, {"models": None}),
        *({"provenance": {"hub": "a/b"}}, {"provenance": {"hub": {"model": "a/b"}}}),
    ],
)
def test_a_damaged_entry_is_refused_when_it_is_read(
    model: Path, output: Path, damage: dict[str, Any]
) -> None:
    tiny.put(model, output)
    document = manifest(output)
    document["endpoints"]["bert"].update(damage)
    (output / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(TrbError) as caught:
        repository.read(output)
    assert caught.value.code == Code.REPOSITORY_UNREADABLE


def test_every_config_says_where_its_model_comes_from(model: Path, output: Path) -> None:
    tiny.put(model, output, **GIVEN)
    entry = repository.read(output).manifest.endpoints["bert"].served
    assert entry.provenance.to_json() == {
        "source_run": "run-77",
        "dataset_id": 'ds 2026/10 "full"',
        "labels": {"team": "search", "tier": "1"},
    }
    for name in entry.models:
        facts = Facts.of_config(
            name, ModelConfig(pbtxt.parse((output / name / "config.pbtxt").read_text())), (1,)
        )
        assert facts.model_sha256 == files.hash_file(model / "model.onnx")
        assert dict(facts.sources)["tokenizer.json"] == files.hash_file(model / "tokenizer.json")
        assert (facts.source_run, facts.dataset_id) == ("run-77", 'ds 2026/10 "full"')
        assert facts.labels == (("team", "search"), ("tier", "1"))
        assert facts.same(Facts.of_entry("bert", entry))
    other = Facts.of_entry("bert", replace(entry, provenance=Origin(source_run="run-78")))
    assert not other.same(Facts.of_entry("bert", entry))


def test_a_model_of_the_hub_is_recorded(model: Path, output: Path) -> None:
    tiny.put(model, output, hub=HUB)
    jsonschema.validate(manifest(output), schema())
    entry = repository.read(output).manifest.endpoints["bert"].served
    assert entry.provenance == Origin(hub=HUB)
    assert "hub" not in (entry.options or {})
    config = ModelConfig(pbtxt.parse((output / "bert" / "config.pbtxt").read_text()))
    facts = Facts.of_config("bert", config, (1,))
    assert (facts.hub, facts.hub_file, facts.license) == (f"a/b@{HUB.commit}", "onnx/model.onnx", "mit")
    assert facts.same(Facts.of_entry("bert", entry))
    later = replace(entry, provenance=Origin(hub=replace(HUB, commit="6" * 40)))
    assert not facts.same(Facts.of_entry("bert", later))
    assert ("Hub-Model", f"a/b@{HUB.commit}/onnx/model.onnx") in trailers(repository.read(output).manifest)


def test_a_conversion_is_shown_in_one_line(
    model: Path, output: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton_repo_builder.ship.vcs.git.last_commit", lambda folder: "")
    weights = {"model.safetensors": "7" * 64}
    conversion = Conversion(converter="optimum", task="fill-mask", tools={"torch": "2.13.0"}, weights=weights)
    tiny.put(model, output, hub=replace(HUB, file="model.safetensors"), conversion=conversion)
    jsonschema.validate(manifest(output), schema())
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["provenance", str(output)])
    line = f"  converted        by optimum from model.safetensors sha256 {'7' * 64} of a/b@{HUB.commit}\n"
    assert line in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["provenance", str(output), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["conversion"] == conversion.to_json()


def test_what_was_not_given_is_not_written(model: Path, output: Path) -> None:
    tiny.put(model, output)
    assert "provenance" not in manifest(output)["endpoints"]["bert"]
    text = (output / "bert" / "config.pbtxt").read_text()
    assert "trb.model_sha256" in text
    assert "source_run" not in text and "dataset_id" not in text and "label." not in text


def test_the_digest_is_of_how_not_of_where(tmp_path: Path) -> None:
    def digest(**given: Any) -> str:
        return provenance.digest(
            provenance.recorded_options(BuildOptions(**{"model": tmp_path / "a", **given}))
        )

    assert digest() == digest(model=tmp_path / "b", output=tmp_path, name="x", version=3, source_run="y")
    assert digest() == digest(label=(("a", "b"),), tokenizer=tmp_path)
    assert (
        len({digest(), digest(instances=1), digest(preferred_batch_size=(4, 8)), digest(warmup=False)}) == 4
    )
    assert provenance.recorded_options(BuildOptions(model=tmp_path, preferred_batch_size=(4, 8))) == {
        "preferred_batch_size": [4, 8]
    }


@pytest.mark.parametrize("given", [("team",), ("=x",), ("a b=c",), ("a=1", "a=2")])
def test_labels_that_are_none(given: tuple[str, ...]) -> None:
    with pytest.raises(TrbError) as caught:
        trb_options.parse("label", given)
    assert (caught.value.code, caught.value.where) == (Code.USAGE, "--label")


@pytest.mark.parametrize(
    "field", [{"source_run": "a\nFake-Trailer: b"}, {"dataset_id": " "}, {"label": (("a", "\x1b"),)}]
)
def test_facts_are_one_line_each(field: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        option_checks.check(BuildOptions(model=tmp_path, **field))
    assert caught.value.code == Code.USAGE
    assert "is not one line of text" in caught.value.message


def test_labels_of_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "trb.toml"
    file.write_text('[build]\nmodel = "m"\nsource-run = "r"\nlabel = { tier = "1", team = "search" }\n')
    merged = trb_toml.merge({}, file)
    assert (merged.source_run, merged.label) == ("r", (("team", "search"), ("tier", "1")))


def test_the_list_of_parts_is_read_from_what_is_vendored(model: Path, output: Path) -> None:
    tiny.put(model, output, **GIVEN)
    (metadata,) = output.glob("bert_tokenizer/1/vendor/*.dist-info/METADATA")
    listed = {part["bom-ref"]: part for part in sbom.cyclonedx(repository.read(output))["components"]}
    (library,) = [part for part in listed.values() if part["type"] == "library"]
    native = next(output.glob("bert_tokenizer/1/vendor/tokenizers/*.so"))
    assert f"tokenizers-{library['version']}.dist-info" == metadata.parent.name
    assert library["purl"] == f"pkg:pypi/tokenizers@{library['version']}"
    assert library["hashes"] == [{"alg": "SHA-256", "content": files.hash_file(native)}]
    assert "Apache" in json.dumps(library["licenses"])
    assert listed["model:bert"]["hashes"][0]["content"] == files.hash_file(model / "model.onnx")
    # Another library beside it is listed without anyone naming it.
    other = metadata.parents[1] / "pillow-11.0.dist-info"
    shutil.copytree(metadata.parent, other)
    (other / "METADATA").write_text("Name: pillow\nVersion: 11.0\nLicense-Expression: MIT-CMU\n\n")
    parts = sbom.cyclonedx(repository.read(output))["components"]
    assert {"expression": "MIT-CMU"} in next(p for p in parts if p["bom-ref"] == "pkg:pypi/pillow@11.0")[
        "licenses"
    ]


def test_a_build_forgets_not_where_unchanged_weights_lie(model: Path, output: Path) -> None:
    tiny.put(model, output)
    document = manifest(output)
    for name in ("bert_model/1/weights.onnx", "bert/config.pbtxt"):
        document["files"][name]["url"] = f"file:///weights/{document['files'][name]['sha256']}"
    (output / "manifest.json").write_text(json.dumps(document))
    jsonschema.validate(document, schema())
    tiny.put(model, output, source_run="another")
    listed = manifest(output)["files"]
    assert listed["bert_model/1/weights.onnx"]["url"].startswith("file:///weights/")
    assert "url" not in listed["bert/config.pbtxt"]
