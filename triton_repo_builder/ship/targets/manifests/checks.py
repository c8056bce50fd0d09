"""Refusals before anything is rendered: what a cluster would refuse later, or run wrong."""

from __future__ import annotations

import re

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.base.text import cut
from triton_repo_builder.run.gateway.api_keys import HASHED
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import wrong

SUFFIXES = ("-gateway", "-canary", "-headless", "-stable")
"""Ends of the names of objects that a deployment has besides its server."""
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PARENT = re.compile(rf"({_LABEL}/)?{_LABEL}(\.{_LABEL})*")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?(/[!-~]*)?")
# https://github.com/distribution/reference: a tag, a digest, or both.
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9][a-zA-Z0-9._-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@sha256:[0-9a-f]{64})?"
)


def check(deployment: Deployment) -> None:
    """Raise ``TrbError`` USAGE, with the key of deploy.toml."""
    spec = deployment.spec
    suffix = next((end for end in SUFFIXES if spec.name.endswith(end)), "")
    if suffix:
        raise wrong(
            deployment.file,
            f"'name' ends with {suffix}, as the objects of a deployment called "
            f"{cut(spec.name.removesuffix(suffix))} do",
            "take another name",
        )
    images = {
        "server.image": deployment.image,
        "gateway.image": spec.gateway.image,
        "kubernetes.fetch_image": spec.kubernetes.fetch_image,
    }
    for key, image in images.items():
        if image:
            _pinned(deployment, key, image)
    if not _PARENT.fullmatch(spec.kubernetes.parent_gateway):
        raise _not(deployment, "kubernetes.parent_gateway", spec.kubernetes.parent_gateway, "NAMESPACE/NAME")
    namespace = spec.kubernetes.namespace
    if namespace and not re.fullmatch(_LABEL, namespace):
        raise _not(deployment, "kubernetes.namespace", namespace, "a-z, 0-9 and -, 63 characters at most")
    if not _ADDRESS.fullmatch(spec.kubernetes.prometheus):
        raise _not(deployment, "kubernetes.prometheus", spec.kubernetes.prometheus, "http://HOST:PORT")
    _hashed(deployment)


def _pinned(deployment: Deployment, key: str, image: str) -> None:
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise _not(deployment, key, image, "REGISTRY/NAME:TAG")
    if not match["digest"] and match["tag"] in (None, "latest"):
        raise wrong(
            deployment.file,
            f"'{key}' = {cut(image)} may be another image tomorrow, so replicas could differ",
            "name a tag of one version, or better the digest: NAME@sha256:…",
        )


def _hashed(deployment: Deployment) -> None:
    """Keys in plain text are refused: a mounted Secret is readable for the group of the pod.

    Where files are rendered the keys need not be.
    """
    path = deployment.spec.gateway.keys
    if path is None or not path.exists():
        return
    try:
        lines = files.read(path).decode(errors="replace").splitlines()
    except OSError as error:
        raise files.unreadable(path, error) from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(("#", HASHED)):
            raise wrong(
                path,
                f"line {number} is a key in plain text, which the gateway refuses in a mounted Secret",
                "write sha256:HEX and the owner: printf %s KEY | sha256sum",
            )


def _not(deployment: Deployment, key: str, value: str, form: str) -> TrbError:
    return wrong(deployment.file, f"'{key}' = {cut(value)} is not of the form {form}", "correct it")
