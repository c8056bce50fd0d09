"""Whether the metrics page tells how busy the GPUs are, and what to say where it does not."""

from __future__ import annotations

from triton_repo_builder import hardware
from triton_repo_builder.bench.measure import cpu
from triton_repo_builder.bench.target import Target
from triton_repo_builder.client import statistics

UNKNOWN = "GPU utilisation is unknown"


def look(target: Target) -> tuple[str, str]:
    """The url to read utilisation from, empty where that would tell nothing; and a note on why it does not.

    Silent where the page can be read and there is no GPU to be seen: then there is nothing to miss.
    """
    url = target.metrics
    if not url:
        return "", f"{UNKNOWN}: no metrics page is named" if _expected(target) else ""
    page, reason = statistics.read_metrics(url)
    if not page:
        return "", f"{UNKNOWN}: the metrics page {url} cannot be read ({reason or 'it is empty'}); " + (
            "name it with --metrics-url, and start tritonserver without --allow-metrics=false"
        )
    if "nv_inference_" in page and f'model="{target.name}"' not in page:
        return "", (
            f"{UNKNOWN}: the metrics page {url} is of a server without the model {target.name}; "
            "name the right one with --metrics-url"
        )
    if not statistics.gpu_utilization(page) and _expected(target):
        return "", (
            f"{UNKNOWN}: the metrics page {url} has no nv_gpu_utilization; tritonserver writes it where it "
            "was built with GPU metrics, finds DCGM and runs without --allow-gpu-metrics=false"
        )
    return url, ""


def _expected(target: Target) -> bool:
    """Whether a model has instances on a GPU, or the server's machine is this one and has any."""
    return target.on_gpu or (cpu.local(target.http.url) and bool(hardware.here().gpus))
