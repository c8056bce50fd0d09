"""Docker Swarm: a stack whose replicas run on several machines, and whose updates go back by themselves.

Format: https://docs.docker.com/reference/compose-file/legacy-versions/ (version 3.8), as 'docker stack
deploy' reads it. How requests find replicas: the engine's DNS gives a service's name the addresses of all
tasks that are healthy and not about to stop (endpoint_mode dnsrr; a virtual address needs IP_VS in the
kernel). Traefik asks it for every connection. HTTP gets a connection for each request. gRPC keeps its
connections, so the server ends them after ``connection_age``, which is shorter than the time from leaving DNS
until it is stopped.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files, templates
from triton_repo_builder.ship.targets import containers, metrics, routes, server
from triton_repo_builder.ship.targets.containers import SECRETS, escaped, refuse, variable
from triton_repo_builder.ship.targets.facts import Deployment

FILE = "stack.yml"
FOLDER = "deploy/swarm"
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses that Swarm can publish on."""
NOWHERE = ("127.0.0.1", "::1")
"""Addresses that keep Prometheus unpublished: it asks for no login."""
FETCHED = "/tmp/repository"
"""The repository that a replica itself pulls."""
TICK = 5
"""Seconds between two health checks: an update waits for one for each replica."""
SLACK = 0.8
"""Longest life of a gRPC connection as a share of ``drain``: gRPC adds up to a tenth at random."""
CONNECTIONS = 2
"""Names of the service for each replica: Traefik has one gRPC connection for each name."""
MOST_CONNECTIONS = 32
REPLAY_LIMIT = 1 << 20
"""Largest gRPC request in bytes that Traefik can send again: it allocates as much for each request."""


def render(deployment: Deployment) -> dict[str, str]:
    """The files. Raises ``TrbError`` for what Swarm cannot do."""
    _possible(deployment)
    tls = deployment.spec.exposure.tls_certificate is not None
    monitoring = _monitoring(deployment)
    contents = {
        "traefik/traefik.yml": templates.render(
            "deploy/traefik.yml.jinja",
            entries=containers.entry_points(deployment),
            grace=server.times(deployment).stop,
            buckets=routes.BUCKETS,
            api=containers.API,
        ),
        "traefik/routes.yml": templates.render(
            f"{FOLDER}/routes.yml.jinja",
            entries=[each["name"] for each in containers.entry_points(deployment)],
            http=f"http://{deployment.name}:{server.HTTP}",
            grpc=[f"h2c://{name}:{server.GRPC}" for name in _names(deployment)],
            gateway=f"http://{deployment.name}-gateway:{server.GATEWAY}",
            domain=deployment.spec.exposure.domain,
            body_limit=deployment.spec.exposure.body_limit,
            replay_limit=REPLAY_LIMIT,
            certificate=f"{SECRETS}/{containers.CERTIFICATE}" if tls else "",
            key=f"{SECRETS}/{containers.TLS_KEY}",
        ),
        **{f"monitoring/{path}": text for path, text in monitoring.items()},
    }
    stack = templates.render(f"{FOLDER}/stack.yml.jinja", **_services(deployment, contents))
    return {FILE: stack, **contents}


def notes(deployment: Deployment) -> tuple[str, ...]:
    """A remark on the gateway's image: a stack cannot copy the repository out of the server's image."""
    spec = deployment.spec
    if not spec.gateway.image or spec.repository.source.kind != "image":
        return ()
    if spec.gateway.image == deployment.image:
        return ()
    return (
        f"the gateway reads the repository at {server.MODELS} in its own image, {spec.gateway.image}, and "
        "ends at once if it is not there: make one image for both with 'trb image build --gateway "
        "--repository FOLDER', and name it in server.image and gateway.image",
    )


def connection_age(deployment: Deployment) -> int:
    """Seconds after which a replica ends a gRPC connection."""
    return max(1, int(SLACK * server.times(deployment).drain))


