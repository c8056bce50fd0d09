"""``trb client``: a typed Python client of an endpoint, and calls to paste: curl, Python, JavaScript."""

from __future__ import annotations

import base64
import builtins
import json
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from triton_repo_builder.base import templates
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run.client.sample_inputs import AXES
from triton_repo_builder.run.codegen import snippets
from triton_repo_builder.run.codegen.example import Example

FEW = 16
"""Numbers of an example that are printed in a line."""
KINDS = {"BYTES": "str", "BOOL": "bool", "FP16": "float", "FP32": "float", "FP64": "float"}
"""Python's types; every other datatype is an int."""
RESERVED = frozenset({"arguments", "extends", "implements", "outputs", "this"})
"""Plurals that cannot name a call's texts: words of JavaScript, and a variable of the templates."""
OURS = frozenset(
    {"url", "timeout", "concurrency", "given", "counts", "batches", "batch", "pool", "answered", "outputs"}
    | {"start", "name", "row", "rows"}
)


def typed(example: Example, url: str) -> str:
    """The source of a client module. Raises ``TrbError`` UNSUPPORTED_TYPE."""
    endpoint = example.endpoint
    for tensor in (*endpoint.inputs, *endpoint.outputs):
        if tensor.datatype == "BF16":
            raise _unsupported(endpoint.name, f"'{tensor.name}' is BF16, which Python cannot unpack")
        if len(tensor.shape) > AXES:
            raise _unsupported(endpoint.name, f"'{tensor.name}' has {len(tensor.shape):,} axes")
    if endpoint.decoupled:
        raise _unsupported(endpoint.name, example.obstacle)
    # Arguments that may be left out come last.
    ordered = tuple(sorted(endpoint.inputs, key=lambda tensor: tensor.optional))
    inputs = _named(ordered, endpoint, OURS)
    outputs = _named(endpoint.outputs, endpoint, frozenset())
    examples = {item["name"]: item for item in example.inputs}
    for named in inputs:
        item = examples.get(named["name"])
        named["example"] = _example(item, named["scalar"]) if item else ""
    needed = [tensor for tensor in inputs if tensor["name"] not in endpoint.optional]
    one_text = len(needed) == 1 and _is_text(needed[0])
    text = templates.render(
        "client.py.jinja",
        name=endpoint.name,
        url=url,
        path=f"/v2/models/{quote(endpoint.name)}/infer",
        inputs=inputs,
        outputs=outputs,
        max_batch_size=endpoint.max_batch_size,
        argument=needed[0] if one_text and endpoint.max_batch_size else None,
        vector=_vector(outputs) if one_text and endpoint.max_batch_size else "",
        noun="files" if example.file is not None else "texts",
        file=example.file is not None,
    )
    compile(text, "client", "exec")
    return text


def usage(example: Example, module: str) -> str:
    """Lines that import the client module and ask the endpoint, to paste."""
    endpoint = example.endpoint
    ordered = tuple(sorted(endpoint.inputs, key=lambda tensor: tensor.optional))
    inputs, outputs = _named(ordered, endpoint, OURS), _named(endpoint.outputs, endpoint, frozenset())
    needed = [tensor for tensor in inputs if tensor["name"] not in endpoint.optional]
    texts = example.file is None and all(map(_is_text, needed))
    items = {item["name"]: item for item in example.inputs}
    arguments = ", ".join(
        f"{tensor['identifier']}={_shown(items[tensor['name']], tensor['scalar'], texts=texts)}"
        for tensor in needed
    )
    optional = ", ".join(tensor["identifier"] for tensor in inputs if tensor["name"] in endpoint.optional)
    also = f"  # may be given too: {optional}" if optional else ""
    if endpoint.max_batch_size and len(needed) == 1 and texts and _vector(outputs):
        return f"from {module} import embed\n\nvectors = embed({arguments.partition('=')[2]}){also}"
    answer = ", ".join(f"answer.{tensor['identifier']}" for tensor in outputs)
    call = f"infer({arguments})"
    if endpoint.max_batch_size:
        return f"from {module} import infer\n\nfor answer in {call}:{also}\n    print({answer})"
    return f"from {module} import infer\n\nanswer = {call}{also}\nprint({answer})"


def _is_text(tensor: Mapping[str, Any]) -> bool:
    """Whether each row of an input is one string: a text, or the bytes of a file."""
    return bool(tensor["datatype"] == "BYTES" and tensor["scalar"])


def _shown(item: Mapping[str, Any], scalar: bool, *, texts: bool) -> str:
    """The rows of an example in a line; ``…`` if they are too many, or the bytes of a file."""
    data = item["data"]
    if texts:
        return repr(data if isinstance(data, list) else ["Hello"])
    if item["datatype"] == "BYTES" or not isinstance(data, list) or not 0 < len(data) <= FEW:
        return "…"
    for size in reversed(item["shape"][1:-1] if scalar else item["shape"][1:]):
        data = [data[start : start + size] for start in range(0, len(data), size)]
    return repr(data)


def _vector(outputs: Sequence[Mapping[str, Any]]) -> str:
    """The attribute of an answer that is one vector; empty if the answer is anything else."""
    vectors = [tensor["identifier"] for tensor in outputs if tensor["type"] == "list[float]"]
    return vectors[0] if len(outputs) == len(vectors) == 1 else ""


