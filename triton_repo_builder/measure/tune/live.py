"""A running server whose models are loaded with other configurations; the repository stays as it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.bench.options import Variant
from triton_repo_builder.measure.tune import factors
from triton_repo_builder.measure.tune.factors import Raw, Setting, Subject
from triton_repo_builder.repository import Repository, composition
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client import HttpClient, NoAnswer, RequestFailed, Urls
from triton_repo_builder.run.serve.loading.load_unload import REFUSED

LOAD = 120.0
"""Seconds in which a model must be loaded with another configuration."""
DRAIN = 30.0
FRESH = "trb_tune_load"
"""Parameter that nothing reads. A configuration with fewer instances and no other change is applied in place
by tritonserver, which then ends one process after the other, and otherwise ends them in the background."""
Opened = tuple[Urls, int | None]
Open = Callable[[], AbstractContextManager[Opened]]


UNKNOWN: Raw = {}
"""Configuration of a model whose load failed or has no answer yet: like no other, so it is loaded again."""


class TrialFailed(Exception):
    """A failure of one setting; others can still be measured."""


FAILURES = (TrialFailed, RequestFailed, TrbError)
"""Exceptions of a measurement whose setting, server or request fails."""


def told(error: Exception) -> str:
    """One of ``FAILURES`` for a note or a cell."""
    return error.message if isinstance(error, TrbError) else str(error)


def needed(repository: Repository, endpoint: str, variants: Sequence[str]) -> tuple[str, ...]:
    """The endpoints that a server for this search loads. Raises ``TrbError`` USAGE."""
    all_names = tuple(model.name for model in repository.endpoints)
    names = (endpoint, *variants) if endpoint else (*all_names, *variants)
    unknown = [name for name in names if repository.model(name) is None]
    message = f"has no endpoint {unknown[0]}" if unknown else ""
    if not endpoint and len(all_names) > 1:
        message = f"has {len(all_names)} endpoints"
    if message:
        raise TrbError(
            Code.USAGE,
            message,
            where=str(repository.path),
            remedy=f"choose one with --endpoint: {', '.join(all_names)}",
        )
    return tuple(dict.fromkeys(names))


def affected(repository: Repository, names: Iterable[str]) -> tuple[str, ...]:
    """The endpoints that share a model with these, themselves included."""
    models = set(composition.members(names, repository.steps_of))
    return tuple(
        model.name
        for model in repository.endpoints
        if not models.isdisjoint(composition.members((model.name,), repository.steps_of))
    )


class Live:
    """The server and its models' configurations; with ``own`` it is started again if it ends."""

    def __init__(self, opened: Open, repository: Repository | None, *, own: bool) -> None:
        self._open, self.own = opened, own
        self.repository = repository
        self._stack = ExitStack()
        self.subjects: dict[str, Subject] = {}
        self.restarts = 0
        self._loaded: dict[str, Raw] = {}
        self._loads = 0

    def __enter__(self) -> Live:
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if not self.own and self.http.answers_live():
                self._put_back()
        finally:
            self._stack.close()

    def _start(self) -> None:
        self.urls, self.pid = self._stack.enter_context(self._open())
        self.http = HttpClient(self.urls.http, LOAD)
        self._loaded = {}

    def add(self, endpoint: str) -> Subject:
        """Record an endpoint with its current configuration."""
        try:
            names = composition.members((endpoint,), self.http.steps_of)
            configs = {name: self.http.config(name) for name in names}
        except RequestFailed as error:
            raise TrbError(
                Code.USAGE,
                f"has no endpoint {endpoint} that is ready: {error}",
                where=self.urls.http,
                remedy="see what it has with: trb status",
            ) from None
        self.subjects[endpoint] = factors.subject(endpoint, _raw(configs))
        return self.subjects[endpoint]

    def variant(self, endpoint: str) -> Variant:
        """The endpoint as a variant for ``trb bench``'s load."""
        return Variant(name="", urls=self.urls, repository=self.repository, endpoint=endpoint, pid=self.pid)

    def apply(self, setting: Setting, base: Setting) -> float:
        """Load the configurations that differ; returns the seconds it took. Raises ``TrialFailed``."""
        begun = time.monotonic()
        subject = self.subjects[self.endpoint(setting)]
        target = factors.configs(subject, setting, base)
        changed = {name: raw for name, raw in target.items() if self._current(subject, name) != raw}
        for name, raw in changed.items():
            self._load(name, raw, fresh=_instances(raw) < _instances(self._current(subject, name)))
        # A step that was loaded with a smaller batch has taken its ensemble away.
        for member in reversed(subject.members):
            if member.ensemble and not self.http.ready(member.name):
                self._load(member.name, target[member.name])
        for name in changed:
            self.http.wait_until_settled(name, DRAIN)
        return time.monotonic() - begun

    def endpoint(self, setting: Setting) -> str:
        """The endpoint that is called: a variant's, or the only one."""
        return str(setting.get(factors.VARIANT, next(iter(self.subjects))))

    def _put_back(self) -> None:
        """To the end, if Ctrl-C comes again meanwhile: others use this server. Raises ``TrbError``."""
        try:
            try:
                self.restore()
            except KeyboardInterrupt:
                self.restore()
                raise
        except (TrialFailed, RequestFailed) as error:
            raise TrbError(
                Code.MODEL_FAILED,
                f"does not take its own configuration back: {error}",
                where=self.urls.http,
                remedy="start it again: until then it has that of the last trial",
            ) from None

    def restore(self) -> None:
        """Every model as it was found. A plain load would keep the last configuration (tritonserver 2.51)."""
        for subject in self.subjects.values():
            for member in reversed(subject.members):
                name = member.name
                changed = self._loaded.get(name, member.raw) != member.raw
                # A step that was loaded with a smaller batch has taken its ensemble away.
                if changed or (self._loaded and member.ensemble and not self.http.ready(name)):
                    self._load(name, member.raw)
                    self.http.wait_until_settled(name, DRAIN)

    def revive(self) -> None:
        """Start the server again if it is ours and does not answer. Raises ``TrbError`` SERVER_DIED."""
        if self.http.answers_live():
            return
        if not self.own:
            raise TrbError(
                Code.SERVER_DIED,
                "does not answer any more",
                where=self.urls.http,
                remedy="start it again; with --output the next run goes on where this one ended",
            )
        self._stack.close()
        self._stack = ExitStack()
        self.restarts += 1
        self._start()

    def _current(self, subject: Subject, name: str) -> Raw:
        return self._loaded.get(name, subject.member(name).raw)

    def _load(self, name: str, raw: Mapping[str, Any], *, fresh: bool = False) -> None:
        before = self._loaded.get(name)
        self._loaded[name] = UNKNOWN
        sent = dict(raw)
        if fresh:
            self._loads += 1
            sent["parameters"] = {**raw.get("parameters", {}), FRESH: {"string_value": str(self._loads)}}
        try:
            reason = self.http.load(name, {"config": json.dumps(sent)})
        except NoAnswer as error:
            raise TrialFailed(f"the server ended while {name} was loaded ({error})") from None
        if REFUSED in reason:
            if before is None:
                del self._loaded[name]
            raise TrbError(
                Code.NOT_EXPLICIT,
                "this server does not load or unload models on request",
                where=self.urls.http,
                remedy="start it with --model-control-mode=explicit, as trb serve does",
            )
        if reason:
            raise TrialFailed(f"{name} cannot be loaded so: {reason}")
        self._loaded[name] = dict(raw)


def _instances(raw: Raw) -> int:
    return sum(int(group.get("count", 1)) for group in raw.get("instance_group") or ())


def _raw(configs: Mapping[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Configurations of the server, without the field that it fills in and does not take back."""
    return {
        name: ModelConfig({key: value for key, value in config.raw.items() if key != "runtime"})
        for name, config in configs.items()
    }
