"""The two clients, and an endpoint made ready for checking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from triton_repo_builder.client import (
    Array,
    GrpcClient,
    HttpClient,
    Metadata,
    RequestFailed,
    encode_binary,
    encode_json,
)
from triton_repo_builder.golden import cases
from triton_repo_builder.smoke import sample
from triton_repo_builder.smoke.target import Target, steps

GRPC = "gRPC"
JSON = "HTTP JSON"
BINARY = "HTTP binary"
NOT_IN_JSON = {"FP16", "BF16"}


class Urls(Protocol):
    """Where the server listens: ``http://host:port`` and ``host:port``."""

    @property
    def http(self) -> str:
        """Url of the HTTP endpoint."""

    @property
    def grpc(self) -> str:
        """Address of the gRPC endpoint."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user may choose."""

    endpoints: tuple[str, ...] = ()
    clients: int = 16
    requests: int = 8
    """Requests per client."""
    timeout: float = 30.0
    cases: bool = True
    """False: golden cases are neither expected nor used."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A model that clients call, with everything the checks need to call it."""

    name: str
    metadata: Metadata
    max_batch_size: int
    models: Mapping[str, int]
    """The endpoint and the models it is composed of, with how often a request runs each."""
    optional: frozenset[str]
    """Inputs that a request may leave out."""
    file: cases.CaseFile | None
    """Golden cases, or cases made from the server's own first answers; None where neither could be had."""
    golden: bool
    example: Mapping[str, Array]
    """Inputs of a request that should be answered; empty where none could be made."""
    why: str = ""
    """Why there are no golden cases, or none at all."""

    @property
    def http_protocol(self) -> str:
        """JSON, but for what cannot travel so (TRITON.md, section 7)."""
        return BINARY if self.not_json else JSON

    @property
    def not_json(self) -> str:
        """Why requests cannot be JSON; empty where they can."""
        types = {tensor.datatype for tensor in self.metadata.inputs + self.metadata.outputs}
        if types & NOT_IN_JSON:
            return "binary tensors: JSON cannot carry 16-bit floats"
        return "binary tensors: JSON strings cannot carry the bytes of a file" if self.binary else ""

    @property
    def binary(self) -> bool:
        """Whether it takes bytes that are no text, such as image files."""
        return self.file is not None and any(t.binary for case in self.file.cases for t in case.inputs)

    @property
    def protocols(self) -> tuple[str, str]:
        """The two ways in which every case is sent."""
        return (GRPC, self.http_protocol)

    @property
    def text(self) -> bool:
        """Whether it takes texts."""
        return not self.binary and any(tensor.datatype == "BYTES" for tensor in self.metadata.inputs)


@dataclass(frozen=True, kw_only=True)
class Session:
    """One run: clients and options."""

    http: HttpClient
    grpc: GrpcClient
    options: Options

    def sender(
        self, model: str, protocol: str, inputs: Mapping[str, Array]
    ) -> Callable[[], dict[str, Array]]:
        """A request that is encoded now and sent with each call."""
        if protocol == GRPC:
            return lambda: self.grpc.infer(model, inputs)
        body = encode_binary(inputs) if protocol == BINARY else encode_json(inputs)
        return lambda: self.http.infer(model, body)

    def ask(self, model: str, protocol: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Send one request."""
        return self.sender(model, protocol, inputs)()


def inputs_of(case: cases.Case) -> dict[str, Array]:
    """The tensors of a case's request."""
    return {tensor.name: tensor.array() for tensor in case.inputs}


def prepare(session: Session, target: Target) -> Endpoint:
    """Ask the server for what the repository does not say, and make inputs where none are recorded.

    Raises ``RequestFailed`` where the server does not know the endpoint.
    """
    metadata = session.http.metadata(target.name)
    config = session.http.config(target.name)
    size = int(config.get("max_batch_size", 0))
    models = Counter({target.name: 1})
    _count(session, target.name, 1, models)
    file = target.golden
    golden, why = file is not None, target.why
    example: Mapping[str, Array]
    if file is not None:
        example = inputs_of(file.cases[0])
    else:
        why = why or "golden cases were left out (--no-cases)"
        file, example, reason = sample.record(session.grpc, metadata, size)
        why = f"{why}; {reason}" if reason else why
    return Endpoint(
        name=target.name,
        metadata=metadata,
        max_batch_size=size,
        models=dict(models),
        optional=frozenset(item["name"] for item in config.get("input", ()) if item.get("optional")),
        file=file,
        golden=golden,
        example=example,
        why=why,
    )


def _count(session: Session, name: str, times: int, models: Counter[str]) -> None:
    try:
        called = Counter(steps(session.http.config(name)))
    except RequestFailed:
        return
    for step, number in called.items():
        models[step] += times * number
        _count(session, step, times * number, models)
