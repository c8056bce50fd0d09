"""A curl line for a running endpoint that works when pasted."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client import NOT_IN_JSON, HttpClient
from triton_repo_builder.run.codegen import example, gateway_calls
from triton_repo_builder.run.codegen.example import Example
from triton_repo_builder.run.codegen.gateway_calls import Gateway

AS_JSON = "-H 'Content-Type: application/json'"
"""Without it ``-d`` sends a form: a tritonserver of release 24.10 ends at one of some megabytes."""
SIZE = "\0"
"""Placeholder of the number of bytes in a JSON header; no name has this character."""
FLAT = " (the answers to several would be one flat list, without a shape)"
BATCHED = ("curl", "python", "javascript")
"""Calls with a batch, by Triton's infer."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A model that clients call, and how."""

    endpoint: Endpoint
    curl: str
    """A shell line; empty if curl cannot call it, for the reason in ``note``."""
    generate: str = ""
    """A shorter line for one item; empty if Triton's generate extension does not take these inputs."""
    openai: str = ""
    """A shell line for the gateway; empty without one, or if it has no such call."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Number of items in a request of each line: ``generate``, ``curl``; the gateway's line comes first."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``--json`` and the state file."""
        inputs, outputs = (
            [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]
            for tensors in (self.endpoint.inputs, self.endpoint.outputs)
        )
        name = self.endpoint.name
        calls = {"generate": self.generate, "curl": self.curl, "note": self.note}
        if self.openai:
            calls["openai"] = self.openai
        return {"name": name, "inputs": inputs, "outputs": outputs, **calls, "titles": dict(self.titles)}


def usage(base: str, name: str, folder: Path, gateway: Gateway | None = None) -> Usage:
    """Ask the server about one model; ``folder`` is the model's directory, for its golden cases."""
    endpoint = HttpClient(base, 10).describe(name)
    note = example.obstacle(endpoint, endpoint.needed)
    url = f"{base}/v2/models/{quote(name)}/infer"
    if note:
        return Usage(endpoint=endpoint, curl="", note=note)
    request = example.example(endpoint, folder)
    openai = gateway_calls.calls(request, gateway).get("openai-curl", "")
    first = {"openai": gateway_calls.TITLE} if openai else {}
    if request.file is not None:
        shown = {**first, "curl": "by Triton's infer"} if openai else {}
        return Usage(endpoint=endpoint, curl=curl_file(url, request), openai=openai, titles=shown)
    curl = curl_line(url, batch(request), endpoint.outputs)
    generate = curl_generate(base, endpoint, request.inputs)
    lines = {"generate": generate, "curl": curl}
    shown = {**first, **{call: title for call, title in titles(request).items() if lines.get(call)}}
    return Usage(endpoint=endpoint, **lines, openai=openai, titles=shown)


def batch(request: Example) -> list[dict[str, Any]]:
    """The example's inputs, with two rows if they are texts."""
    if not request.rows:
        return [dict(item) for item in request.inputs]
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": [len(request.rows), 1],
            "data": [row[tensor.name] for row in request.rows],
        }
        for tensor in request.endpoint.needed
    ]


def titles(request: Example) -> dict[str, str]:
    """Number of items in one request of each call, with a warning of flat answers for ``generate``.

    Triton's generate extension takes the number of values for the batch size, and writes an output as a list
    of its elements, without a shape: two texts get 2 x 384 numbers in one list (server 2.51).
    """
    most = request.endpoint.max_batch_size
    if not request.rows:
        return {"generate": "one item" + (FLAT if most > 1 else "")}
    noun = "text" if len(request.rows[0]) == 1 else "row"
    return {"generate": f"one {noun}{FLAT}", **dict.fromkeys(BATCHED, f"1 to {most} {noun}s in a request")}


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
    if request.path:
        return _curl_path(url, request)
    content = request.file or b""
    first = {key: value for key, value in request.inputs[0].items() if key != "data"}
    item = {**first, "parameters": {"binary_data_size": len(content) + 4}}
    header = json.dumps({"inputs": [item, *map(dict, request.inputs[1:])]})
    length = "".join(f"\\{byte:03o}" for byte in len(content).to_bytes(4, "little"))
    body = f"printf %s {shlex.quote(header)}; printf '{length}'; "
    body += f"echo {base64.b64encode(content).decode()} | base64 -d"
    send = f"curl -s {shlex.quote(url)} -H 'Content-Type: application/octet-stream'"
    return f"({body}) | {send} -H 'Inference-Header-Content-Length: {len(header)}' --data-binary @-"


def _curl_path(url: str, request: Example) -> str:
    """``curl_file`` for a file on disk. The shell takes its size: the line serves other files as well."""
    first = {key: value for key, value in request.inputs[0].items() if key != "data"}
    item = {**first, "parameters": {"binary_data_size": SIZE}}
    text = json.dumps({"inputs": [item, *_listed(request.inputs[1:])]})
    before, after = map(shlex.quote, text.split(json.dumps(SIZE), 1))
    octets = " ".join(f"$((size >> {shift} & 255))" for shift in (0, 8, 16, 24))
    send = f"curl -s {shlex.quote(url)} -H 'Content-Type: application/octet-stream'"
    return (
        f'file={shlex.quote(request.path)}; size=$(($(wc -c < "$file"))); '
        f"header=$(printf %s%d%s {before} $((size + 4)) {after}); "
        f'(printf %s "$header"; printf "$(printf \'\\\\%03o\' {octets})"; cat -- "$file") | '
        f'{send} -H "Inference-Header-Content-Length: ${{#header}}" --data-binary @-'
    )


def _listed(inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Inputs with every element spelled out."""
    return [
        {
            **item,
            "data": item["data"]
            if isinstance(item["data"], list)
            else [item["data"]] * math.prod(item["shape"]),
        }
        for item in inputs
    ]


def curl_line(url: str, inputs: list[dict[str, Any]], outputs: tuple[Tensor, ...]) -> str:
    """One line of shell. ``data`` other than a list is the value of every element."""
    body: dict[str, Any] = {}
    save = ""
    if any(tensor.datatype in NOT_IN_JSON for tensor in outputs):
        body["outputs"] = [_binary(tensor) for tensor in outputs]
        save = " -o answer.bin"
    line = f"curl -s{save} {shlex.quote(url)} {AS_JSON} -d "
    if _inline(inputs):
        text = json.dumps({"inputs": _listed(inputs), **body}, ensure_ascii=False)
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