def _possible(deployment: Deployment) -> None:
    spec = deployment.spec
    kind = spec.repository.source.kind
    if kind in ("folder", "git"):
        raise refuse(
            deployment,
            f"'repository.source' is {kind}, which the other machines of a swarm do not have",
            'make an image with it (trb image build --repository) and set source = "image", or push it '
            "(trb push s3://…) and set that URL",
        )
    if spec.exposure.host not in EVERYWHERE:
        raise refuse(
            deployment,
            f"'exposure.host' is {spec.exposure.host}, "
            "but Swarm publishes a port on every address of a machine",
            'set exposure.host = "0.0.0.0" if that is meant, and keep strangers out with a firewall',
        )
    if spec.exposure.prometheus_port and spec.exposure.monitoring_host not in (*EVERYWHERE, *NOWHERE):
        raise refuse(
            deployment,
            f"'exposure.monitoring_host' is {spec.exposure.monitoring_host}, "
            "but Swarm publishes a port on every address of a machine",
            f'leave it at {NOWHERE[0]}, which publishes nothing; with "0.0.0.0" everybody who reaches the '
            "machine may ask Prometheus",
        )
    if spec.gateway.image and kind in ("s3", "gs"):
        raise refuse(
            deployment,
            f"'repository.source' is {kind}://, which a gateway cannot read, and it needs the repository",
            'set source = "image" or an oci:// URL, or gateway.image = ""',
        )
    if kind == "oci" and not spec.gateway.image:
        raise refuse(
            deployment,
            "'repository.source' is oci://, which each replica gets with 'trb pull', and "
            "'gateway.image' names no image that has it",
            "name an image of 'trb image build --gateway'; it has a tritonserver, too",
        )
    if server.times(deployment).drain < 2:
        raise refuse(
            deployment,
            f"'server.drain' is {spec.server.drain:g} s: gRPC connections must end before a replica does",
            "set 5s or more",
        )


def _names(deployment: Deployment) -> list[str]:
    """Names of the service for gRPC."""
    count = min(MOST_CONNECTIONS, CONNECTIONS * deployment.spec.server.replicas)
    return [f"{deployment.name}-grpc-{number}" for number in range(1, count + 1)]


def _command(deployment: Deployment) -> list[str]:
    """The command of a replica, which pulls the repository itself if it is in a registry."""
    source = deployment.spec.repository.source
    age = f"--grpc-max-connection-age={connection_age(deployment) * 1000}"
    # Traefik's pings, by which it notices a dead machine, are no attack.
    words = [
        age if word.startswith("--grpc-max-connection-age=") else word
        for word in containers.command(deployment, drain=True)
    ] + ["--grpc-http2-max-ping-strikes=0"]
    if source.kind == "oci":
        words[2] = f"trb pull {shlex.quote(source.location)} {FETCHED} || exit 1\n{words[2]}"
        words = [word.replace(containers.PULLED, FETCHED) for word in words]
    return words


def _monitoring(deployment: Deployment) -> dict[str, str]:
    """Prometheus' files: the rules of ``trb export monitoring``, and replicas by their name in DNS."""
    export = metrics.files(deployment, targets=[f"{deployment.name}:{server.METRICS}"])
    rules = {
        path: text
        for path, text in export.items()
        if path.endswith(".yml") and "/" not in path and path != "prometheus.yml"
    }
    jobs = [("tritonserver", deployment.name, server.METRICS), ("traefik", "traefik", containers.API)]
    if deployment.spec.gateway.image and not deployment.spec.gateway.keys:
        jobs.insert(1, ("trb-gateway", f"{deployment.name}-gateway", server.GATEWAY))
    scrape = templates.render(f"{FOLDER}/prometheus.yml.jinja", rule_files=sorted(rules), jobs=jobs)
    return {**rules, "prometheus.yml": scrape}


