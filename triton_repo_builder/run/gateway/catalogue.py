"""The endpoints behind a gateway: which there are, what they answer, and which one a request means."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.gateway import recognition
from triton_repo_builder.run.gateway.refusal import Refusal, invalid
from triton_repo_builder.run.gateway.text_rules import TextRules

SHOWN = 8
"""Names in a message."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """One endpoint as clients of the gateway see it."""

    name: str
    """The name in requests (``model``)."""
    model: str
    """Triton's name of it."""
    version: str = ""
    """Triton's version; empty: the newest that is served."""
    task: str
    """Empty if no route can call it."""
    endpoint: Endpoint
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Triton's names of inputs that differ from the task's (``recognition``)."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    rules: TextRules = field(default=TextRules(), compare=False)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Facts of the manifest: activation, labels, aggregation."""
    ensemble: bool = field(default=False, compare=False)
    """Whether it has steps: its versions share one config.pbtxt, so they run the same ones."""
    fault: str = ""
    """The fault of its labels: requests that need them are refused."""

    @property
    def rows(self) -> int:
        """Most rows of one request."""
        return max(1, self.endpoint.max_batch_size)


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Names and routes of ``gateway.toml``."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """Another name → an endpoint's, such as ``text-embedding-3-small``."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Path → the endpoint that answers it when a request names none."""


class Catalogue:
    """The endpoints by name."""

    def __init__(self, served: Iterable[Served] = (), routing: Routing = Routing()) -> None:
        self.by_name = {endpoint.name: endpoint for endpoint in served}
        self.routing = routing

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def has(self, name: str) -> bool:
        """Whether it is the name of an endpoint, or an alias."""
        return name in self.by_name or name in self.routing.aliases

    def doing(self, tasks: Collection[str]) -> list[Served]:
        """The endpoints with one of these tasks."""
        return [served for served in self.by_name.values() if served.task in tasks]

    def find(self, name: object, tasks: Sequence[str], path: str) -> Served:
        """The endpoint that a request to ``path`` means with its ``model``, which may be missing.

        Raises ``Refusal``: 404 for an unknown name, 400 for one that cannot do this or that must be named.
        """
        if name is not None and not isinstance(name, str):
            raise invalid("`model` must be a string", "model")
        able = self.doing(tasks)
        if not name:
            chosen = self.routing.routes.get(path, "")
            if chosen:
                return self._routed(path, chosen, tasks)
            if len(able) == 1:
                return able[0]
            raise invalid(
                f"several endpoints can answer this; set `model` to one of: {shown(able)}"
                if able
                else f"no endpoint here does {' or '.join(tasks)}",
                "model",
            )
        served = self.by_name.get(self.routing.aliases.get(name, name))
        if served is None:
            raise _missing(self._unknown(name, able))
        if served.task not in tasks:
            does = served.task or "something no route of this gateway answers"
            raise invalid(
                f"the model '{served.name}' does {does}, this needs {' or '.join(tasks)}; "
                f"models that can: {shown(able)}",
                "model",
            )
        return served

    def _unknown(self, name: str, able: Sequence[Served]) -> str:
        """The message about a name that leads to no endpoint."""
        target = self.routing.aliases.get(name)
        if target is not None:
            return f"'{name:.80}' is an alias of '{target:.80}', which the server does not have"
        listed = f"the model '{name:.80}' does not exist; models that can answer this: {shown(able)}"
        return f"{listed}; or add an alias (--map)" if able else listed

    def _routed(self, path: str, name: str, tasks: Sequence[str]) -> Served:
        """The endpoint that gateway.toml gives to a route. Raises ``Refusal`` if it cannot answer."""
        served = self.by_name.get(self.routing.aliases.get(name, name))
        if served is None:
            raise _missing(f"gateway.toml gives {path} to '{name:.80}', which the server does not have")
        if served.task not in tasks:
            raise invalid(
                f"gateway.toml gives {path} to '{served.name}', which does {served.task or 'none'}, and this "
                f"needs {' or '.join(tasks)}; set `model` to one of: {shown(self.doing(tasks))}",
                "model",
            )
        return served


def _missing(message: str) -> Refusal:
    return Refusal(404, message, field="model", code="model_not_found")


def shown(served: Sequence[Served]) -> str:
    """Names for a message."""
    names = [endpoint.name for endpoint in served]
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest if names else "none"


def task_of(endpoint: Endpoint, stated: str = "") -> str:
    """The task by the manifest's word, else by the signature; empty if it is none of the gateway's."""
    return stated if stated in recognition.BY_TASK else recognition.task(endpoint)
