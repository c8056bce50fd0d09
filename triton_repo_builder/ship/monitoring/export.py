"""The files of ``trb export monitoring``."""

from __future__ import annotations

from triton_repo_builder.base import templates
from triton_repo_builder.base.text import some
from triton_repo_builder.repository import Repository
from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.ship.monitoring import boards, rules, source
from triton_repo_builder.ship.monitoring.rules import Settings
from triton_repo_builder.ship.rendered import Rendered, document, rendered

INDEX = "monitoring.json"
"""The files of an export with their sha256: what was edited since is not overwritten."""
RULES = "rules.yml"
GRAFANA = "grafana"
FOLDER = "/var/lib/grafana/dashboards/trb"
"""Folder of the dashboards inside Grafana's container."""
SHOWN = 5
"""Endpoints that a file's head names."""


def render(repository: Repository, settings: Settings) -> Rendered:
    """The files; the same input gives the same bytes."""
    facts = source.read(repository)
    jobs = [
        (rules.SERVER, settings.targets),
        (rules.GATEWAY, settings.gateways),
        (rules.PROXY, settings.proxies),
    ]
    drift = {"drift.yml": drift_rules.render(settings.drift_window)} if facts.counting else {}
    texts = {
        **drift,
        "prometheus.yml": templates.render(
            "monitoring_prometheus.yml.jinja",
            rule_files=[RULES, *drift],
            jobs=[job for job in jobs if job[1]],
            gateway_key=settings.gateway_key,
            alertmanagers=settings.alertmanagers,
        ),
        RULES: templates.render(
            "monitoring_rules.yml.jinja",
            endpoints=some([ascii(each.name)[1:-1] for each in facts.endpoints], SHOWN),
            objective=settings.objective,
            window=settings.window,
            groups=rules.groups(facts, settings),
        ),
        f"{GRAFANA}/provisioning.yml": templates.render("monitoring_grafana.yml.jinja", folder=FOLDER),
    }
    for name, board in boards.boards(facts, settings):
        texts[f"{GRAFANA}/{name}"] = document(board.to_json())
    return rendered({path: text.encode() for path, text in texts.items()}, INDEX)
