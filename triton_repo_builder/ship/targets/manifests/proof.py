"""Proof of a version: golden cases after a sync, and the comparison of a canary with the stable version."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from triton_repo_builder.base import templates
from triton_repo_builder.ship.monitoring import rules, source
from triton_repo_builder.ship.targets import canary_rules, server
from triton_repo_builder.ship.targets.canary_rules import Sides
from triton_repo_builder.ship.targets.facts import Deployment

POD = "deploy/kubernetes/smoke-pod.jinja"
SCRAPE = 15
"""Seconds between two scrapes, and between two looks at the number of requests."""
CLIENTS = 8
"""Clients of trb smoke that send golden cases to a canary."""
SLACK = 300
"""Seconds that a Job gets besides, and the window in which a canary is compared at least."""


def smoke(deployment: Deployment, context: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the Job: its pod, and the pod that sends golden cases to both versions of a canary."""
    name = deployment.name
    values: dict[str, Any] = {
        "trb": bool(deployment.spec.gateway.image),
        "deadline": server.times(deployment).start + SLACK,
    }
    # Together as many requests as a step needs.
    requests = -(-deployment.spec.canary.requests // CLIENTS)
    load = f"--clients={CLIENTS} --requests={requests} --quiet"
    versions = (" ".join(_command(deployment, service)) for service in (name, f"{name}-canary"))
    compared = " && ".join(f"{command} {load}" for command in versions)
    for key, words in (("pod", _command(deployment, name)), ("both", ["sh", "-c", compared])):
        values[key] = templates.render(POD, **context, name=name, smoke=values, words=words)
    return values


def _command(deployment: Deployment, service: str) -> list[str]:
    """The command that proves the servers of a Service."""
    url = f"http://{service}:{server.HTTP}"
    if deployment.spec.gateway.image:
        return ["trb", "smoke", server.MODELS, f"--url={url}", "--live"]
    urls = [f"{url}/v2/models/{quote(endpoint, safe='')}/ready" for endpoint in deployment.endpoints]
    requests = f"[urllib.request.urlopen(url, timeout=10).close() for url in {urls!r}]"
    return ["python3", "-I", "-c", f"import urllib.request; {requests}"]


def canary(deployment: Deployment, namespace: str = "") -> dict[str, Any]:
    """Values of a Rollout: its steps, and the rules in PromQL on the pods of both versions.

    ``namespace``: where one Prometheus has several.
    """
    spec = deployment.spec.canary
    seconds = max(SLACK, math.ceil(spec.hold))
    within = f'namespace="{namespace}",' if namespace else ""
    pods = f'{within}service="{deployment.name}-headless",rollouts_pod_template_hash='
    # Arguments of the analysis: https://argo-rollouts.readthedocs.io/en/stable/features/analysis/
    sides = Sides(stable=f'{pods}"{{{{args.stable-hash}}}}"', canary=f'{pods}"{{{{args.latest-hash}}}}"')
    queries = canary_rules.queries(
        deployment,
        sides,
        window=f"{seconds}s",
        requests=spec.requests,
    )
    # Answers are compared by the gateway's shadow, which a Rollout does not move.
    left_out = {canary_rules.ANSWERS}
    if not source.read(deployment.repository).counting:
        left_out.add(canary_rules.LABELS)  # it compares what the tokenizer and the answers count
    return {
        "steps": spec.steps,
        "hold": math.ceil(spec.hold),
        "requests": spec.requests,
        "timeout": math.ceil(spec.timeout),
        "looks": math.ceil(spec.timeout / SCRAPE),
        "enough": _fewer(rules.of(deployment.endpoints), sides, seconds),
        "queries": [
            {
                "name": query.rule.name,
                "about": query.rule.about,
                "limit": f"{query.rule.limit:g}",
                "value": query.value,
            }
            for query in queries
            if query.rule.name not in left_out
        ],
    }


def _fewer(models: str, sides: Sides, seconds: int) -> str:
    """Requests that the version with fewer of them answered, failed ones included."""
    counts = []
    for side, matchers in (("stable", sides.stable), ("canary", sides.canary)):
        within = f"{{{models},{matchers}}}[{seconds}s]"
        parts = [
            f"(sum(increase(nv_inference_request_{kind}{within})) or vector(0))"
            for kind in ("success", "failure")
        ]
        counts.append(f'label_replace({" + ".join(parts)}, "side", "{side}", "", "")')
    return f"min({' or '.join(counts)})"
