"""``deploy.toml``: what runs, how many of it, who reaches it, and how a new version takes over."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from triton_repo_builder.base import files
from triton_repo_builder.base.declaration import Topic, declare, nested, option
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.option_values import (
    Bytes,
    FilePath,
    InvalidValue,
    Number,
    Real,
    Seconds,
    Share,
    Text,
    Value,
)
from triton_repo_builder.base.text import cut
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.measure.options import Slo
from triton_repo_builder.ship.targets.bounds import (
    LEAST_BODY,
    LEAST_MEMORY,
    MOST_BODY,
    MOST_MEMORY,
    Size,
    Steps,
)

FILE = "deploy.toml"
T = TypeVar("T")
MEBI = 1 << 20
HIGHEST_PORT = 65535
ALL = 100
"""Percent of the traffic: the last step of a canary."""
_GIT = re.compile(r"git\+(?P<url>(?:https|ssh|file)://[^\s#@]+)@(?P<commit>[0-9a-f]{40})#(?P<folder>[^\s#]+)")
STORES = ("s3", "gs", "az")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$)({_LABEL}\.)*{_LABEL}")
EXAMPLES: tuple[tuple[type[Value], str], ...] = ((Seconds, ', such as "5m"'), (Bytes, ', such as "4GiB"'))
"""Examples of values that look like numbers and are texts."""


@dataclass(frozen=True)
class Name(Value):
    """A name that every platform takes: RFC 1123's label, and short, since suffixes are added."""

    expected: ClassVar[str] = "name"
    longest: ClassVar[int] = 40

    def check(self, value: str) -> None:
        """Refuse other names."""
        if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", value) or len(value) > self.longest:
            raise InvalidValue(
                f"{cut(value)} is not a name that every platform takes",
                f"use at most {self.longest} small letters, digits and '-', with a letter first",
            )


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a platform gets the repository."""

    kind: str
    """``folder``, ``image``, ``git``, ``oci`` or a bucket's scheme: ``s3``, ``gs``, ``az``."""
    location: str = ""
    """The address, with its revision; empty for a folder and an image."""
    url: str = ""
    commit: str = ""
    folder: str = ""
    """Address, commit, and the repository's folder in it: of git alone."""


@dataclass(frozen=True)
class From(Value):
    """A repository's place: ``folder``, ``image``, ``s3://…``, ``oci://…`` or ``git+https://…@COMMIT#FOLDER``."""

    expected: ClassVar[str] = "folder, image or URL"

    def parse(self, text: str) -> Source:
        """The source. A URL must name one revision."""
        if text in ("folder", "image"):
            return Source(kind=text)
        if match := _GIT.fullmatch(text):
            return Source(kind="git", location=text, **match.groupdict())
        scheme = text.partition("://")[0]
        if scheme not in (*STORES, "oci") or "://" not in text:
            raise InvalidValue(
                f"{cut(text)} is no place of a repository",
                "write folder, image, s3://BUCKET/PREFIX@sha256:…, oci://REGISTRY/NAME@sha256:… or "
                "git+https://HOST/REPO@COMMIT#FOLDER",
            )
        if not re.search(r"://[^/@\s][^@\s]*@sha256:[0-9a-f]{64}$", text):
            raise InvalidValue(
                f"{cut(text)} names no revision, so replicas could serve different ones",
                "write it as 'trb push' prints it, with @sha256:… at its end",
            )
        return Source(kind=scheme, location=text)


def key(value: Value, help: str, unset: T, default: str = "") -> T:
    """A key of a table: its kind of value, its meaning, its default, and that in words."""
    return option(unset, value, Topic.DEPLOYMENT, help, default=default)


@dataclass(frozen=True, kw_only=True)
class RepositorySource:
    """The model repository."""

    path: Path = key(
        FilePath(file=False), "The repository's folder on this machine.", Path("model_repository")
    )
    revision: str = key(
        Text(),
        "sha256 of its files; an export refuses a folder that changed since.",
        "",
        default="not compared",
    )
    source: Source = key(
        From(),
        "Where servers get it: folder, image (it is in server.image), or a URL with a revision.",
        Source(kind="folder"),
        default="folder",
    )


