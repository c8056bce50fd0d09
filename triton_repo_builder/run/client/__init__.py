"""Talk to a running tritonserver: HTTP as ``curl`` would, and gRPC through ``tritonclient``.

Both clients give plain values and numpy arrays, and raise one error, ``RequestFailed``. Every request has a
time limit. These modules need no numpy; tensors are in ``codec``, gRPC is in ``grpc``.
"""

from triton_repo_builder.run.client.http import Answer, HttpClient
from triton_repo_builder.run.client.values import (
    BROKEN,
    JSON,
    NOT_IN_JSON,
    REFUSED,
    SILENT,
    Body,
    IndexEntry,
    NoAnswer,
    RequestFailed,
    Urls,
    ready_versions,
)

__all__ = [
    "BROKEN",
    "JSON",
    "NOT_IN_JSON",
    "REFUSED",
    "SILENT",
    "Answer",
    "Body",
    "HttpClient",
    "IndexEntry",
    "NoAnswer",
    "RequestFailed",
    "Urls",
    "ready_versions",
]
