"""Malformed requests: refused, one by one, while the server goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from triton_repo_builder.base.releases import Release
from triton_repo_builder.run.client import BROKEN, SILENT, RequestFailed
from triton_repo_builder.run.smoke import compare
from triton_repo_builder.run.smoke.attempt import Mismatch, Seen, attempt, not_done
from triton_repo_builder.run.smoke.probes import Probe, probes
from triton_repo_builder.run.smoke.report import Check, Status
from triton_repo_builder.run.smoke.session import JSON, ServedEndpoint, SmokeSession, inputs_of

GROUP = "malformed requests"


def checks(session: SmokeSession, endpoint: ServedEndpoint) -> Iterator[Check]:
    """Send each probe and look after the server; stop at the first that harms it."""
    if not endpoint.example:
        yield not_done(GROUP, "requests", endpoint.name, endpoint.why)
        return
    before = attempt(
        GROUP, "a sound request first", partial(_sound, session, endpoint), endpoint=endpoint.name
    )
    if before.status is Status.FAILED:
        why = f"not sent: even before, the first case is not answered right: {before.detail}"
        yield not_done(GROUP, "requests", endpoint.name, why)
        return
    harmed = ""
    for probe in probes(session, endpoint):
        if harmed:
            why = f"not sent: the server did not recover from {harmed}"
            yield replace(not_done(GROUP, probe.name, endpoint.name, why), protocol=probe.protocol)
            continue
        place = {"endpoint": endpoint.name, "protocol": probe.protocol}
        check = attempt(GROUP, probe.name, partial(_refused, probe, session.release), **place)
        after = attempt(
            GROUP, f"{probe.name}, then a sound request", partial(_sound, session, endpoint), **place
        )
        yield check
        yield after
        if after.status is Status.FAILED:
            harmed = f"{probe.name} ({probe.protocol})"


def _refused(probe: Probe, release: Release) -> Seen:
    expected = "an answer or a refusal" if probe.strange else "a refusal"
    try:
        probe.send()
    except RequestFailed as error:
        if error.kind == SILENT:
            raise Mismatch(f"expected {expected}, got none: {error}") from None
        if error.kind == BROKEN and not _known(probe, error, release):
            raise Mismatch(f"expected {expected}, got a server error: {error}") from None
        return Seen()
    if not probe.strange:
        raise Mismatch("expected a refusal, it was answered")
    return Seen()


def _known(probe: Probe, error: RequestFailed, release: Release) -> bool:
    """Whether the server itself, not a model, refuses such a request with a server error.

    The probe shows its parser's behaviour, whatever the text: it changed in 26.04.
    """
    by_parser = probe.protocol == JSON and error.status == "500" and probe.name in release.refused_with_500
    return by_parser or any(text in error.message for text in probe.excused)


def _sound(session: SmokeSession, endpoint: ServedEndpoint) -> Seen:
    """The server is up, the endpoint ready and the first case as right as before, over both protocols.

    Whether the whole server is ready says nothing here: another endpoint may have failed, or be loading.
    """
    for client in (session.http, session.grpc):
        if not client.live():
            raise Mismatch("expected the server to be live afterwards, but it is not")
        if unready := session.unready(client, endpoint):
            raise Mismatch(f"expected {unready} to be ready afterwards, but it is not")
    if endpoint.file is not None:
        case = endpoint.file.cases[0]
        for protocol in endpoint.protocols:
            answer = session.ask(endpoint.name, protocol, inputs_of(case))
            compare.same(case, answer, endpoint.file.tolerance.alone)
    return Seen()