def calls(example: Example, url: str) -> dict[str, str]:
    """A request in each language, ready to paste. Raises ``TrbError`` UNSUPPORTED_TYPE."""
    endpoint = example.endpoint
    if example.obstacle:
        raise _unsupported(endpoint.name, example.obstacle)
    target = f"{url.rstrip('/')}/v2/models/{quote(endpoint.name)}/infer"
    plain = [dict(item) for item in example.inputs]
    if example.file is not None:
        return _file_calls(example, example.file, target)
    short = snippets.curl_generate(url, endpoint, plain)
    values = {"url": target, "items": _items(example), "most": endpoint.max_batch_size}
    return {
        **({"generate": short} if short else {}),
        "curl": snippets.curl_line(target, snippets.batch(example), endpoint.outputs),
        "python": templates.render("call.py.jinja", **values).rstrip("\n"),
        "javascript": templates.render("call.js.jinja", **values).rstrip("\n"),
    }


def file_of(calls: Mapping[str, str], language: str, name: str) -> str:
    """The text of a file with one call; JavaScript in a function, since only modules may await outside."""
    call = calls[language]
    about = f"Call of the Triton endpoint {name}, written by trb client"
    if language.endswith("python"):
        return f"# {about}.\n\n{call}\n"
    if not language.endswith("javascript"):
        return f"#!/bin/sh\n# {about}.\n{call}\n"
    body = "".join(f"  {line}".rstrip() + "\n" for line in call.splitlines())
    return f"// {about}; needs Node 18 or newer.\n\nasync function main() {{\n{body}}}\n\nmain();\n"


def _items(example: Example) -> list[dict[str, Any]]:
    """Template values of each input of a call; ``variable`` holds its texts, one each row."""
    items: list[dict[str, Any]] = [
        {**item, "python": snippets.expression(item), "javascript": _javascript(item), "variable": ""}
        for item in example.inputs
    ]
    if not example.rows:
        return items
    used = set(RESERVED)
    for item in items:
        item["texts"] = [row[item["name"]] for row in example.rows]
        item["variable"] = "texts" if len(items) == 1 else _identifier(f"{item['name']}s", used)
        used.add(item["variable"])
    return items


def _file_calls(example: Example, file: bytes, target: str) -> dict[str, str]:
    """The calls if an input is a file: a JSON header with the others, then the file after its length."""
    item = {key: value for key, value in example.inputs[0].items() if key != "data"}
    others = [dict(other) for other in example.inputs[1:]]
    encoded = base64.b64encode(file).decode()
    values = {"url": target, "item": item, "others": others, "file": encoded, "path": example.path}
    return {
        "curl": snippets.curl_file(target, example),
        "python": templates.render("call_file.py.jinja", **values).rstrip("\n"),
        "javascript": templates.render("call_file.js.jinja", **values).rstrip("\n"),
    }


def _unsupported(name: str, why: str) -> TrbError:
    return TrbError(Code.UNSUPPORTED_TYPE, why, where=name, remedy="use NVIDIA's tritonclient over gRPC")


def _named(tensors: tuple[Tensor, ...], endpoint: Endpoint, reserved: frozenset[str]) -> list[dict[str, Any]]:
    """Template values of each tensor, under its own Python name."""
    used: set[str] = set(reserved)
    named = []
    for tensor in tensors:
        identifier = _identifier(tensor.name, used)
        used.add(identifier)
        dims = tensor.shape[1:] if endpoint.max_batch_size else tensor.shape
        scalar = dims == (1,)
        kind = KINDS.get(tensor.datatype, "int")
        accepted = "str | bytes" if kind == "str" else kind
        depth = 0 if scalar else len(dims)
        rows = 1 if endpoint.max_batch_size else 0
        whole = f"{'Sequence[' * (depth + rows)}{accepted}{']' * (depth + rows)}"
        named.append(
            {
                "name": tensor.name,
                "identifier": identifier,
                "datatype": tensor.datatype,
                "scalar": scalar,
                "type": f"{'list[' * depth}{kind}{']' * depth}",
                "given": f"{whole} | None = None" if tensor.optional else whole,
                "about": f"{tensor.datatype} {list(dims)}",
            }
        )
    return named


def _identifier(name: str, used: set[str]) -> str:
    """A Python name like the tensor's, none that is taken, a keyword or a builtin."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII).lower().strip("_") or "tensor"
    base = f"t_{base}" if base[0].isdigit() else base
    if keyword.iskeyword(base) or hasattr(builtins, base):
        base += "_"
    numbers = (f"{base}_{number}" for number in range(2, len(used) + 3))
    return base if base not in used else next(name for name in numbers if name not in used)


def _example(item: Mapping[str, Any], scalar: bool) -> str:
    """A Python expression of the example's rows."""
    shape = item["shape"][:-1] if scalar else item["shape"]
    data = item["data"]
    if isinstance(data, list) and len(shape) == 1:
        return repr(data)
    return f"_nest({snippets.expression(item)}, {list(shape)})"


def _javascript(item: Mapping[str, Any]) -> str:
    """The data of an example as a JavaScript expression."""
    text = json.dumps(item["data"])
    return text if isinstance(item["data"], list) else f"Array({math.prod(item['shape'])}).fill({text})"
