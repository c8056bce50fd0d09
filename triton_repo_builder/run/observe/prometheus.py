"""Counters of texts and answers over a window, asked from a Prometheus server.

API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.client import HttpClient, NoAnswer
from triton_repo_builder.run.observe import drift
from triton_repo_builder.run.observe.exposition import Page, Sample

LABELS: Mapping[str, str] = {
    **{name: "le" for name in drift.COUNTERS.values() if name.endswith("_bucket")},
    "trb_answers_total": "label",
    drift.ALL_TEXTS: "",
    drift.ALL_TOKENS: "",
    drift.ALL_UNKNOWN: "",
}
"""Counters, and the label by which each is summed besides model and version."""
GAUGES: Mapping[str, str] = {drift.SHARE: "metric, bucket", drift.TEXTS: "metric"}
TIMEOUT = 30.0
REMEDY = "name the address of a Prometheus that scrapes the server, e.g. http://localhost:9090"


def page(url: str, seconds: float) -> Page:
    """Growth of the counters in the last seconds, all servers together, and the references.

    Raises ``TrbError`` if Prometheus does not answer, or has none of them.
    """
    http = HttpClient(url, TIMEOUT)
    samples: list[Sample] = []
    for name, label in LABELS.items():
        labels = ", ".join(filter(None, ("model", "version", label)))
        samples += _query(http, name, f"sum by ({labels}) (increase({name}[{round(seconds * 1000)}ms]))")
    for name, labels in GAUGES.items():
        samples += _query(http, name, f"max by (model, version, {labels}) ({name})")
    if not samples:
        raise TrbError(
            Code.NOT_FOUND,
            "this Prometheus has no trb_ series: does it scrape the server's metrics port?",
            where=url,
            remedy="scrape it (trb export monitoring writes prometheus.yml); if it does, its models count "
            "nothing (built with --metrics off, or by an older trb), or --window has less than two scrapes",
        )
    return Page(samples)


def _query(http: HttpClient, name: str, expression: str) -> list[Sample]:
    """The answer to an instant query, each series under the given name."""
    path = f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        answer = http.send("GET", path)
    except NoAnswer as error:
        raise TrbError(
            Code.UNREACHABLE, f"Prometheus: {error.message}", where=http.url, remedy=REMEDY
        ) from None
    try:
        document = files.load_json(answer.data)
        if document["status"] != "success":
            raise TrbError(
                Code.UNREACHABLE,
                f"Prometheus refuses the query {expression}: {str(document['error'])[:200]}",
                where=http.url,
                remedy=REMEDY,
            )
        return [_sample(name, entry) for entry in document["data"]["result"]]
    except files.DAMAGED:
        raise TrbError(
            Code.UNREACHABLE,
            f"answers as no Prometheus does (HTTP {answer.status})",
            where=http.url,
            remedy=REMEDY,
        ) from None


def _sample(name: str, entry: Mapping[str, Any]) -> Sample:
    labels = {str(label): str(value) for label, value in entry["metric"].items()}
    return Sample(name, labels, float(entry["value"][1]))