def _services(deployment: Deployment, contents: dict[str, str]) -> dict[str, Any]:
    spec, times = deployment.spec, server.times(deployment)
    source = spec.repository.source.kind
    image = spec.gateway.image if source == "oci" else deployment.image
    url = f"traefik:{containers.INNER}" if spec.exposure.grpc_port else f"{spec.name}:{server.GRPC}"
    return {
        "name": spec.name,
        "server": spec.server,
        "gateway": spec.gateway,
        "exposure": spec.exposure,
        "image": escaped(image),
        "command": containers.texts(_command(deployment)),
        "health": containers.texts(server.health_command(deployment)),
        "gateway_command": containers.texts(_gateway_command(deployment, url)),
        "gateway_health": containers.texts(containers.gateway_health()),
        "gateway_grace": containers.gateway_grace(deployment),
        "times": times,
        "tick": TICK,
        "cpus": containers.percent(spec.server.cpus),
        "gateway_cpus": containers.percent(spec.gateway.cpus),
        "shared_memory": deployment.shared_memory,
        "disk": source in ("s3", "gs", "oci") or _unpacks(deployment),
        "gateway_disk": source == "oci",
        "prometheus_port": spec.exposure.prometheus_port
        if spec.exposure.monitoring_host in EVERYWHERE
        else 0,
        "storage": escaped(_relative(deployment, deployment.file.parent / "storage.env"))
        if (deployment.file.parent / "storage.env").exists() and source in ("s3", "gs")
        else "",
        "names": _names(deployment),
        "labels": {
            part: containers.texts(containers.labels(deployment, part))
            for part in ("server", "gateway", "proxy", "monitoring")
        },
        "traefik": variable("TRAEFIK_IMAGE", containers.TRAEFIK),
        "prometheus": variable("PROMETHEUS_IMAGE", containers.PROMETHEUS),
        "ports": [
            (each["published"], each["port"])
            for each in containers.entry_points(deployment)
            if each["published"]
        ],
        "configs": [
            {
                "key": path.replace("/", "-").replace(".yml", ""),
                "file": path,
                "name": f"{spec.name}-{path.replace('/', '-')}-{_hash(text.encode())}",
            }
            for path, text in sorted(contents.items())
        ],
        "secrets": [
            {
                "key": each,
                "file": escaped(_relative(deployment, path)),
                "name": f"{spec.name}-{each.replace('_', '-')}-{_hash(_content(path))}",
            }
            for each, path in sorted(containers.secrets(deployment).items())
        ],
        "keys": bool(spec.gateway.keys),
        "tls": spec.exposure.tls_certificate is not None,
    }


def _unpacks(deployment: Deployment) -> bool:
    """Whether a Python environment is unpacked in /tmp: a tmpfs of a stack is mounted ``noexec``."""
    models = deployment.repository.models
    return any("EXECUTION_ENV_PATH" in model.config.parameters for model in models if model.stated)


def _gateway_command(deployment: Deployment, url: str) -> list[str]:
    """The command of a gateway, which pulls the repository itself if it is in a registry."""
    source = deployment.spec.repository.source
    if source.kind != "oci":
        return containers.gateway_command(deployment, url, server.MODELS)
    words = containers.gateway_command(deployment, url, FETCHED)
    return ["sh", "-c", f'trb pull {shlex.quote(source.location)} {FETCHED} && exec "$@"', "sh", *words]


def _relative(deployment: Deployment, path: Path) -> str:
    """A path as the stack's file names it: relative to its folder."""
    relative = os.path.relpath(path.resolve(), deployment.output.resolve())
    return relative if relative.startswith("..") else f"./{relative}"


def _content(path: Path) -> bytes:
    """Raises ``TrbError`` for a secret that cannot be read."""
    try:
        return files.read(path)
    except OSError as error:
        raise files.unreadable(path, error) from None


def _hash(content: bytes) -> str:
    """Part of a name: configs and secrets of a swarm cannot change, so another content gets another name."""
    return hashlib.sha256(content).hexdigest()[:8]
