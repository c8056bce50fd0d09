"""``trb export kubernetes``: a kustomize base for any cluster, components for what operators add, overlays.

https://kubectl.docs.kubernetes.io/guides/config_management/components/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triton_repo_builder.base import templates
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.manifests.objects import GATEWAY, SERVER, Objects, objects

FOLDER = "deploy/kubernetes"


def render(deployment: Deployment) -> dict[str, str]:
    """The files. Raises ``TrbError`` for what a cluster could not run."""
    each = objects(deployment, helm=False)
    parts = {**components(each), "rollout": _rollout(each), **_image_volume(each)}
    plain = base(each)
    files = _folder("base", plain, _kustomization("base", each, resources=list(plain)))
    for name, content in parts.items():
        folder = f"components/{name}"
        patches = [path for path in content if path.startswith("patch-")]
        resources = [path for path in content if path not in patches]
        kustomization = _kustomization("component", each, name=name, resources=resources, patches=patches)
        files |= _folder(folder, content, kustomization)
    for name, used in _overlays(parts).items():
        files[f"overlays/{name}/kustomization.yaml"] = _kustomization("overlay", each, name=name, used=used)
    canary = _canary(each)
    files |= _folder("overlays/canary", canary, _kustomization("canary", each, resources=list(canary)))
    if each.scaling:
        files["prometheus-adapter.yaml"] = each.autoscaler("prometheus-adapter")
    return files


def base(each: Objects) -> dict[str, str]:
    """Objects that every cluster knows."""
    name = each.name
    files = {
        "serviceaccount.yaml": each.account(),
        "deployment.yaml": each.server(name),
        "service.yaml": each.service(name, selects=name),
        "service-headless.yaml": each.service(f"{name}-headless", selects=name, headless=True, scraped=True),
        "pdb.yaml": each.disruption(SERVER),
        "networkpolicy.yaml": each.network(name, SERVER),
    }
    if each.scaling:
        files["hpa.yaml"] = each.autoscaler("hpa")
    if each.has_gateway:
        files["gateway-deployment.yaml"] = each.gateway()
        files["gateway-service.yaml"] = each.gateway_service()
        files["gateway-networkpolicy.yaml"] = each.network(name, GATEWAY)
        if each.helm or each.deployment.spec.gateway.replicas > 1:
            files["gateway-pdb.yaml"] = each.disruption(GATEWAY)
    return files


def components(each: Objects) -> dict[str, dict[str, str]]:
    """Objects that need an operator, or a sync: component → file → text."""
    monitoring = {"servicemonitor.yaml": each.monitor(SERVER)}
    if each.has_gateway:
        monitoring["gateway-servicemonitor.yaml"] = each.monitor(GATEWAY)
    monitoring |= {f"prometheusrule-{name}.yaml": text for name, text in each.rules().items()}
    parts = {
        "monitoring": monitoring,
        "route": routes(each, None),
        "smoke": {"job.yaml": each.smoke()},
    }
    if each.scaling:
        parts["keda"] = {"scaledobject.yaml": each.autoscaler("scaledobject")}
    return parts


def routes(each: Objects, canary: int | None) -> dict[str, str]:
    """The routes of the Gateway API, with the canary's share in percent."""
    files = {"httproute.yaml": each.route("http", canary)}
    if each.deployment.spec.exposure.grpc_port:
        files["grpcroute.yaml"] = each.route("grpc", canary)
    return files


def rollout(each: Objects) -> dict[str, str]:
    """The Rollout, its analyses, and the Services of both versions."""
    name = each.name
    return {
        "service.yaml": each.service(f"{name}-canary", selects=name),
        "service-stable.yaml": each.service(f"{name}-stable", selects=name, headless=True, track="stable"),
        **each.rollout(),
    }


def _rollout(each: Objects) -> dict[str, str]:
    return {**rollout(each), **{f"patch-{path}": text for path, text in routes(each, 0).items()}}


def _image_volume(each: Objects) -> dict[str, dict[str, str]]:
    if not each.server_access.image_volume:
        return {}
    text = templates.render(f"{FOLDER}/image-volume.yaml.jinja", reference=each.server_access.image_volume)
    return {"image-volume": {"patch-pods.yaml": text}}


def _canary(each: Objects) -> dict[str, str]:
    """A second server of this version beside the one that runs, and the first step's weights."""
    name = f"{each.name}-canary"
    return {
        "deployment.yaml": each.server(name),
        "service.yaml": each.service(name, selects=name, scraped=True),
        "networkpolicy.yaml": each.network(name, SERVER),
        **routes(each, each.deployment.spec.canary.steps[0]),
    }


def _overlays(parts: Mapping[str, object]) -> dict[str, list[str]]:
    """Overlay → components, in this order: patches come after what they change."""
    usual = [name for name in ("monitoring", "route", "smoke", "keda") if name in parts]
    overlays = {"operators": usual, "rollout": [*usual, "rollout"]}
    if "image-volume" in parts:
        overlays["image-volume"] = [*usual, "image-volume"]
    return overlays


def _folder(folder: str, content: Mapping[str, str], kustomization: str) -> dict[str, str]:
    files = {f"{folder}/{path}": text for path, text in content.items()}
    return {**files, f"{folder}/kustomization.yaml": kustomization}


def _kustomization(
    template: str,
    each: Objects,
    *,
    name: str = "",
    resources: Sequence[str] = (),
    patches: Sequence[str] = (),
    used: Sequence[str] = (),
) -> str:
    spec = each.deployment.spec
    return templates.render(
        f"{FOLDER}/kustomization-{template}.jinja",
        name=each.name,
        component=name,
        own_namespace=spec.kubernetes.namespace,
        resources=resources,
        patches=patches,
        used=used,
        file=each.deployment.file.name,
        admin_key=spec.exposure.admin_key.name,
        keys=spec.gateway.keys,
        secret=each.server_access.secret,
        source=spec.repository.source.kind,
        steps=spec.canary.steps,
        scaled=each.scaling is not None,
        gateway=each.gateway_values() if each.has_gateway else None,
        autoscaler="ScaledObject" if each.scaling else "",
    )
