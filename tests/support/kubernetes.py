"""kubectl, helm and the published models of custom resources, in .cache/kubernetes (``.ci/kubernetes``)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import unavailable

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "kubernetes"
CHECK = Path(__file__).parent / "kubernetes_models" / "check.mjs"
VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
CUSTOM = ("argoproj.io/", "gateway.networking.k8s.io/", "keda.sh/", "monitoring.coreos.com/")
"""API groups of operators; everything else must be Kubernetes' own."""
Object = Mapping[str, Any]


def installed() -> Path | None:
    """The folder of the tools; None without."""
    return CACHE if CACHE.is_dir() else None


def tool(name: str) -> str:
    """Path of ``kubectl`` or ``helm``."""
    path = CACHE / name
    if not path.is_file():
        unavailable(f"there is no {path}: run .ci/kubernetes")
    return str(path)


def run(name: str, *arguments: str | Path, stdin: str = "", fails: bool = False) -> str:
    """Output of a tool, which must exit with 0 (or, with ``fails``, with something else)."""
    argv = [tool(name), *map(str, arguments)]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode != 0) == fails, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout + (done.stderr if fails else "")


def built(folder: Path) -> list[Object]:
    """The objects of a kustomization, by the real kustomize."""
    return documents(run("kubectl", "kustomize", folder))


def templated(chart: Path, *arguments: str) -> list[Object]:
    """The objects of a chart, by the real helm."""
    return documents(run("helm", "template", "some-release", chart, *arguments))


def documents(text: str) -> list[Object]:
    # libyaml's parser: PyYAML's own took half of the time of these tests.
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, each once."""
    listed = [((each["kind"], each["metadata"]["name"]), each) for each in objects]
    assert len(dict(listed)) == len(listed), [key for key, _ in listed]
    return dict(listed)


def faults(objects: Sequence[Object], version: str) -> list[str]:
    """What the strict schemas of a Kubernetes version refuse; a kind without a schema is a fault."""
    try:
        import kubernetes_validate
        from kubernetes_validate import utils
    except ImportError:
        unavailable("kubernetes-validate is not installed")
    found = []
    for each in objects:
        if each["apiVersion"].startswith(CUSTOM):
            continue
        try:
            checked = kubernetes_validate.validate(each, version, strict=True)
            # An unknown version is taken for the newest one before it.
            assert checked == version, (checked, version)
        except utils.ValidationError as error:
            place = ".".join(map(str, error.path))
            found.append(f"{each['kind']} {each['metadata']['name']}: {place}: {error.message}")
        except utils.SchemaNotFoundError as error:
            found.append(error.message)
    return found


def custom_faults(objects: Sequence[Object]) -> list[list[str]]:
    """What the published models refuse of each object of an operator, unknown fields included."""
    custom = [each for each in objects if each["apiVersion"].startswith(CUSTOM)]
    node = shutil.which("node")
    if node is None or not (CACHE / "node_modules").is_dir():
        unavailable("there is no Node.js, or no .cache/kubernetes/node_modules: run .ci/kubernetes")
    argv = [node, "--input-type=module", "-e", CHECK.read_text()]
    done = subprocess.run(
        argv, cwd=CACHE, input=json.dumps(custom), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    listed: list[list[str]] = json.loads(done.stdout)
    return listed
