"""Triton's gRPC endpoint, through ``tritonclient``; and requests that are encoded once and sent as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.client.codec import Array, raw_tensor, wire_type
from triton_repo_builder.run.client.values import (
    BROKEN,
    REFUSED,
    NoAnswer,
    RequestFailed,
)

_GRPC_REFUSED = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
}
TLS = "grpcs://"
SERVICE = "/inference.GRPCInferenceService"
METHOD = f"{SERVICE}/ModelInfer"
ANY_SIZE = ("grpc.max_receive_message_length", 2**31 - 1)
"""The limit of tritonclient's own channels."""
QUEUE_REFUSALS = ("Exceeds maximum queue size", "Request timeout expired")
"""Ends of UNAVAILABLE of a queue with limits (core's scheduler_utils.cc, dynamic_batch_scheduler.cc)."""
_GRPC_LOST = (
    "failed to connect",
    "connection refused",
    "socket closed",
    "connection reset",
    "stream removed",
)


class GrpcClient:
    """Triton's gRPC endpoint at ``url`` (``host:port``, ``grpcs://host:port`` for TLS).

    One channel, which threads may share.
    """

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        from tritonclient import grpc

        self.url = url.removeprefix(TLS)
        self.timeout = timeout
        self._grpc = grpc
        self._client = grpc.InferenceServerClient(self.url, ssl=url.startswith(TLS))

    def close(self) -> None:
        """Close the channel."""
        self._client.close()

    def live(self) -> bool:
        """Whether the server is up."""
        return bool(self._call("is_server_live"))

    def ready(self, model: str = "") -> bool:
        """Whether the server, or one model, is ready."""
        return bool(self._call("is_model_ready", model) if model else self._call("is_server_ready"))

    def version(self) -> str:
        """The server's version, e.g. ``2.51.0``."""
        return str(self._call("get_server_metadata").version)

    def metadata(self, model: str) -> dict[str, Any]:
        """A model's platform, versions, inputs and outputs, as the protocol has them."""
        metadata: dict[str, Any] = self._call("get_model_metadata", model, as_json=True)
        return metadata

    def endpoint(self, model: str) -> Endpoint:
        """A model's inputs and outputs."""
        return Endpoint.of_server(self.metadata(model), name=model)

    def infer(self, model: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Send one request and give all outputs."""
        tensors = []
        for name, array in inputs.items():
            tensor = self._grpc.InferInput(name, list(array.shape), wire_type(array))
            tensors.append(tensor.set_data_from_numpy(np.ascontiguousarray(array)))
        answer = self._call("infer", model, tensors)
        return {output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs}

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        from tritonclient.utils import InferenceServerException

        try:
            return getattr(self._client, method)(*args, client_timeout=self.timeout, **options)
        except InferenceServerException as error:
            raise self._failure(error) from None

    def _failure(self, error: Any) -> RequestFailed:
        status = str(error.status() or "").removeprefix("StatusCode.")
        message = str(error.message())
        if status == "DEADLINE_EXCEEDED":
            return NoAnswer(f"no answer within {self.timeout:g} s")
        if status in ("UNAVAILABLE", "CANCELLED") and any(text in message.lower() for text in _GRPC_LOST):
            return NoAnswer(f"no answer: {message}")
        return RequestFailed(REFUSED if status in _GRPC_REFUSED else BROKEN, status, message)


def service_pb2() -> Any:
    """The messages of the protocol."""
    from tritonclient.grpc import service_pb2

    return service_pb2


def encode_request(model: str, inputs: Mapping[str, Array]) -> bytes:
    """An inference request, ready to be sent."""
    request: Any = service_pb2().ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        tensor = request.inputs.add(name=name, datatype=wire_type(array))
        tensor.shape.extend(array.shape)
        request.raw_input_contents.append(raw_tensor(array))
    return bytes(request.SerializeToString())


def send_encoded(url: str, request: bytes, timeout: float) -> str:
    """Send one encoded request; the name of its status if that is not OK, else empty."""
    import grpc

    if url.startswith(TLS):
        credentials = grpc.ssl_channel_credentials()
        channel = grpc.secure_channel(url.removeprefix(TLS), credentials, options=[ANY_SIZE])
    else:
        channel = grpc.insecure_channel(url, options=[ANY_SIZE])
    with channel:
        call: Any = channel.unary_unary(METHOD)
        try:
            call(request, timeout=timeout)
        except grpc.RpcError as error:
            return str(error.code().name)
    return ""


class AsyncConnection:
    """One connection for encoded requests, of any number at a time; nothing is encoded or decoded."""

    def __init__(self, url: str) -> None:
        import grpc

        # Channels to one address share a connection unless each keeps its own.
        options = [("grpc.use_local_subchannel_pool", 1), ANY_SIZE]
        if url.startswith(TLS):
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(url.removeprefix(TLS), credentials, options=options)
        else:
            self._channel = grpc.aio.insecure_channel(url, options=options)
        self._call: Any = self._channel.unary_unary(METHOD)
        self._error = grpc.aio.AioRpcError

    async def connect(self, seconds: float) -> bool:
        """Whether the connection is up within so many seconds."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def send(self, request: bytes, timeout: float) -> tuple[str, str] | None:
        """Name and details of the status if that is not OK."""
        try:
            await self._call(request, timeout=timeout)
        except self._error as error:
            return error.code().name, error.details() or ""
        return None

    async def close(self) -> None:
        """Close it."""
        await self._channel.close()
