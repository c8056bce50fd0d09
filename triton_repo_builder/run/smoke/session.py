"""The two clients, and an endpoint made ready for checking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from triton_repo_builder.base import releases
from triton_repo_builder.repository import cases, composition
from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client import NOT_IN_JSON, HttpClient, RequestFailed
from triton_repo_builder.run.client.codec import Array, encode_binary, encode_json
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke import sample
from triton_repo_builder.run.smoke.target import StatedEndpoint

GRPC = "gRPC"
JSON = "HTTP JSON"
BINARY = "HTTP binary"
ANSWERS_MODEL = "answers_model"
DECOUPLED = "decoupled: its answers come as a stream, which smoke does not read"


@dataclass(frozen=True, kw_only=True)
class ServedEndpoint:
    """The endpoint under test, with everything the checks need to call it."""

    interface: Endpoint
    """The endpoint as the server states it."""
    models: Mapping[str, int]
    """The endpoint and the models it is composed of, with how often a request runs each."""
    file: cases.CaseFile | None
    """Golden cases, or cases made from the server's own first answers; None if there are neither."""
    golden: bool
    example: Mapping[str, Array]
    """Inputs of a request that should be answered; empty if none could be made."""
    why: str = ""
    """Why there are no golden cases, or none at all."""
    sampled: Mapping[str, int] = field(default_factory=dict)
    """Instances that send a model rows again for its metrics (``runtime/answer_metrics.py``)."""

    @property
    def name(self) -> str:
        """The endpoint's name on the server."""
        return self.interface.name

    @property
    def max_batch_size(self) -> int:
        """0 if Triton does not batch it."""
        return self.interface.max_batch_size

    @property
    def http_protocol(self) -> str:
        """JSON, unless its tensors cannot travel so."""
        return BINARY if self.not_json else JSON

    @property
    def not_json(self) -> str:
        """Why requests cannot be JSON; empty if they can."""
        types = {tensor.datatype for tensor in self.interface.inputs + self.interface.outputs}
        if types & NOT_IN_JSON:
            return "binary tensors: JSON cannot carry 16-bit floats"
        return "binary tensors: JSON strings cannot carry the bytes of a file" if self.binary else ""

    @property
    def binary(self) -> bool:
        """Whether it takes bytes that are not text, such as image files."""
        return self.file is not None and any(t.binary for case in self.file.cases for t in case.inputs)

    @property
    def protocols(self) -> tuple[str, str]:
        """The two ways in which every case is sent."""
        return (GRPC, self.http_protocol)

    @property
    def text(self) -> bool:
        """Whether it takes texts."""
        return not self.binary and any(tensor.datatype == "BYTES" for tensor in self.interface.inputs)


@dataclass(frozen=True, kw_only=True)
class SmokeSession:
    """One run: clients and options."""

    http: HttpClient
    grpc: GrpcClient
    options: SmokeOptions
    release: releases.Release = field(default_factory=releases.default)
    """The release of the server."""

    def sender(
        self, model: str, protocol: str, inputs: Mapping[str, Array]
    ) -> Callable[[], dict[str, Array]]:
        """A request that is encoded now and sent with each call."""
        if protocol == GRPC:
            return lambda: self.grpc.infer(model, inputs)
        body = encode_binary(inputs) if protocol == BINARY else encode_json(inputs)
        return lambda: self.http.infer(model, body)

    def unready(self, client: HttpClient | GrpcClient, endpoint: ServedEndpoint) -> str:
        """The first of the endpoint and its steps that is not ready, empty if all are.

        A step whose Python process died is not ready from release 26.01 on; the ensemble above it stays so.
        """
        return next((model for model in endpoint.models if not client.ready(model)), "")

    def ask(self, model: str, protocol: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Send one request."""
        return self.sender(model, protocol, inputs)()


def inputs_of(case: cases.Case) -> dict[str, Array]:
    """The tensors of a case's request."""
    return {tensor.name: tensor.array() for tensor in case.inputs}


def prepare(session: SmokeSession, target: StatedEndpoint) -> ServedEndpoint:
    """Ask the server for facts that the repository lacks, and generate inputs if none are recorded.

    Raises ``RequestFailed`` if the server does not serve the endpoint.
    """
    http = session.http
    interface = http.endpoint(target.name, http.config(target.name))
    file = target.golden
    golden, why = file is not None, target.why
    example: Mapping[str, Array]
    if interface.decoupled:
        file, golden, example, why = None, False, {}, DECOUPLED
    elif file is not None:
        example = inputs_of(file.cases[0])
    else:
        why = why or "golden cases were left out (--no-cases)"
        file, example, reason = sample.record(session.grpc, interface)
        why = f"{why}; {reason}" if reason else why
    models = composition.executions(target.name, http.steps_of)
    return ServedEndpoint(
        interface=interface,
        models=models,
        sampled=_sampled(http, models),
        file=file,
        golden=golden,
        example=example,
        why=why,
    )


def _sampled(http: HttpClient, models: Iterable[str]) -> dict[str, int]:
    sampled = {}
    for model in models:
        with suppress(RequestFailed):
            config = http.config(model)
            if name := config.parameters.get(ANSWERS_MODEL):
                sampled[name] = max(1, sum(group.count for group in config.instance_groups))
    return sampled
