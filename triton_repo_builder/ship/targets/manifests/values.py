"""One template for kustomize and for Helm.

A template has its values by name. For kustomize they are the deployment's. For a chart they are markers that
become ``{{ .Values.… }}``, and all other double braces are escaped, since Helm would run them. Two kinds of
comment lines serve the chart alone: ``#: if …``, ``#: else`` and ``#: end`` become Helm's actions, and the
rest of a line after ``#|`` is a line of the chart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import MEBI

PLACES: Mapping[str, str] = {
    "image": "image",
    "replicas": "replicas",
    "cpu": "resources.cpu",
    "memory": "resources.memory",
    "shm": "resources.shm",
    "gpus": "resources.gpus",
    "fetch_image": "repository.fetchImage",
    "gateway_image": "gateway.image",
    "gateway_replicas": "gateway.replicas",
    "gateway_cpu": "gateway.resources.cpu",
    "gateway_memory": "gateway.resources.memory",
    "least": "autoscaling.least",
    "most": "autoscaling.most",
    "domain": "route.host",
    "parent_name": "route.parent.name",
    "parent_namespace": "route.parent.namespace",
    "prometheus": "prometheus",
}
"""Values that an operator may override: name in the templates → place in values.yaml."""
NAMESPACE = "⟦Release.Namespace⟧"
"""Marker of the namespace of a chart's release."""
_MARKER = re.compile(r'"⟦([\w.]+)⟧"|⟦([\w.]+)⟧|(\{\{|\}\})')
_ACTION = re.compile(r"^[ ]*#: (.*)$", re.MULTILINE)
_CHART_LINE = re.compile(r"^([ ]*)#\|", re.MULTILINE)
_COMMENTS = re.compile(r"^[ ]*#[:|].*\n", re.MULTILINE)


def stated(deployment: Deployment) -> dict[str, str | int]:
    """The deployment's own values, by their names in the templates."""
    spec = deployment.spec
    namespace, _, name = spec.kubernetes.parent_gateway.rpartition("/")
    return {
        "image": deployment.image,
        "replicas": spec.server.replicas,
        "cpu": cores(spec.server.cpus),
        "memory": size(spec.server.memory),
        "shm": size(deployment.shared_memory),
        "gpus": spec.server.gpus,
        "fetch_image": spec.kubernetes.fetch_image or spec.gateway.image,
        "gateway_image": spec.gateway.image,
        "gateway_replicas": spec.gateway.replicas,
        "gateway_cpu": cores(spec.gateway.cpus),
        "gateway_memory": size(spec.gateway.memory),
        "least": spec.autoscaling.least,
        "most": spec.autoscaling.most or spec.server.replicas,
        "domain": spec.exposure.domain,
        "parent_name": name,
        "parent_namespace": namespace,
        "prometheus": spec.kubernetes.prometheus,
    }


def markers() -> dict[str, str]:
    """Markers in place of the values, for a chart."""
    return {name: f"⟦{place}⟧" for name, place in PLACES.items()}


def plain(text: str) -> str:
    """A rendered template without the lines for charts."""
    return _COMMENTS.sub("", text)


def chart(text: str) -> str:
    """A rendered template as Helm's template."""
    text = _MARKER.sub(_for_helm, _CHART_LINE.sub(r"\1", text))
    return _ACTION.sub(r"{{- \1 }}", text)


def cores(number: float) -> str:
    """A quantity of CPU: ``2``, ``500m``. https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
    return f"{number:g}" if number == int(number) else f"{round(number * 1000)}m"


def size(count: int) -> str:
    """A quantity of ``count`` bytes, rounded up to whole mebibytes."""
    mebis = math.ceil(count / MEBI)
    return f"{mebis // 1024}Gi" if mebis % 1024 == 0 else f"{mebis}Mi"


def _for_helm(match: re.Match[str]) -> str:
    if place := match[1] or match[2]:
        place = place if place.startswith("Release.") else f"Values.{place}"
        return f"{{{{ .{place} | quote }}}}" if match[1] else f"{{{{ .{place} }}}}"
    return f'{{{{ "{match[3]}" }}}}'
