"""ONNX Runtime without a server, on the device, in batches as large as the number of clients."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import limit

from gpu_steps.step import GPU, Setting, StepFailed

CUDA = "CUDAExecutionProvider"


def session(model: Path, setting: Setting, *, tf32: bool = True) -> Any:
    """The exported file as it is. On a GPU it runs there or not at all."""
    import onnxruntime

    providers: list[Any] = ["CPUExecutionProvider"]
    if setting.device == GPU:
        onnxruntime.preload_dlls()
        providers.insert(0, (CUDA, {"use_tf32": "1" if tf32 else "0"}))
    opened = onnxruntime.InferenceSession(str(model), providers=providers, enable_fallback=0)
    if setting.device == GPU and CUDA not in opened.get_providers():
        raise StepFailed("ONNX Runtime left CUDA out: see 'benchmarks/gpu.py --only environment'")
    return opened


def run(folder: Path, setting: Setting) -> list[dict[str, Any]]:
    """Texts per second of the corpus, tokenized beforehand, by batch size."""
    opened = session(folder / "model.onnx", setting)
    names = [each.name for each in opened.get_inputs()]
    outputs = [each.name for each in opened.get_outputs()]
    wanted = ["sentence_embedding"] if "sentence_embedding" in outputs else outputs[:1]
    ids = limit.tokenized(folder)
    found = []
    for size in setting.clients:
        texts = [ids[i % len(ids)] for i in range(max(size, len(ids)))]
        groups = [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)]
        feeds = [limit.padded(group, names) for group in groups]
        for feed in feeds[:8]:
            opened.run(wanted, feed)
        times: list[float] = []
        begun = time.perf_counter()
        while time.perf_counter() - begun < 3 * setting.window:
            for feed in feeds:
                start = time.perf_counter()
                opened.run(wanted, feed)
                times.append(time.perf_counter() - start)
                if time.perf_counter() - begun > 3 * setting.window:
                    break
        found.append(
            {
                "batch": size,
                "texts_per_second": len(times) * size / sum(times),
                "batch_ms": 1000 * sum(times) / len(times),
            }
        )
    return found
