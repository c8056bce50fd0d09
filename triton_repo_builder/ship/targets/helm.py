"""``trb export helm``: a chart of the objects that ``trb export kubernetes`` renders.

https://helm.sh/docs/topics/charts/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_repo_builder.base import templates
from triton_repo_builder.ship import rendered
from triton_repo_builder.ship.targets import kubernetes
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.manifests import values
from triton_repo_builder.ship.targets.manifests.objects import Objects, objects

FOLDER = "deploy/helm"
VERSION = "0.1.0"
"""Version of the chart; the revision of the repository follows it."""
QUANTITIES = ("cpu", "memory", "shm")
CHECKS = """\
{{- if and .Values.rollout.enabled (not (and .Values.route.enabled .Values.monitoring.enabled)) }}
{{- fail "rollout.enabled needs route.enabled and monitoring.enabled: weights to shift, metrics to judge" }}
{{- end }}
"""
"""Values that each are right, and do not work together; a template that renders nothing."""
_IF: Mapping[str, str] = {
    "base/hpa.yaml": "and .Values.autoscaling.enabled (not .Values.autoscaling.keda)",
    "base/gateway-pdb.yaml": "gt (int .Values.gateway.replicas) 1",
    "base/networkpolicy.yaml": ".Values.networkPolicy.enabled",
    "base/gateway-networkpolicy.yaml": ".Values.networkPolicy.enabled",
    "keda": "and .Values.autoscaling.enabled .Values.autoscaling.keda",
    "monitoring": ".Values.monitoring.enabled",
    "route": ".Values.route.enabled",
    "smoke": ".Values.smoke.enabled",
    "rollout": ".Values.rollout.enabled",
}
"""Condition of an object, or of a component, by its place in the export for Kubernetes."""


def render(deployment: Deployment) -> dict[str, str]:
    """The chart. Raises ``TrbError`` for what a cluster could not run."""
    each = objects(deployment, helm=True)
    files = {f"templates/{path}": _when(f"base/{path}", text) for path, text in kubernetes.base(each).items()}
    parts = kubernetes.components(each)
    parts["route"] = kubernetes.routes(each, 0)
    parts["rollout"] = kubernetes.rollout(each)
    for name, content in parts.items():
        files |= {f"templates/{name}-{path}": _when(name, text) for path, text in content.items()}
    stated = _values(each)
    return {
        **files,
        "Chart.yaml": templates.render(
            f"{FOLDER}/Chart.yaml.jinja",
            name=deployment.name,
            version=f"{VERSION}+{deployment.revision[:12]}",
            release=deployment.release.name,
            endpoints=deployment.endpoints,
            revision=f"sha256:{deployment.revision}",
            commit=deployment.commit,
        ),
        "values.yaml": templates.render(f"{FOLDER}/values.yaml.jinja", value=stated, **_choices(each)),
        "values.schema.json": rendered.document(_checked(_nested(stated, each), each)),
        "templates/checks.yaml": CHECKS,
        "templates/NOTES.txt": _notes(each),
        "README.md": templates.render(f"{FOLDER}/README.md.jinja", **_about(each)),
    }


def _when(place: str, text: str) -> str:
    condition = _IF.get(place) or _IF.get(place.partition("/")[0])
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _values(each: Objects) -> dict[str, Any]:
    return values.stated(each.deployment)


def _choices(each: Objects) -> dict[str, Any]:
    """Which parts of values.yaml there are."""
    return {
        "fetched": any(reader.fetch and reader.fetcher == "fetch_image" for reader in each.readers),
        "image_volume": bool(each.server_access.image_volume),
        "gateway": each.has_gateway,
        "scaled": each.scaling is not None,
    }


def _nested(stated: Mapping[str, Any], each: Objects) -> dict[str, Any]:
    """values.yaml as data: the values by their places, and the switches."""
    choices = _choices(each)
    tree: dict[str, Any] = {}
    for name, place in values.PLACES.items():
        *tables, last = place.split(".")
        table = tree
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = stated[name]
    if choices["scaled"]:
        tree["autoscaling"] |= {"enabled": True, "keda": False}
    else:
        tree["autoscaling"] = {"enabled": False}
    if not choices["fetched"]:
        del tree["repository"]
    if choices["image_volume"]:
        tree["repository"]["imageVolume"] = False
    if not choices["gateway"]:
        del tree["gateway"]
    for switch in ("monitoring", "smoke", "rollout"):
        tree[switch] = {"enabled": False}
    tree["route"]["enabled"] = False
    tree["networkPolicy"] = {"enabled": True}
    return tree


def _checked(tree: Mapping[str, Any], each: Objects) -> dict[str, Any]:
    """The schema of values.yaml."""
    schema = _schema(tree)
    schema = {"$schema": "https://json-schema.org/draft-07/schema#", **schema}
    # helm itself adds it where the chart is a part of another one.
    schema["properties"]["global"] = {"type": "object"}
    if each.scaling is None:
        schema["properties"]["autoscaling"]["properties"]["enabled"] = {"const": False}
    return schema


def _schema(value: Any) -> dict[str, Any]:
    """A JSON schema that takes these keys and no others: a typing error is told by helm."""
    if isinstance(value, dict):
        return {
            "type": "object",
            "additionalProperties": False,
            # helm --set resources.cpu=2 is a number.
            "properties": {
                name: {"type": ["string", "number"]} if name in QUANTITIES else _schema(each)
                for name, each in sorted(value.items())
            },
        }
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    return {"type": "string"}


def _about(each: Objects) -> dict[str, Any]:
    spec = each.deployment.spec
    return {
        "name": each.name,
        "file": each.deployment.file.name,
        "admin_key": spec.exposure.admin_key.name,
        "keys": spec.gateway.keys,
        # helm names it on its command line.
        "own_namespace": "",
        "secret": each.server_access.secret,
        "source": spec.repository.source.kind,
        "endpoints": each.deployment.endpoints,
        **_choices(each),
    }


def _notes(each: Objects) -> str:
    return templates.render(f"{FOLDER}/NOTES.txt.jinja", **_about(each))