@dataclass(frozen=True, kw_only=True)
class Server:
    """tritonserver: its image, its replicas, and what one replica has."""

    image: str = key(Text(), "Image with a tritonserver.", "", default="NVIDIA's image of the release")
    release: str = key(
        Text(),
        "Triton's release in the image.",
        "",
        default="of the image's tag (tritonserver:25.01-py3), else 24.10; without an image the newest",
    )
    replicas: int = key(Number(1, 1000), "Replicas without autoscaling.", 2)
    cpus: float = key(Real(0.1, 1024), "Cores of a replica.", 2.0)
    memory: int = key(
        Size(LEAST_MEMORY, MOST_MEMORY),
        "Memory of a replica, /dev/shm included.",
        4 << 30,
        default="4GiB",
    )
    gpus: int = key(Number(0, 64), "GPUs of a replica.", 0)
    start: float = key(
        Seconds(), "Until a replica that loads and warms up must be ready.", 300.0, default="5m"
    )
    drain: float = key(
        Seconds(), "From leaving the balancer until the server is stopped.", 10.0, default="10s"
    )
    stop: float = key(Seconds(), "For requests under way once it is stopped.", 30.0, default="30s")
    user: int = key(Number(1, 65535), "User and group of the process.", 1000)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """trb gateway: the API of OpenAI, Cohere, TEI and Hugging Face clients."""

    image: str = key(
        Text(),
        "Image of 'trb image build --gateway' (Swarm: and --repository, if source is image); without it "
        "there is no gateway.",
        "",
        default="none",
    )
    replicas: int = key(Number(1, 1000), "Replicas.", 1)
    cpus: float = key(Real(0.1, 1024), "Cores of a replica.", 1.0)
    memory: int = key(Size(LEAST_MEMORY, MOST_MEMORY), "Memory of a replica.", 1 << 30, default="1GiB")
    keys: Path | None = key(
        FilePath(folder=False), "File of API keys, as of --api-keys.", None, default="open"
    )


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Who reaches it. Model control, shared memory, trace and logging always need the admin key."""

    host: str = key(Text(), "Address that the proxy's ports are published on (Compose, Swarm).", "127.0.0.1")
    domain: str = key(Text(), "Host name of the route (Kubernetes, TLS).", "", default="any")
    http_port: int = key(Number(0, HIGHEST_PORT), "Of the proxy, for KServe V2 over HTTP; 0: none.", 8000)
    grpc_port: int = key(Number(0, HIGHEST_PORT), "Of the proxy, for KServe V2 over gRPC; 0: none.", 8001)
    gateway_port: int = key(Number(0, HIGHEST_PORT), "Of the proxy, for the gateway's API; 0: none.", 9000)
    monitoring_host: str = key(
        Text(),
        "Address of Prometheus and Grafana, which ask for no login; Swarm publishes them with 0.0.0.0 only.",
        "127.0.0.1",
    )
    prometheus_port: int = key(Number(0, HIGHEST_PORT), "Of Prometheus (Compose, Swarm); 0: none.", 9090)
    grafana_port: int = key(
        Number(0, HIGHEST_PORT), "Of Grafana (Compose, profile dashboard); 0: none.", 3000
    )
    tls_certificate: Path | None = key(FilePath(folder=False), "PEM file.", None, default="no TLS")
    tls_key: Path | None = key(FilePath(folder=False), "PEM file.", None, default="no TLS")
    admin_key: Path = key(
        FilePath(folder=False), "File with the key of the administrative APIs.", Path("admin_key")
    )
    body_limit: int = key(
        Size(LEAST_BODY, MOST_BODY), "Largest request that the proxy takes.", 64 << 20, default="64MiB"
    )


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Replicas by load; without ``most`` there is no autoscaling."""

    least: int = key(Number(1, 1000), "Fewest replicas.", 2)
    most: int = key(Number(0, 1000), "Most replicas; 0: no autoscaling.", 0)
    report: Path | None = key(
        FilePath(folder=False), "report.json of 'trb tune': the capacity of a replica.", None, default="none"
    )
    pending_batches: float = key(
        Real(0, 1000), "Full batches that wait in a replica, on average; 0: from the report.", 0.0
    )
    window: float = key(Seconds(), "Time that a smaller load must last.", 300.0, default="5m")


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """A cluster: what is there already, and what fetches the repository."""

    namespace: str = key(
        Text(),
        "Namespace of the objects; rules and queries keep to it. Without it no other may have this name.",
        "",
        default="that of kubectl",
    )
    parent_gateway: str = key(
        Text(), "Gateway (Gateway API) that routes attach to: NAME or NAMESPACE/NAME.", "gateway"
    )
    prometheus: str = key(
        Text(),
        "Address of Prometheus, for KEDA and Argo Rollouts.",
        "http://prometheus-operated.monitoring:9090",
    )
    fetch_image: str = key(
        Text(),
        "Image that fetches the repository in an init container: with trb (oci), with git (git).",
        "",
        default="gateway.image for oci",
    )


