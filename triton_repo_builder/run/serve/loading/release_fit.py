"""Whether a server's release has what the models use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from triton_repo_builder.base import releases
from triton_repo_builder.repository import Repository, features
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve.loading.select import Targets

HISTOGRAMS = "--metrics-config=histogram_latencies=true"
"""Option of tritonserver without which ``model_metrics`` in a config.pbtxt has no effect."""


def with_histograms(repo: Repository, chosen: Targets, options: ServeOptions) -> ServeOptions:
    """Add the server's latency histograms if a model to load states buckets for them."""
    stated = [
        model for model in repo.models if model.name in chosen.members and model.config.has("model_metrics")
    ]
    if not stated or any("histogram_latencies" in option for option in options.extra):
        return options
    return replace(options, extra=(*options.extra, HISTOGRAMS))


def warnings(repo: Repository, chosen: Targets, server: str) -> Iterator[str]:
    """A line for each model of which the server, by its version, lacks something."""
    release = releases.of_server(server)
    built_for = {
        name: entry.served.triton_release
        for entry in (repo.manifest.endpoints.values() if repo.manifest else ())
        for name in entry.models
    }
    for model in repo.models:
        if model.name not in chosen.members:
            continue
        missing = features.missing(model, release)
        if missing:
            written = built_for.get(model.name, "")
            whose = f", written for Triton {written}," if written and written != release.name else ""
            yield (
                f"warning: {model.name}{whose} uses what this server, release {release.name}, lacks: "
                f"{'; '.join(missing)}"
            )
