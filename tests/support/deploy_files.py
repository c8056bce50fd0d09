"""A ``deploy.toml`` beside a repository, as the tests of export targets need it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.support import serve_repository as made
from triton_repo_builder.ship.stores import oci_manifest, revision
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets.facts import Deployment

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "model_repository"
SCHEMAS = ROOT / "tests" / "data" / "schemas"
ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/tritonserver:24.10-py3"
KEY = "key-of-the-administrator-0123456789"
ROLE = "arn:aws:iam::123456789012:role/sagemaker"


def repository(folder: Path) -> Path:
    """A Python model ``step`` below an ensemble ``whole``, whose placeholder is not empty."""
    root = folder / "repository"
    root.mkdir()
    made.whole(root)
    (root / "whole" / "1" / ".gitkeep").write_text("kept\n")
    return root


def write(root: Path, **tables: dict[str, Any]) -> Path:
    """``deploy.toml`` beside a repository, with a key of the administrative APIs."""
    folder = root.parent
    key = folder / "admin_key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    tables["repository"] = {"path": root.name, **tables.get("repository", {})}
    tables["exposure"] = {"admin_key": "admin_key", **tables.get("exposure", {})}
    lines = ['name = "bert"']
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    file = folder / "deploy.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def read(root: Path, **tables: dict[str, Any]) -> Deployment:
    """The deployment of ``write``."""
    return export.read(write(root, **tables))


def capacity(folder: Path, per_second: float = 100.0) -> str:
    """A table with what a replica answers within the objective, for ``autoscaling.report``."""
    file = folder / "capacity.csv"
    file.write_text(f"name,per_second,p99_ms\nbert,{per_second:g},40\n")
    return str(file)


def bucket(root: Path, location: str = "s3://models/bert") -> str:
    """The address of the repository once it is pushed there."""
    return f"{location}@sha256:{revision.collect(root).index.digest}"


def image(root: Path, location: str = "oci://registry.example/bert") -> str:
    """The address of the repository's image once it is pushed there."""
    return f"{location}@{oci_manifest.image(revision.collect(root)).digest}"


def rendered(target: str, deployment: Deployment) -> dict[str, bytes]:
    """The files of an export, path → content; streams are read."""
    contents = export.render(target, deployment).contents
    return {
        path: content if isinstance(content, bytes) else b"".join(content.blocks())
        for path, content in contents.items()
    }


def kserve_errors(document: dict[str, Any]) -> list[str]:
    """Faults of an object by the schema of KServe's CRD; unknown fields are faults, too."""
    packed = (SCHEMAS / "kserve" / f"{document['kind']}.json.gz").read_bytes()
    schema = _closed(json.loads(gzip.decompress(packed)))
    faults = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, fault.path))}: {fault.message[:300]}" for fault in faults]


def _closed(schema: Any) -> Any:
    """The schema with every object closed, as ``kubectl`` validates strictly."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    properties = schema.get("properties")
    # A schema that has a property called 'properties' is not one itself.
    is_object = isinstance(properties, dict) and schema.get("type") == "object"
    preserved = schema.get("x-kubernetes-preserve-unknown-fields")
    if is_object and not preserved and "additionalProperties" not in schema and schema.get("properties"):
        closed["additionalProperties"] = False
        closed["properties"] = dict(closed["properties"])
        if {"kind", "spec"} <= set(properties):
            closed["properties"]["metadata"] = {"type": "object"}
    return closed


def objects(text: bytes) -> dict[str, Any]:
    """One YAML document; a duplicate key fails."""
    document: dict[str, Any] = yaml.load(text, Loader=_Strict)
    return document


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key twice: {keys}"
        return super().construct_mapping(node, deep)
