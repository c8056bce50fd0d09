"""Docker Compose: the servers, Traefik before them, the gateway, Prometheus and Grafana, on one machine.

Format: https://github.com/compose-spec/compose-spec/blob/main/spec.md. The project's name is in the file, so
containers have known names (PROJECT-SERVICE-NUMBER), by which Traefik and Prometheus reach each replica.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_repo_builder.base import templates
from triton_repo_builder.ship.targets import containers, host_ports, metrics, routes, server
from triton_repo_builder.ship.targets.containers import SECRETS, escaped, refuse, variable
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.routes import Backend

FILE = "compose.yaml"
SERVER, PROXY, GATEWAY, MONITORING = "secrets", "proxy-secrets", "gateway-secrets", "monitoring-secrets"
"""Volumes with the secrets of a service, readable by its user: each has only what that service needs."""
FOLDER = "deploy/compose"
STORAGE = "storage.env"
"""File beside deploy.toml with a bucket's credentials, in Compose's format of env files."""


def preflight(deployment: Deployment) -> None:
    """Raise ``TrbError`` PORT_BUSY for a port that something other than this stack listens on."""
    exposure = deployment.spec.exposure
    ports = {
        "http_port": exposure.http_port,
        "grpc_port": exposure.grpc_port,
        "gateway_port": exposure.gateway_port if deployment.spec.gateway.image else 0,
    }
    host_ports.check(deployment, exposure.host, {name: port for name, port in ports.items() if port})
    if exposure.prometheus_port:
        port = {"prometheus_port": exposure.prometheus_port}
        host_ports.check(deployment, exposure.monitoring_host, port)


def render(deployment: Deployment) -> dict[str, str]:
    """The files. Raises ``TrbError`` for what Compose cannot do."""
    _possible(deployment)
    name, exposure = deployment.name, deployment.spec.exposure
    servers = [f"{name}-{name}-{number}" for number in _numbers(deployment.spec.server.replicas)]
    gateways = [f"{name}-{name}-gateway-{number}" for number in _numbers(_gateways(deployment))]
    keys, plain = deployment.spec.gateway.keys, containers.plain_key(deployment)
    monitoring = metrics.files(
        deployment,
        targets=[f"{each}:{server.METRICS}" for each in servers],
        gateways=[f"{each}:{server.GATEWAY}" for each in gateways if plain or not keys],
        gateway_key=f"{SECRETS}/{containers.METRICS_KEY}" if plain else "",
        proxies=[f"traefik:{containers.API}"],
    )
    tls = exposure.tls_certificate is not None
    return {
        FILE: templates.render(f"{FOLDER}/compose.yml.jinja", **_services(deployment)),
        "traefik/traefik.yml": templates.render(
            "deploy/traefik.yml.jinja",
            entries=containers.entry_points(deployment),
            grace=server.times(deployment).stop,
            buckets=routes.BUCKETS,
            api=containers.API,
        ),
        "traefik/routes.yml": routes.render(
            deployment,
            [
                Backend(http=f"http://{each}:{server.HTTP}", grpc=f"h2c://{each}:{server.GRPC}")
                for each in servers
            ],
            gateways=[f"http://{each}:{server.GATEWAY}" for each in gateways],
            certificate=f"{SECRETS}/{containers.CERTIFICATE}" if tls else "",
            key=f"{SECRETS}/{containers.TLS_KEY}" if tls else "",
        ),
        **_monitoring(monitoring, grafana=bool(exposure.grafana_port)),
    }


def _possible(deployment: Deployment) -> None:
    spec = deployment.spec
    if spec.server.gpus and spec.server.replicas > 1:
        raise refuse(
            deployment,
            f"'server.replicas' is {spec.server.replicas} and 'server.gpus' {spec.server.gpus}, but Compose "
            "gives each replica the same GPUs",
            "set server.replicas = 1 and use instance groups, or export swarm or kubernetes",
        )
    if spec.repository.source.kind == "oci" and not spec.gateway.image:
        raise refuse(
            deployment,
            "'repository.source' is oci://, which 'trb pull' of the gateway's image gets, and "
            "'gateway.image' names none",
            "name an image of 'trb image build --gateway'",
        )


def _numbers(replicas: int) -> range:
    return range(1, replicas + 1)


def _gateways(deployment: Deployment) -> int:
    return deployment.spec.gateway.replicas if deployment.spec.gateway.image else 0


def _services(deployment: Deployment) -> dict[str, Any]:
    """Values of the template."""
    spec, times = deployment.spec, server.times(deployment)
    name, exposure = spec.name, spec.exposure
    secrets = containers.secrets(deployment)
    user = f"{spec.server.user}:{spec.server.user}"
    prepare = [f"{name}-secrets"]
    if spec.repository.source.kind in ("oci", "git"):
        prepare.append(f"{name}-repository")
    stable = {
        "name": name,
        "image": escaped(deployment.image),
        "replicas": str(spec.server.replicas),
        "volumes": _repository(deployment, ""),
        "profile": "",
    }
    canary = {
        "name": f"{name}-canary",
        "image": variable("CANARY_IMAGE", deployment.image),
        "replicas": "${CANARY_REPLICAS:-1}",
        "volumes": _repository(deployment, "CANARY_REPOSITORY"),
        "profile": "canary",
    }
    return {
        "name": name,
        "servers": [stable, canary],
        "command": containers.texts(containers.command(deployment)),
        "health": containers.texts(server.health_command(deployment)),
        "times": times,
        "tick": server.TICK,
        "user": user,
        "cpus": containers.percent(spec.server.cpus),
        "memory": spec.server.memory,
        "shared_memory": deployment.shared_memory,
        "gpus": spec.server.gpus,
        "storage": escaped(_relative(deployment, deployment.file.parent / STORAGE))
        if spec.repository.source.kind in ("s3", "gs")
        else "",
        "labels": {
            part: containers.texts(containers.labels(deployment, part))
            for part in ("server", "gateway", "proxy", "monitoring")
        },
        "prepare": prepare,
        "metrics_key": containers.plain_key(deployment),
        "secrets": {each: escaped(_relative(deployment, path)) for each, path in sorted(secrets.items())},
        "handed": _handed(deployment),
        "tls": containers.CERTIFICATE in secrets,
        "gateway_keys": containers.GATEWAY_KEYS in secrets,
        "hand_out": escaped(_hand_out(user, _handed(deployment))),
        "fetch": _fetch(deployment),
        "gateway": _gateway(deployment),
        "traefik": variable("TRAEFIK_IMAGE", containers.TRAEFIK),
        "prometheus": variable("PROMETHEUS_IMAGE", containers.PROMETHEUS),
        "grafana": variable("GRAFANA_IMAGE", containers.GRAFANA) if exposure.grafana_port else "",
        "ports": [
            (each["published"], each["port"])
            for each in containers.entry_points(deployment)
            if each["published"]
        ],
        "exposure": exposure,
        "host": _bracketed(exposure.host),
        "monitoring_host": _bracketed(exposure.monitoring_host),
        "revision": deployment.revision[:12],
        "volume": spec.repository.source.kind in ("oci", "git"),
    }


def _relative(deployment: Deployment, path: Path) -> str:
    """A path as Compose reads it: relative to the folder of its file."""
    relative = os.path.relpath(path.resolve(), deployment.output.resolve())
    return relative if relative.startswith("..") else f"./{relative}"


def _repository(deployment: Deployment, name: str) -> list[dict[str, str]]:
    """The mount of the repository; ``name``: a variable that replaces a folder."""
    kind = deployment.spec.repository.source.kind
    if kind == "folder":
        path = _relative(deployment, deployment.repository.path)
        source = variable(name, path) if name else escaped(path)
        return [{"type": "bind", "source": source}]
    if kind in ("oci", "git"):
        return [{"type": "volume", "source": "models"}]
    return []


def _gateway(deployment: Deployment) -> dict[str, Any] | None:
    spec = deployment.spec
    if not spec.gateway.image:
        return None
    source = spec.repository.source.kind
    where, mounts = containers.models(deployment), _repository(deployment, "")
    if source in ("s3", "gs") or (source == "image" and spec.gateway.image != deployment.image):
        # Files that describe the models are enough, and this machine has them.
        where = server.MODELS
        mounts = [{"type": "bind", "source": escaped(_relative(deployment, deployment.repository.path))}]
    # Without a port for gRPC Traefik has no route to it.
    url = f"traefik:{containers.INNER}" if spec.exposure.grpc_port else f"{spec.name}:{server.GRPC}"
    return {
        "image": escaped(spec.gateway.image),
        "replicas": spec.gateway.replicas,
        "command": containers.texts(containers.gateway_command(deployment, url, where)),
        "health": containers.texts(containers.gateway_health()),
        "grace": containers.gateway_grace(deployment),
        "volumes": mounts,
        "cpus": containers.percent(spec.gateway.cpus),
        "memory": spec.gateway.memory,
    }


def _bracketed(address: str) -> str:
    """An address before a port."""
    return f"[{address}]" if ":" in address else address


def _handed(deployment: Deployment) -> dict[str, list[str]]:
    """The volumes of secrets, and the files in each."""
    secrets = containers.secrets(deployment)
    handed = {
        SERVER: [containers.ADMIN_KEY],
        PROXY: [containers.CERTIFICATE, containers.TLS_KEY] if containers.CERTIFICATE in secrets else [],
        GATEWAY: [containers.GATEWAY_KEYS] if containers.GATEWAY_KEYS in secrets else [],
        MONITORING: [containers.METRICS_KEY] if containers.plain_key(deployment) else [],
    }
    return {volume: names for volume, names in handed.items() if names}


def _hand_out(user: str, handed: Mapping[str, list[str]]) -> str:
    """A script that copies secrets into volumes, where the containers' user may read them.

    Compose mounts the files as they are, and 'trb' wants them readable by their owner only.
    """
    copies = []
    for volume, names in handed.items():
        for name in names:
            source, owner = f"cat {SECRETS}/{name}", user
            if name == containers.METRICS_KEY:
                # The first line that is neither empty, a comment nor a digest; its first word.
                source = (
                    r"sed -e '/^[[:space:]]*\(#\|sha256:\|$\)/d' -e 's/^[[:space:]]*//' "
                    rf"-e 's/[[:space:]].*//' -e q {SECRETS}/{containers.GATEWAY_KEYS}"
                )
                owner = containers.NOBODY
            copies.append(f"{source} | hand {volume} {name} {owner}")
    give = "cat > .$2; chmod 400 .$2; chown $3 .$2; mv -f .$2 $2"
    hand = f"hand() {{ cd /handed/$1; {give}; }}"
    return "\n".join(["umask 077", hand, *copies, *(f"chmod 755 /handed/{volume}" for volume in handed)])


def _fetch(deployment: Deployment) -> dict[str, Any] | None:
    """The service that gets the repository into a volume."""
    source = deployment.spec.repository.source
    if source.kind == "oci":
        return {
            "image": variable("FETCH_IMAGE", deployment.spec.gateway.image),
            "script": escaped(f"trb pull {shlex.quote(source.location)} {containers.PULLED}"),
        }
    if source.kind == "git":
        target, folder = containers.PULLED, shlex.quote(source.folder)
        steps = [
            f"test ! -d {target} || exit 0",
            "cd /tmp && git init -q clone && cd clone",
            f"git fetch -q --depth 1 {shlex.quote(source.url)} {source.commit}",
            "git checkout -q FETCH_HEAD",
            f"cp -r {folder} {target}.new && mv {target}.new {target}",
        ]
        return {"image": variable("FETCH_IMAGE", containers.GIT), "script": escaped("\n".join(steps))}
    return None


def _monitoring(export: dict[str, str], *, grafana: bool) -> dict[str, str]:
    """Prometheus' files, and Grafana's in the folders that it reads."""
    files: dict[str, str] = {}
    for path, content in export.items():
        if not path.startswith("grafana/"):
            files[f"monitoring/{path}"] = content
        elif grafana:
            place = "provisioning/dashboards/trb.yml" if path.endswith(".yml") else f"boards/{path[8:]}"
            files[f"grafana/{place}"] = content
    if grafana:
        files["grafana/provisioning/datasources/prometheus.yml"] = templates.render(
            f"{FOLDER}/datasource.yml.jinja"
        )
    return files
