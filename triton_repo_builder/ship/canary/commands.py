"""``trb canary start``, ``status``, ``promote``, ``abort`` and ``finish``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.canary import golden, judge, preflight, state, traefik
from triton_repo_builder.ship.canary.engine import Engine, Tell
from triton_repo_builder.ship.canary.state import State, StateFiles
from triton_repo_builder.ship.canary.traefik import Traefik
from triton_repo_builder.ship.canary.world import LiveWorld, Servers, split
from triton_repo_builder.ship.targets import canary_rules, routes, server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.routes import Backend, Routes
from triton_repo_builder.ship.targets.spec import ALL

ABORTED_AFTER = "trb canary abort after the promotion"
PATIENCE = 60.0
"""Seconds that another process may take to do what it was asked."""
TICK = 0.2


@dataclass(frozen=True, kw_only=True)
class Places:
    """Everything that a canary talks to."""

    servers: Servers
    routed_stable: Backend
    routed_canary: Backend
    """The servers as Traefik reaches them."""
    traefik: str
    """Empty for ``finish``: as at the start."""
    file: Path
    """The routes file."""


def start(deployment: Deployment, places: Places, tell: Tell) -> State:
    """Run a canary to its end, or go on with one that was interrupted. Raises ``TrbError``."""
    files = StateFiles(routes=places.file)
    with _alone(files):
        proxy = Traefik(places.traefik, places.file)
        proxy.check()
        endpoints = preflight.check(places.servers, deployment)
        current, base = _begin(files, proxy, deployment, places)
        cases = golden.of(
            deployment.repository, places.servers.stable, places.servers.canary, tuple(endpoints)
        )
        files.asked()
        world = LiveWorld(
            places.servers,
            proxy,
            replace(base, canary=(places.routed_canary,)),
            files,
            cases,
            endpoints,
            server.ready_path(deployment),
        )
        rules = canary_rules.of(deployment.spec.canary.rules)
        cached = any(model.config.cached for model in deployment.repository.models if model.stated)
        return Engine(deployment.spec.canary, rules, world, tell, cached=cached).run(current)


def _begin(files: StateFiles, proxy: Traefik, deployment: Deployment, places: Places) -> tuple[State, Routes]:
    """The state to go on from, and the routes without a canary. Raises ``TrbError``."""
    stored = files.load()
    servers, steps = places.servers, deployment.spec.canary.steps
    fresh = State(
        name=deployment.name,
        deploy=str(deployment.file),
        stable=servers.stable.http,
        canary=servers.canary.http,
        traefik=places.traefik,
        steps=steps,
        began=time.time(),
    )
    current = proxy.read() if places.file.exists() else routes.of(deployment, [places.routed_stable])
    base = split(current, 0)
    if places.routed_canary in base.stable:
        raise TrbError(
            Code.USAGE,
            "is a stable server in the routes file",
            where=places.routed_canary.http,
            remedy="name another server with --canary",
        )
    if stored is not None and stored.result == state.RUNNING:
        same = ("name", "stable", "canary", "steps")
        other = next((name for name in same if getattr(stored, name) != getattr(fresh, name)), "")
        if other:
            raise TrbError(
                Code.USAGE,
                f"a canary is under way here with another '{other}': {getattr(stored, other)}",
                where=str(files.state),
                remedy="go on with the same command, or end it with trb canary abort",
            )
        return replace(stored, traefik=places.traefik), base
    if current.weight:
        promoted = stored is not None and stored.result == state.PROMOTED
        raise TrbError(
            Code.USAGE,
            "the last canary was promoted and still has the traffic"
            if promoted
            else f"sends {current.weight} % to a canary, of which there is no state",
            where=str(places.file),
            remedy="give the stable server the new version, then run trb canary finish"
            if promoted
            else "send all traffic to the stable server first: trb canary abort",
        )
    proxy.write(base)
    fresh = replace(fresh, routes=routes.text(base))
    files.save(fresh)
    return fresh, base


def status(file: Path) -> tuple[State, bool]:
    """The state, and whether a process drives it now. Raises ``TrbError`` NOT_FOUND."""
    files = StateFiles(routes=file)
    current = files.load()
    if current is None:
        raise _none(files)
    return current, files.running()


def moved(file: Path, current: State) -> str:
    """How the routes file is not as the canary left it; empty if it is."""
    try:
        weight = traefik.read(file).weight
    except TrbError as error:
        return f"{file} {error.message}"
    if weight == current.weight:
        return ""
    return f"{file} sends {weight} % to the canary, not {current.weight} %: it was changed since"


def promote(file: Path, proxy_url: str | None) -> State:
    """All traffic to the canary now. Raises ``TrbError``."""
    return _command(file, proxy_url, state.PROMOTE)


def abort(file: Path, proxy_url: str | None) -> State | None:
    """All traffic to the stable server now; None if there was no state. Raises ``TrbError``."""
    files = StateFiles(routes=file)
    try:
        stored = files.load()
    except TrbError:  # damaged: the routes file alone says enough
        stored = None
    if stored is not None and stored.result == state.RUNNING:
        return _command(file, proxy_url, state.ABORT)
    with _alone(files):
        target, untouched = _stable_only(file, stored)
        if stored is None and untouched:
            raise _none(files)
        proxy = Traefik(proxy_url or (stored.traefik if stored else traefik.DEFAULT), file)
        proxy.put(target)
        if stored is None:
            files.forget()
        elif stored.result == state.PROMOTED:
            stored = replace(stored, weight=0, result=state.ABORTED, reason=ABORTED_AFTER)
            files.save(stored)
        _confirm(proxy, target)
    return stored


def _stable_only(file: Path, stored: State | None) -> tuple[Routes, bool]:
    """The routes with all traffic at the stable server, and whether the file has them already.

    An edited file says them in its comment, a lost one in the state: going back must always work.
    Raises ``TrbError`` if neither is there.
    """
    try:
        current = traefik.read(file)
        return split(current, 0), not current.canary
    except TrbError as error:
        problem = error
    try:
        text = stored.routes if stored else ""
        return split(routes.stated(text, "") if text else traefik.stated(file), 0), False
    except TrbError:
        raise problem from None


def _confirm(proxy: Traefik, target: Routes) -> None:
    """Raise ``TrbError`` TIMED_OUT if the file is written, and Traefik does not follow."""
    try:
        proxy.follow(target)
    except TrbError as error:
        raise TrbError(
            error.code,
            f"the file sends all traffic to the stable server now, but {error.message}",
            where=error.where,
            remedy="name Traefik's API with --traefik; does it read this file, and what does its log say?",
        ) from None


def _command(file: Path, proxy_url: str | None, command: str) -> State:
    """Ask the process that runs the canary; without one do it here."""
    files = StateFiles(routes=file)
    current = files.load()
    if current is None or current.result != state.RUNNING:
        raise _none(files, current)
    with files.locked() as alone:
        if alone:
            weight, result = (ALL, state.PROMOTED) if command == state.PROMOTE else (0, state.ABORTED)
            if not weight:
                target, _ = _stable_only(file, current)
                proxy = Traefik(proxy_url or current.traefik, file)
                proxy.put(target)
                current = replace(current, weight=0, result=result, reason=f"trb canary {command}")
                files.save(current)
                _confirm(proxy, target)
                return current
            stored = traefik.read(file)
            if not stored.canary:
                raise TrbError(
                    Code.USAGE,
                    "has no canary yet: no step has begun",
                    where=str(file),
                    remedy="run trb canary start again",
                )
            _write(file, proxy_url or current.traefik, split(stored, weight))
            current = replace(current, weight=weight, result=result, reason=f"trb canary {command}")
            files.save(current)
            return current
    files.request(command)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(TICK)
        now = files.load()
        if now is not None and now.result != state.RUNNING:
            return now
    raise TrbError(
        Code.TIMED_OUT,
        f"the process that runs the canary did not do it within {PATIENCE:g} s",
        where=str(file),
        remedy="look at its output; end it with Ctrl-C, then run this command again",
    )


def finish(deployment: Deployment, places: Places) -> None:
    """After a promotion: all traffic to the stable server, once it answers as the canary does.

    Raises ``TrbError`` PROMOTE_FAILED if it does not, and then nothing was changed.
    """
    files = StateFiles(routes=places.file)
    with _alone(files):
        current = files.load()
        if current is None or current.result != state.PROMOTED:
            raise _none(files, current)
        proxy = Traefik(places.traefik or current.traefik, places.file)
        proxy.check()
        endpoints = preflight.check(places.servers, deployment)
        cases = golden.of(
            deployment.repository, places.servers.stable, places.servers.canary, tuple(endpoints)
        )
        rules = {rule.name: rule for rule in canary_rules.of(deployment.spec.canary.rules)}
        verdict = judge.answers(rules[canary_rules.ANSWERS], judge.GOLDEN, cases.round().answers, final=True)
        if verdict.broken:
            raise TrbError(
                Code.PROMOTE_FAILED,
                f"the stable server does not serve the new version yet: {judge.words(verdict)}; nothing was "
                "changed",
                where=places.servers.stable.http,
                remedy="give it the new version, then run trb canary finish again",
            )
        proxy.write(split(proxy.read(), 0))
        files.forget()


def _write(file: Path, url: str, target: Routes) -> None:
    proxy = Traefik(url, file)
    proxy.check()
    proxy.write(target)


@contextmanager
def _alone(files: StateFiles) -> Iterator[None]:
    with files.locked() as alone:
        if not alone:
            raise files.busy()
        yield


def _none(files: StateFiles, current: State | None = None) -> TrbError:
    if current is None:
        return TrbError(
            Code.NOT_FOUND,
            "no canary here",
            where=str(files.routes),
            remedy="name the routes file with --routes, or begin one: trb canary start",
        )
    return TrbError(
        Code.USAGE,
        f"the last canary is over: {current.result}" + (f" ({current.reason})" if current.reason else ""),
        where=str(files.routes),
        remedy="trb canary status shows it"
        + ("; trb canary finish ends it" if current.result == state.PROMOTED else ""),
    )
