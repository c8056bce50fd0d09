"""Whether the metrics page has GPU utilisation, and the note if it has not."""

from __future__ import annotations

from triton_repo_builder.base import hardware
from triton_repo_builder.measure.bench.target import Target
from triton_repo_builder.run.client import statistics
from triton_repo_builder.run.serve.processes import cpu

UNKNOWN = "GPU utilisation is unknown"


def look(target: Target) -> tuple[str, str]:
    """The url to read utilisation from, else empty, with a note on the reason.

    No note if the page can be read and there is no GPU: then nothing is missing.
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
            f"{UNKNOWN}: the metrics page {url} belongs to a server without the model {target.name}; "
            "name the right one with --metrics-url"
        )
    if not statistics.gpu_utilization(page) and _expected(target):
        return "", (
            f"{UNKNOWN}: the metrics page {url} has no nv_gpu_utilization; tritonserver writes it if it "
            "was built with GPU metrics, finds DCGM and runs without --allow-gpu-metrics=false"
        )
    return url, ""


def _expected(target: Target) -> bool:
    """Whether a model has instances on a GPU, or the server's machine is this one and has any."""
    return target.on_gpu or (cpu.local(target.http.url) and bool(hardware.here().gpus))
