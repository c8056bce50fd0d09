"""The objects of a deployment, path → text, for kustomize or for a chart."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triton_repo_builder.base import templates
from triton_repo_builder.run.gateway.options import GRACE, GatewayOptions
from triton_repo_builder.run.observe import drift_rules
from triton_repo_builder.run.serve import SUMMARIES
from triton_repo_builder.ship.monitoring import rules, scope, source
from triton_repo_builder.ship.targets import canary_rules, scaling, server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.manifests import access, checks, proof, values
from triton_repo_builder.ship.targets.scaling import Scaling
from triton_repo_builder.ship.targets.spec import MEBI

PREFIX = "io.github.triton-repo-builder"
LONGEST_LABEL = 63
FOLDER = "deploy/kubernetes"
SERVER, GATEWAY = "server", "gateway"
_SERIES = re.compile(r"trb:[\w:]+\{[^}]*\}")
LARGEST_BODY = 1024
"""MiB: the most that the gateway's --max-body takes."""
SLACK = 300
"""Seconds that a rollout gets beyond the start of a replica."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The rendered objects of one deployment."""

    deployment: Deployment
    helm: bool
    """For a chart: values become markers, and every variant is there."""

    @cached_property
    def scaling(self) -> Scaling | None:
        return scaling.scaling(self.deployment, self.namespace)

    @property
    def namespace(self) -> str:
        """The namespace as series have it; of a chart, a marker; empty if nothing states it."""
        return values.NAMESPACE if self.helm else self.deployment.spec.kubernetes.namespace

    @property
    def scope(self) -> dict[str, str]:
        """Labels that this deployment's series have, and no other's."""
        return {scope.DEPLOYMENT: self.name, **({"namespace": self.namespace} if self.namespace else {})}

    @cached_property
    def server_access(self) -> access.Access:
        return access.access(self.deployment)

    @cached_property
    def readers(self) -> tuple[access.Access, ...]:
        """How the server gets the repository, and then the gateway if there is one."""
        gateway = [access.for_gateway(self.deployment)] if self.has_gateway else []
        return (self.server_access, *gateway)

    @property
    def name(self) -> str:
        return self.deployment.name

    @property
    def has_gateway(self) -> bool:
        return bool(self.deployment.spec.gateway.image)

    def server(self, name: str) -> str:
        """The Deployment of tritonserver."""
        return self._text("deployment.yaml", name=name)

    def service(
        self, name: str, *, selects: str, headless: bool = False, scraped: bool = False, track: str = ""
    ) -> str:
        """A Service for the servers called ``selects``; ``track``: only one version of a Rollout."""
        service = {
            "name": name,
            "selects": selects,
            "headless": headless,
            "scraped": scraped,
            "track": track,
        }
        return self._text("service.yaml", name=selects, service=service)

    def account(self) -> str:
        return self._text("serviceaccount.yaml")

    def disruption(self, component: str) -> str:
        return self._text("pdb.yaml", component=component)

    def network(self, name: str, component: str) -> str:
        """Who may call the server, or the gateway."""
        is_server = component == SERVER
        policy = {
            "name": name if is_server else f"{name}-gateway",
            "component": component,
            "peers": [GATEWAY, "smoke"] if is_server else [],
            "ports": [server.HTTP, server.GRPC] if is_server else [server.GATEWAY],
            "metrics": server.METRICS if is_server else server.GATEWAY,
            "closed": is_server and self.deployment.spec.repository.source.kind == "image",
        }
        return self._text("networkpolicy.yaml", name=name, policy=policy)

    def autoscaler(self, kind: str) -> str:
        """``hpa``, ``scaledobject``, or the values of ``prometheus-adapter``."""
        return self._text(f"{kind}.yaml", behavior=self._part("behavior"))

    def gateway(self) -> str:
        return self._text("gateway-deployment.yaml")

    def gateway_service(self) -> str:
        return self._text("gateway-service.yaml")

    def route(self, protocol: str, canary: int | None) -> str:
        """``http`` or ``grpc``; with the canary's share in percent."""
        weights = None if canary is None else {"canary": canary}

        def backends(port: str) -> str:
            number = server.HTTP if port == "http" else server.GRPC
            return self._part("backends", port=number, weights=weights)

        return self._text(f"{protocol}route.yaml", parents=self._part("parents"), backends=backends)

    def monitor(self, component: str) -> str:
        monitor = {
            "name": self.name if component == SERVER else f"{self.name}-gateway",
            "component": component,
            "port": "metrics" if component == SERVER else "http",
            "job": rules.SERVER if component == SERVER else rules.GATEWAY,
            "api_keys": component == GATEWAY and self.deployment.spec.gateway.keys is not None,
        }
        return self._text("servicemonitor.yaml", monitor=monitor)

    def rules(self) -> dict[str, str]:
        """PrometheusRules, name → text: those of ``trb export monitoring``, and the autoscaler's."""
        facts = source.read(self.deployment.repository)
        objective = self.deployment.spec.objective
        settings = rules.Settings(
            objective=rules.Objective(share=objective.share, seconds=objective.ms / 1000),
            gateways=("gateway",) if self.has_gateway else (),
        )
        plain = templates.render(
            "monitoring_rules.yml.jinja",
            endpoints="",
            objective=settings.objective,
            window=settings.window,
            groups=scope.groups(rules.groups(facts, settings), self.scope),
        )
        texts = {"rules": plain}
        if facts.counting:
            texts["drift"] = scope.file(drift_rules.render(), self.scope)
        if self.scaling:
            texts["scaling"] = scaling.rules(
                self.deployment, f'service="{self.name}-headless"', self.namespace
            )
        return {
            name: self._text(
                "prometheusrule.yaml", rules={"name": f"{self.name}-{name}", "text": _from_groups(text)}
            )
            for name, text in texts.items()
        }

    def smoke(self) -> str:
        """The Job that proves a deployment."""
        return self._text("smoke-job.yaml")

    def rollout(self) -> dict[str, str]:
        """The Rollout and its analyses, file → text."""
        queries = self.context["canary"]["queries"]
        # Labels take minutes to tell, and their query is long.
        quick = [query for query in queries if query["name"] != canary_rules.LABELS]
        watched = {"name": "watch", "count": 0, "failures": 2, "queries": quick}
        judged = {"name": "rules", "count": 1, "failures": 0, "queries": queries}
        return {
            "rollout.yaml": self._text("rollout.yaml"),
            "analysis-traffic.yaml": self._text("analysis-traffic.yaml"),
            "analysis-rules.yaml": self._text("analysis-rules.yaml", analysis=judged),
            "analysis-watch.yaml": self._text("analysis-rules.yaml", analysis=watched),
        }

    def _text(self, template: str, **inserted: Any) -> str:
        text = templates.render(
            f"{FOLDER}/{template}.jinja", **self.context, **{"name": self.name, **inserted}
        )
        return values.chart(text) if self.helm else values.plain(text)

    def _part(self, template: str, **inserted: Any) -> str:
        context = {name: each for name, each in self.context.items() if name not in inserted}
        return templates.render(f"{FOLDER}/{template}.jinja", **context, **{"name": self.name, **inserted})

    @cached_property
    def context(self) -> dict[str, Any]:
        """Everything that a template may ask for."""
        basic: dict[str, Any] = {
            "facts": self._facts(),
            "value": values.markers() if self.helm else values.stated(self.deployment),
            "repository": self.server_access,
            "reader": self.readers[-1] if self.has_gateway else None,
            "gateway": self.gateway_values() if self.has_gateway else None,
            "scaling": self._scaling(),
            "prometheus": _prometheus(self.deployment.spec.kubernetes.prometheus),
        }
        basic["canary"] = proof.canary(self.deployment, self.namespace)
        return {**basic, "smoke": proof.smoke(self.deployment, basic)}

    def _facts(self) -> dict[str, Any]:
        deployment, times = self.deployment, server.times(self.deployment)
        downloads = access.total(deployment) if self.server_access.bucket else 0
        environment = {"HOME": "/tmp"}
        if self.server_access.bucket == "s3":
            environment["TRITON_AWS_MOUNT_DIRECTORY"] = "/tmp"
        return {
            "name": self.name,
            "prefix": PREFIX,
            "helm": self.helm,
            "release": deployment.release.name,
            "revision": f"sha256:{deployment.revision}",
            "short": deployment.revision[:8],
            "label": deployment.revision[:LONGEST_LABEL],
            "user": deployment.spec.server.user,
            "gpus": deployment.spec.server.gpus,
            "domain": deployment.spec.exposure.domain,
            "parent_namespace": values.stated(deployment)["parent_namespace"],
            "scaled": self.scaling is not None,
            "times": times,
            "tick": server.TICK,
            # By default a Deployment gives up after 600 s.
            "progress": max(600, times.start + SLACK),
            "ready": server.ready_path(deployment),
            "arguments": (
                *server.arguments(deployment, models=self.server_access.models),
                SUMMARIES,
                *server.restricted("$(TRB_ADMIN_KEY)"),
            ),
            "environment": environment,
            "ports": {
                "http": server.HTTP,
                "grpc": server.GRPC,
                "metrics": server.METRICS,
                "grpc_routed": bool(deployment.spec.exposure.grpc_port),
            },
            "tmp": values.size(1024 * MEBI + 2 * downloads),
        }

    def gateway_values(self) -> dict[str, Any]:
        """Values of the gateway's Deployment."""
        spec, drain = self.deployment.spec, server.times(self.deployment).drain
        url, stable = (
            f"--url=dns:///{self.name}-{service}:{server.GRPC}" for service in ("headless", "stable")
        )
        arguments = [
            *("trb", "gateway", "--host=0.0.0.0", f"--port={server.GATEWAY}", url, f"--repo={server.MODELS}"),
            *(f"--drain={drain}", "--log-format=json"),
            f"--max-body={max(1, min(LARGEST_BODY, spec.exposure.body_limit // MEBI))}",
            *(["--api-keys=/etc/trb/keys/keys"] if spec.gateway.keys else []),
        ]
        return {
            "arguments": arguments,
            "url": url,
            "url_at": arguments.index(url),
            "stable": stable,
            "port": server.GATEWAY,
            "api_keys": spec.gateway.keys is not None,
            "grace": math.ceil(drain + GatewayOptions().timeout + GRACE + server.MARGIN),
        }

    def _scaling(self) -> dict[str, Any] | None:
        scale = self.scaling
        if scale is None:
            return None
        listed = [
            {
                "name": metric.name,
                "help": metric.help,
                "query": metric.query,
                "series": "".join(_SERIES.findall(metric.query)[:1]),
                "threshold": f"{metric.target:g}",
                # Quantities of HPA have no exponent.
                "average": f"{math.ceil(metric.target * 1000)}m",
            }
            for metric in scale.metrics
        ]
        numbers = ("window", "up_percent", "up_seconds", "down_percent", "down_seconds")
        return {"metrics": listed, **{name: getattr(scale, name) for name in numbers}}


def objects(deployment: Deployment, *, helm: bool) -> Objects:
    """The objects. Raises ``TrbError`` for what a cluster could not run."""
    checks.check(deployment)
    rendered = Objects(deployment=deployment, helm=helm)
    rendered.context  # noqa: B018  # raises before anything is rendered
    return rendered


def _from_groups(text: str) -> str:
    """A rules file from its line ``groups:`` on."""
    return text[text.index("groups:\n") :]


def _prometheus(address: str) -> dict[str, Any]:
    """Address as prometheus-adapter's chart takes it."""
    start, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        return {"url": start, "port": port}
    return {"url": address, "port": 443 if address.startswith("https:") else 80}
