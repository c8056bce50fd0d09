"""Parts that Compose and Swarm share: commands with a key from a file, images, the repository's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores.bucket import REVISIONS
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.s3 import S3Store
from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.spec import ALL

TRAEFIK = "traefik:v3.7.15"
PROMETHEUS = "prom/prometheus:v2.53.3"
GRAFANA = "grafana/grafana:11.6.0"
GIT = "alpine/git:v2.47.2"
"""Images of others, each as its project publishes it."""
SECRETS = "/run/secrets"
ADMIN_KEY, CERTIFICATE, TLS_KEY, GATEWAY_KEYS = "admin_key", "tls_certificate", "tls_key", "gateway_keys"
METRICS_KEY = "gateway_key"
"""Files in that folder; the last is one of the gateway's keys, for Prometheus."""
NOBODY = "65534:65534"
"""User and group of Prometheus' image."""
PULLED = f"{server.MODELS}/repository"
"""The repository in a volume: trb pull makes a folder of its own, so that it is there whole or not at all."""
INNER = 8101
"""Traefik's port for the gateway: gRPC, not published."""
API = 8080
"""Traefik's port for its ping, metrics and API, not published."""
GATEWAY_DEADLINE = 30
"""Seconds that ``trb gateway`` gives a request, and another five to end: ``run/gateway/options.py``."""
LABEL = "io.github.triton-repo-builder"


def models(deployment: Deployment) -> str:
    """The repository as tritonserver names it. Raises ``TrbError`` for a store that it cannot read."""
    source = deployment.spec.repository.source
    if source.kind in ("folder", "image"):
        return server.MODELS
    if source.kind in ("oci", "git"):
        return PULLED
    location = stores.parse(source.location)
    assert isinstance(location, Bucket)
    if source.kind == "az":
        raise TrbError(
            Code.USAGE,
            "'repository.source' is az://, which tritonserver addresses by account and container",
            where=str(deployment.file),
            remedy="push the repository to oci:// or s3://",
        )
    if location.endpoint:
        return S3Store(location).models_url(location.revision)
    return f"{source.kind}://{location.root}/{REVISIONS}/{location.revision}"


def script(deployment: Deployment, *, drain: bool) -> str:
    """A shell's script that runs tritonserver with its arguments and the key of the administrative APIs.

    ``drain``: SIGTERM reaches the server only after ``server.drain``. It is for platforms that take a replica
    from the balancer at the time of the signal, since a server that ends refuses new requests at once.
    """
    key = f'$(tr -d "\\r\\n" < {SECRETS}/{ADMIN_KEY})'
    # POSIX: within double quotes, those of a command substitution are its own.
    command = 'tritonserver "$@" ' + " ".join(f'"{each}"' for each in server.restricted(key))
    if not drain:
        return f"exec {command}"
    return "\n".join(
        [
            f"{command} &",
            "server=$!",
            f"trap 'sleep {server.times(deployment).drain}; kill -TERM $server' TERM INT",
            # A signal ends wait, too, so it is asked again while the server is there.
            "code=0",
            "wait $server || code=$?",
            "while kill -0 $server 2> /dev/null; do code=0; wait $server || code=$?; done",
            "exit $code",
        ]
    )


def command(deployment: Deployment, *, drain: bool = False) -> list[str]:
    """The command of a server's container; the first ``tritonserver`` is the script's name."""
    arguments = server.arguments(deployment, models=models(deployment))
    return ["sh", "-c", script(deployment, drain=drain), "tritonserver", *arguments]


def gateway_command(deployment: Deployment, url: str, repository: str) -> list[str]:
    """The command of a gateway's container. ``url``: Triton's gRPC address."""
    exposure, keys = deployment.spec.exposure, deployment.spec.gateway.keys
    mebi = max(1, min(1024, exposure.body_limit >> 20))
    return [
        *("trb", "gateway", f"--url={url}", "--host=0.0.0.0", f"--port={server.GATEWAY}"),
        f"--repo={repository}",
        f"--max-body={mebi}",
        f"--drain={server.times(deployment).drain}",
        *([f"--api-keys={SECRETS}/{GATEWAY_KEYS}"] if keys else []),
    ]


def gateway_health() -> list[str]:
    """A health check inside a gateway's container."""
    url = f"http://127.0.0.1:{server.GATEWAY}/health"
    code = f"import urllib.request; urllib.request.urlopen({url!r}, timeout=8).close()"
    return ["python3", "-I", "-c", code]


def gateway_grace(deployment: Deployment) -> int:
    """Seconds that a gateway may take to stop."""
    return server.times(deployment).drain + GATEWAY_DEADLINE + 2 * server.MARGIN


def secrets(deployment: Deployment) -> dict[str, Path]:
    """Files that containers get, by name."""
    exposure = deployment.spec.exposure
    paths = {
        ADMIN_KEY: exposure.admin_key,
        CERTIFICATE: exposure.tls_certificate,
        TLS_KEY: exposure.tls_key,
        GATEWAY_KEYS: deployment.spec.gateway.keys if deployment.spec.gateway.image else None,
    }
    return {name: path for name, path in paths.items() if path is not None}


def plain_key(deployment: Deployment) -> bool:
    """Whether the gateway's keys have one in plain text, by which Prometheus can ask for metrics."""
    path = deployment.spec.gateway.keys
    if path is None:
        return False
    try:
        lines = files.read_text(path, limit=files.LARGEST_DOCUMENT).split("\n")
    except OSError as error:
        raise files.unreadable(path, error) from None
    words = [line.split()[0] for line in lines if line.split()]
    return any(not word.startswith(("#", "sha256:")) for word in words)


def labels(deployment: Deployment, component: str) -> dict[str, str]:
    """Labels of a container."""
    return {
        "app.kubernetes.io/name": deployment.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "trb",
        f"{LABEL}.revision": deployment.revision[:63],
        **(dict(deployment.labels) if component == "server" else {}),
    }


def entry_points(deployment: Deployment) -> list[dict[str, object]]:
    """Traefik's ports: name, port in its container, seconds that it still takes requests after SIGTERM."""
    exposure = deployment.spec.exposure
    gateway = bool(deployment.spec.gateway.image)
    points = (
        ("http", server.HTTP, exposure.http_port, 0),
        ("grpc", server.GRPC, exposure.grpc_port, 0),
        ("gateway", server.GATEWAY, gateway and exposure.gateway_port, 0),
        # Gateways end after Traefik, and what they have under way may need more requests.
        ("inner", INNER, gateway and exposure.grpc_port, server.times(deployment).drain),
    )
    return [
        {"name": name, "port": port, "published": 0 if name == "inner" else published, "accept": accept}
        for name, port, published, accept in points
        if published
    ]


def escaped(text: str) -> str:
    """A text in which Compose and Swarm replace no variable."""
    return text.replace("$", "$$")


def texts(values: Sequence[str] | Mapping[str, str], escape: Callable[[str], str] = escaped) -> object:
    """A list or mapping of escaped texts."""
    if isinstance(values, Mapping):
        return {key: escape(value) for key, value in values.items()}
    return [escape(value) for value in values]


def variable(name: str, default: str) -> str:
    """A variable of the environment with a default."""
    return f"${{{name}:-{escaped(default)}}}"


def percent(cpus: float) -> str:
    """Cores as both formats take them: a text."""
    return f"{round(cpus * ALL) / ALL:g}"


def refuse(deployment: Deployment, message: str, remedy: str) -> TrbError:
    """The error for what a platform cannot do."""
    return TrbError(Code.USAGE, message, where=str(deployment.file), remedy=remedy)
