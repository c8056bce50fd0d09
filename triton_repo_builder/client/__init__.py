"""Talk to a running tritonserver: HTTP as ``curl`` would, and gRPC through ``tritonclient``.

Both clients give plain values and numpy arrays, and raise one error, ``RequestFailed``. Every request
has a time limit.
"""

from triton_repo_builder.client.codec import (
    JSON,
    encode_binary,
    encode_json,
    wire_type,
)
from triton_repo_builder.client.grpc import GrpcClient
from triton_repo_builder.client.http import Answer, HttpClient
from triton_repo_builder.client.values import (
    BROKEN,
    REFUSED,
    SILENT,
    Array,
    Body,
    Counts,
    IndexEntry,
    Metadata,
    RequestFailed,
    Tensor,
)

__all__ = [
    "BROKEN",
    "JSON",
    "REFUSED",
    "SILENT",
    "Answer",
    "Array",
    "Body",
    "Counts",
    "GrpcClient",
    "HttpClient",
    "IndexEntry",
    "Metadata",
    "RequestFailed",
    "Tensor",
    "encode_binary",
    "encode_json",
    "wire_type",
]
