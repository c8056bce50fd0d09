"""A curl line for a running endpoint that works when pasted."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import NOT_IN_JSON, HttpClient
from triton_repo_builder.run.codegen import example
from triton_repo_builder.run.codegen.example import Example

AS_JSON = "-H 'Content-Type: application/json'"
"""Without it ``-d`` sends a form: a tritonserver of release 24.10 ends at one of some megabytes."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A model that clients call, and how."""

    endpoint: Endpoint
    curl: str
    """A shell line; empty if curl cannot call it, for the reason in ``note``."""
    generate: str = ""
    """A shorter line for one item; empty if Triton's generate extension does not take these inputs."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``--json`` and the state file."""
        inputs, outputs = (
            [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]
            for tensors in (self.endpoint.inputs, self.endpoint.outputs)
        )
        name = self.endpoint.name
        calls = {"generate": self.generate, "curl": self.curl, "note": self.note}
        return {"name": name, "inputs": inputs, "outputs": outputs, **calls}


def usage(base: str, name: str, folder: Path) -> Usage:
    """Ask the server about one model; ``folder`` is the model's directory, for its golden cases."""
    endpoint = HttpClient(base, 10).describe(name)
    note = example.obstacle(endpoint, endpoint.needed)
    url = f"{base}/v2/models/{quote(name)}/infer"
    if note:
        return Usage(endpoint=endpoint, curl="", note=note)
    request = example.example(endpoint, folder)
    if request.file is not None:
        return Usage(endpoint=endpoint, curl=curl_file(url, request))
    inputs = [dict(item) for item in request.inputs]
    return Usage(
        endpoint=endpoint,
        curl=curl_line(url, inputs, endpoint.outputs),
        generate=curl_generate(base, endpoint, inputs),
    )


def curl_generate(base: str, endpoint: Endpoint, inputs: Sequence[Mapping[str, Any]]) -> str:
    """The short call for one item, names and values only; empty if the server would not take it.

    Triton's generate extension infers at most one free axis of an input from the number of its values
    (github.com/triton-inference-server/server, docs/protocol/extension_generate.md).
    """
    shapes = {tensor.name: tensor.shape for tensor in endpoint.inputs}
    items = 1 if endpoint.max_batch_size else 0
    for item in inputs:
        if item["name"] in ("id", "parameters") or shapes[item["name"]].count(-1) > 1:
            return ""
        if items and item["shape"][0] != 1:
            return ""
    if any(tensor.datatype in NOT_IN_JSON for tensor in endpoint.outputs):
        return ""
    if not _inline(inputs):
        return ""
    body = {item["name"]: _values(item) for item in inputs}
    text = json.dumps(body, ensure_ascii=False)
    url = f"{base.rstrip('/')}/v2/models/{quote(endpoint.name)}/generate"
    return (
        f"curl -s {shlex.quote(url)} {AS_JSON} -d {shlex.quote(text)}" if len(text) <= example.INLINE else ""
    )


def _inline(inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the values may fit a line: a config.pbtxt may state any number of them."""
    return bool(sum(math.prod(item["shape"]) for item in inputs) <= example.INLINE)


def _values(item: Mapping[str, Any]) -> Any:
    """The values in one list, a single one by itself."""
    count = math.prod(item["shape"])
    data = item["data"] if isinstance(item["data"], list) else [item["data"]] * count
    return data[0] if count == 1 else data


def curl_file(url: str, request: Example) -> str:
    """A JSON header with the other inputs, then the file after its length in four bytes: the answer is JSON.

    The only input may come alone as well (header length 0), but then Triton answers in binary.
    """
    content = request.file or b""
    first = {key: value for key, value in request.inputs[0].items() if key != "data"}
    item = {**first, "parameters": {"binary_data_size": len(content) + 4}}
    header = json.dumps({"inputs": [item, *map(dict, request.inputs[1:])]})
    length = "".join(f"\\{byte:03o}" for byte in len(content).to_bytes(4, "little"))
    body = f"printf %s {shlex.quote(header)}; printf '{length}'; "
    body += f"echo {base64.b64encode(content).decode()} | base64 -d"
    send = f"curl -s {shlex.quote(url)} -H 'Content-Type: application/octet-stream'"
    return f"({body}) | {send} -H 'Inference-Header-Content-Length: {len(header)}' --data-binary @-"


def curl_line(url: str, inputs: list[dict[str, Any]], outputs: tuple[Tensor, ...]) -> str:
    """One line of shell. ``data`` other than a list is the value of every element."""
    body: dict[str, Any] = {}
    save = ""
    if any(tensor.datatype in NOT_IN_JSON for tensor in outputs):
        body["outputs"] = [_binary(tensor) for tensor in outputs]
        save = " -o answer.bin"
    line = f"curl -s{save} {shlex.quote(url)} {AS_JSON} -d "
    if _inline(inputs):
        full = [
            item
            if isinstance(item["data"], list)
            else {**item, "data": [item["data"]] * math.prod(item["shape"])}
            for item in inputs
        ]
        text = json.dumps({"inputs": full, **body}, ensure_ascii=False)
        if len(text) <= example.INLINE:
            return line + shlex.quote(text)
    parts = ", ".join(
        "{"
        + ", ".join(f"{json.dumps(key)}: {json.dumps(item[key])}" for key in ("name", "datatype", "shape"))
        + f', "data": {expression(item)}}}'
        for item in inputs
    )
    requested = f', "outputs": {body["outputs"]!r}' if save else ""
    program = f'import json; print(json.dumps({{"inputs": [{parts}]{requested}}}))'
    return f"python3 -c {shlex.quote(program)} | {line}@-"


def expression(item: Mapping[str, Any]) -> str:
    """The data of an example as a Python expression."""
    data = item["data"]
    return repr(data) if isinstance(data, list) else f"[{data!r}] * {math.prod(item['shape'])}"


def _binary(tensor: Tensor) -> dict[str, Any]:
    plain = {"name": tensor.name}
    return {**plain, "parameters": {"binary_data": True}} if tensor.datatype in NOT_IN_JSON else plain