@dataclass(frozen=True, kw_only=True)
class SageMaker:
    """Amazon SageMaker: the account's side of an endpoint."""

    role: str = key(Text(), "ARN of the role that SageMaker assumes.", "", default="none")
    bucket: str = key(Text(), "s3://BUCKET/PREFIX that the archive is uploaded to.", "", default="none")
    instance: str = key(Text(), "Instance type of a replica.", "ml.m5.xlarge")
    endpoint: str = key(Text(), "Endpoint that requests reach.", "", default="the only one")
    stable: str = key(
        Text(),
        "SageMaker's name of the model that runs now, beside which a canary or shadow is put.",
        "",
        default="no such files",
    )


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Limits of a canary, relative to the stable version, beyond which it is taken back."""

    failures: float = key(Share(), "Share of failed requests above the stable version's.", 0.01)
    p99: float = key(Real(1, 100), "p99, and median, as a multiple of the stable version's.", 1.3)
    labels: float = key(Real(0, 100), "Population stability index of labels, lengths and confidence.", 0.25)
    answers: float = key(Share(), "Share of answers that differ from the stable version's.", 0.02)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Steps by which a new version takes over."""

    steps: tuple[int, ...] = key(
        Steps(int), "Percent of the traffic, ascending, 100 last.", (10, 50, ALL), default="[10, 50, 100]"
    )
    requests: int = key(Number(1, 10_000_000), "Requests that the canary must answer in each step.", 200)
    hold: float = key(Seconds(), "Shortest step.", 60.0, default="1m")
    timeout: float = key(
        Seconds(),
        "Longest step. Golden cases are the traffic where there is too little.",
        1800.0,
        default="30m",
    )
    rules: Rules = nested(Rules)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The whole file; paths are relative to its folder."""

    name: str = field(metadata=declare(Name(), Topic.DEPLOYMENT, "Name of the deployment."))
    objective: Objective = key(
        Slo(),
        "Latency objective, as of trb tune.",
        Objective(percentile="p99", ms=500.0),
        default="p99=500ms",
    )
    repository: RepositorySource = nested(RepositorySource)
    server: Server = nested(Server)
    gateway: Gateway = nested(Gateway)
    exposure: Exposure = nested(Exposure)
    autoscaling: Scaling = nested(Scaling)
    kubernetes: Kubernetes = nested(Kubernetes)
    sagemaker: SageMaker = nested(SageMaker)
    canary: Canary = nested(Canary)


def read(path: Path) -> Spec:
    """Read the file; its paths are from the current folder. Raises ``TrbError`` NOT_FOUND, USAGE."""
    try:
        text = files.read_text(path, limit=files.LARGEST_TOML)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise TrbError(
                Code.NOT_FOUND, "is not there", where=str(path), remedy="write it: trb deploy init"
            ) from None
        raise files.unreadable(path, error) from None
    except ValueError as error:
        raise wrong(path, f"is not valid TOML: {error}", "correct the file") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Spec:
    """The spec in the text of a file. Raises ``TrbError`` USAGE with file, table and key."""
    try:
        document = files.load_toml(text)
    except ValueError as error:
        raise TrbError(
            Code.USAGE, f"is not valid TOML: {error}", where=str(path), remedy="correct the file"
        ) from None
    spec = _table(Spec, document, path, "")
    check(spec, path)
    return spec


def _table(kind: type[T], document: Mapping[str, Any], path: Path, prefix: str) -> T:
    """A dataclass from a table. Raises ``TrbError`` USAGE."""
    keys = {each.name: each for each in fields(kind) if each.metadata}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in document.items():
        where = f"{prefix}{name}"
        if name not in keys:
            near = difflib.get_close_matches(name, keys, 1)
            table = f"[{prefix[:-1]}] has" if prefix else "there are"
            raise wrong(
                path,
                f"unknown key {cut(where)}",
                f"did you mean '{prefix}{near[0]}'?" if near else f"{table} {', '.join(keys)}",
            )
        if inner := keys[name].metadata.get("nested"):
            if not isinstance(value, dict):
                raise wrong(path, f"'{where}' is no table", f"write [{where}] on a line of its own")
            values[name] = _table(inner, value, path, f"{where}.")
        else:
            default = "" if keys[name].default is MISSING else keys[name].default
            values[name] = _value(keys[name].metadata["option"].value, value, default, path, where)
    for name, each in keys.items():
        # The path of a key that is not in the file is relative to the file, too; so are those of its tables.
        if name not in values and isinstance(each.default, Path):
            values[name] = path.parent / each.default
        elif name not in values and (inner := each.metadata.get("nested")):
            values[name] = _table(inner, {}, path, f"{prefix}{name}.")
    if kind is Spec and "name" not in values:
        raise wrong(path, "has no 'name'", 'write name = "…" in its first line')
    return kind(**values)


def _value(kind: Value, value: Any, unset: Any, path: Path, where: str) -> Any:
    """A checked value; an empty text is the default."""
    if value == "":
        return path.parent / unset if isinstance(unset, Path) else unset
    try:
        result = kind.from_toml(value, path.parent)
        kind.check(result)
    except InvalidValue as error:
        raise wrong(path, f"'{where}': {error.message}", error.remedy or f"correct '{where}'") from None
    except TypeError:
        example = next((text for each, text in EXAMPLES if isinstance(kind, each)), "")
        raise wrong(
            path, f"'{where}' = {cut(value)} is not valid", f"give it as {kind.expected}{example}"
        ) from None
    if isinstance(result, str) and not (result.isprintable() and result.isascii() and " " not in result):
        raise wrong(path, f"'{where}' = {cut(result)} has characters that no platform takes", "correct it")
    return result


def check(spec: Spec, path: Path) -> None:
    """Raise ``TrbError`` USAGE for a bad name and for values that contradict each other."""
    try:
        Name().check(spec.name)
    except InvalidValue as error:
        raise wrong(path, f"'name': {error.message}", error.remedy) from None
    steps, scaling, exposure = spec.canary.steps, spec.autoscaling, spec.exposure
    if spec.objective.share == 1:
        raise wrong(
            path,
            "'objective': max leaves no request that may be late, so no budget that could burn",
            "use p99, p95, p90 or p50",
        )
    if list(steps) != sorted(steps) or steps[-1] != ALL:
        raise wrong(path, "'canary.steps' must rise to 100", "write for example [10, 50, 100]")
    if spec.canary.hold > spec.canary.timeout:
        raise wrong(path, "'canary.hold' is longer than 'canary.timeout'", "lower it, or raise 'timeout'")
    if spec.server.start < 1:
        raise wrong(path, "'server.start' is below a second", "give the time to load and to warm up")
    if exposure.domain and not _DOMAIN.fullmatch(exposure.domain):
        raise wrong(
            path, f"'exposure.domain' {cut(exposure.domain)} is no host name", "write it as bert.example.com"
        )
    for address in ("host", "monitoring_host"):
        stated = getattr(exposure, address)
        try:
            ipaddress.ip_address(stated)
        except ValueError:
            raise wrong(
                path,
                f"'exposure.{address}' {cut(stated)} is not an address of this machine",
                "write 127.0.0.1, 0.0.0.0 for all networks, or the address of one",
            ) from None
    if scaling.most and scaling.most < scaling.least:
        raise wrong(
            path, f"'autoscaling.most' is below 'least', {scaling.least}", "raise it, or lower 'least'"
        )
    if (exposure.tls_certificate is None) != (exposure.tls_key is None):
        raise wrong(path, "'exposure' has half a TLS identity", "give both tls_certificate and tls_key")
    used: dict[int, str] = {}
    for name in ("http_port", "grpc_port", "gateway_port", "prometheus_port", "grafana_port"):
        port = getattr(exposure, name)
        if other := used.get(port):
            raise wrong(
                path,
                f"'exposure.{other}' and 'exposure.{name}' are both {port}",
                "give each its own, or 0 for none",
            )
        if port:
            used[port] = name
    source, digest = spec.repository.source, spec.repository.revision.removeprefix("sha256:")
    # A bucket's digest is the revision's, a registry's is the image's.
    if source.kind in STORES and digest and not source.location.endswith(f"@sha256:{digest}"):
        raise wrong(
            path,
            "'repository.source' is another revision than 'repository.revision'",
            "push the folder (trb push) and write the address that it prints",
        )
    if spec.repository.source.kind == "image" and not spec.server.image:
        raise wrong(
            path,
            "'repository.source' is image, but 'server.image' names none",
            "name the image of 'trb image build --repository'",
        )


def wrong(path: Path, message: str, remedy: str) -> TrbError:
    """The error for a value of the file."""
    return TrbError(Code.USAGE, message, where=str(path), remedy=remedy)
