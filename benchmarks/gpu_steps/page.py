"""docs/benchmarks/gpu.md from the results that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wrapping import wrapped

from gpu_steps import STEPS
from gpu_steps.step import GPU, Setting, Step, described, read

Found = dict[str, Any]


def write(setting: Setting) -> Path:
    """The page, of whatever was run with this setting; a step without a result is named as such."""
    file = setting.output / "gpu.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text(setting), encoding="utf-8")
    return file


def text(setting: Setting) -> str:
    """Markdown."""
    results = {step.name: read(step.file(setting)) for step in STEPS}
    results = {
        name: each if each.get("setting") == described(setting) else {} for name, each in results.items()
    }
    parts = ["# The GPU pass" if setting.device == GPU else "# The GPU pass, on a CPU"]
    if setting.device != GPU:
        parts.append("No GPU took part: this page shows that the steps run.")
    parts.append(
        _table(("step", "shows", "result", "s"), [_line(step, results[step.name]) for step in STEPS], 2)
    )
    for step in STEPS:
        result = results[step.name]
        if result.get("found") and step.name in SECTIONS:
            parts += [f"## {step.name}", *SECTIONS[step.name](result["found"])]
    parts += _about(list(filter(None, results.values())))
    return wrapped("\n\n".join(part for part in parts if part) + "\n")


def _line(step: Step, result: Found) -> tuple[str, ...]:
    if not result:
        return step.name, step.shows, "no result", "–"
    return (
        step.name,
        step.shows,
        "holds" if result["ok"] else f"**{result['error']}**",
        str(result["seconds"]),
    )


def _about(results: Sequence[Found]) -> list[str]:
    """Device, driver, versions, commit and command; several where the steps were run apart."""
    if not results:
        return []
    devices = {
        ", ".join(filter(None, gpu.values())) for each in results for gpu in each["machine"]["gpus"]
    } or {"none"}
    versions = {
        ", ".join(f"{name} {version}" for name, version in each.get("versions", {}).items())
        for each in results
    }
    days = sorted(each["started"] for each in results)
    return [
        f"Made by {_code(each['command'] for each in results)} from {days[0]} to {days[-1]}. The clients run "
        "on the machine that is measured.",
        f"GPU (name, memory, driver, compute capability): {'; '.join(sorted(devices))}. "
        f"Cores: {_some(str(each['machine']['cores']) for each in results)}. "
        f"Python {_some(each['machine']['python'] for each in results)}.",
        f"Versions: commit {_some(each['commit'] for each in results if 'commit' in each)}; "
        f"{_some(filter(None, versions))}.",
    ]


def _some(values: Any) -> str:
    return "; ".join(dict.fromkeys(values))


def _code(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in dict.fromkeys(values))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Markdown; all columns but the first ones are numbers."""
    marks = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, marks, *rows])


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


LEVEL = {
    "requests_per_second": ("requests/s", 1),
    "p50_ms": ("p50 ms", 1),
    "p99_ms": ("p99 ms", 1),
    "rows_per_execution": ("rows/execution", 1),
    "server_cpu_ms": ("server CPU ms/request", 2),
    "gpu_utilization": ("GPU", 2),
}


def _levels(levels: Sequence[Found], first: str = "variant") -> str:
    head = ["clients", first, *(title for title, _ in LEVEL.values())]
    rows = [
        [
            str(level["clients"]),
            level["variant"],
            *(_number(level[key], digits) for key, (_, digits) in LEVEL.items()),
        ]
        for level in levels
    ]
    limited = [f"{level['variant']}, {level['clients']}" for level in levels if level["bottleneck"]]
    doubt = f"\n\nThe clients may have been the limit: {'; '.join(limited)}." if limited else ""
    return _table(head, rows, 2) + doubt


def _environment(found: Found) -> list[str]:
    lines = [f"CUDA and cuDNN: {', '.join(found['cuda']) or 'none'}."]
    return lines + [f"Missing: {each['what']}. {each['remedy']}." for each in found["missing"]]


def _parity(found: Found) -> list[str]:
    rows = [
        [name, str(found["requests"][name]), f"{value:.2g}"]
        for name, value in found["largest_difference"].items()
    ]
    allowed = f"Allowed: {found['tolerance']:g} of an output's largest number (at least 1). {found['kind']}."
    return [allowed, _table(("head", "requests", "largest difference"), rows)]


def _proven(found: Found) -> list[str]:
    if "smoke" not in found:
        return []
    counts = ", ".join(
        f"{count} {name}" for name, count in found["smoke"].items() if name != "largest_difference"
    )
    held = ", ".join(f"{one['mib']} MiB" for one in found["processes"])
    return [f"{found['kind']}. trb smoke: {counts}. GPU memory by process: {held or 'none'}."]


def _throughput(found: Found) -> list[str]:
    alone = [
        [str(one["batch"]), _number(one["texts_per_second"]), _number(one["batch_ms"], 2)]
        for one in found["alone"]
    ]
    return [
        f"Model {found['model']}, {found['kind']}, max_batch_size {found['max_batch_size']}; the answers "
        f"differ by at most {found['largest_difference']:.2g}.",
        _levels(found["levels"]),
        "ONNX Runtime alone, texts tokenized beforehand, each batch padded to its longest:",
        _table(("batch", "texts/s", "ms/batch"), alone),
    ]


def _tokenizers(found: Found) -> list[str]:
    return [f"Model {found['model']}, {found['kind']}.", _levels(found["levels"], "tokenizer instances")]


def _utilisation(found: Found) -> list[str]:
    known = ", ".join(f"{gpu}: {share:.2f}" for gpu, share in found["gpu_utilization"].items())
    notes = " ".join(f"{note}." for note in found["notes"])
    speed = _number(found["requests_per_second"])
    return [f"{found['clients']} clients, {speed} requests/s: {known or 'unknown'}. {notes}".strip()]


def _served_alone(found: Found) -> list[str]:
    return [*_proven(found), _levels(found["levels"])]


def _large(found: Found) -> list[str]:
    return [f"{found['bytes'] / 1e9:.2f} GB.", *_served_alone(found)]


def _arctic(found: Found) -> list[str]:
    rows = [
        [
            str(level["rows"]),
            _number(level["tokens_per_second"] / 1000),
            _number(level["mean_ms"]),
            _number(level["p99_ms"]),
            str(level["answered"]),
            _number(level["gpu_utilization"], 2),
        ]
        for level in found["levels"]
    ]
    head = ("texts in a request", "thousand tokens/s", "mean ms", "p99 ms", "requests answered", "GPU")
    return [
        f"Texts of {found['length']} tokens, {found['concurrency']} requests at once, "
        f"{found['tokenizer_instances']} tokenizer instances, max_batch_size {found['max_batch_size']}, "
        f"{found['kind']}, gRPC. The protocol's {found['levels'][0]['requests_wanted']:,} requests are a "
        "measurement as long as they take.",
        _table(head, rows),
    ]


SECTIONS: dict[str, Callable[[Found], list[str]]] = {
    "environment": _environment,
    "parity_fp32": _parity,
    "parity_tf32": _parity,
    "parity_fp16": _parity,
    "kind_gpu": _proven,
    "tensorrt": _served_alone,
    "throughput": _throughput,
    "tokenizers": _tokenizers,
    "utilisation": _utilisation,
    "large_encoder": _large,
    "arctic": _arctic,
    "arctic_fp16": _arctic,
}
