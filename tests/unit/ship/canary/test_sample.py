"""Requests of each side, counted from metrics pages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest

from triton_repo_builder.run.observe import exposition
from triton_repo_builder.run.observe.exposition import Page
from triton_repo_builder.ship.canary import sample
from triton_repo_builder.ship.canary.sample import Reading, Side

ENDPOINTS = {"bert": True, "plain": False}


def page(lines: Mapping[str, float]) -> Page:
    """A metrics page of these series."""
    return Page(exposition.read("\n".join(f"{name} {value}" for name, value in lines.items())))


def requests(service: str, code: str, method: str = "POST") -> str:
    return f'{sample.REQUESTS}{{service="{service}@file",code="{code}",method="{method}",protocol="http"}}'


def seconds(service: str, bound: str, code: str = "200") -> str:
    labels = f'service="{service}@file",code="{code}",method="POST",protocol="http",le="{bound}"'
    return f"{sample.SECONDS}{{{labels}}}"


def failed(model: str, reason: str = "BACKEND") -> str:
    return f'{sample.FAILURES}{{model="{model}",version="1",reason="{reason}"}}'


def test_statuses_of_both_protocols() -> None:
    before = Reading(traefik=page({requests("canary", "200"): 5}))
    after = Reading(
        traefik=page(
            {
                requests("canary", "200"): 105,
                requests("canary-grpc", "2"): 48,  # as Traefik counts answers over gRPC
                requests("canary-grpc", "0"): 1,
                requests("canary-grpc", "5"): 1,
                requests("canary-grpc", "1"): 6,
                requests("canary", "500"): 2,
                requests("canary", "499"): 7,
                requests("canary", "502"): 1,
                requests("canary", "200", "GET"): 1000,
                requests("stable", "200"): 30,
            }
        )
    )
    traffic = sample.between(before, after, endpoints=ENDPOINTS)
    assert (traffic.canary.sample.requests, traffic.canary.sample.failures) == (153, 4)
    assert (traffic.stable.sample.requests, traffic.stable.sample.failures) == (30, 0)
    assert traffic.shadow is None


def test_failures_over_grpc_are_the_servers() -> None:
    """Ensembles count twice, cancelled requests not at all, those that trb sent itself are taken off."""
    after = Reading(
        traefik=page({requests("canary-grpc", "2"): 40, requests("canary", "500"): 2}),
        canary=page(
            {failed("bert"): 10, failed("plain"): 3, failed("plain", "CANCELED"): 9, failed("step"): 8}
        ),
    )
    traffic = sample.between(Reading(), after, endpoints=ENDPOINTS)
    assert traffic.canary.sample.failures == 8
    own = sample.between(Reading(), after, endpoints=ENDPOINTS, direct_failures={"canary": 5})
    assert own.canary.sample.failures == 3
    most = sample.between(
        Reading(),
        Reading(traefik=page({requests("canary", "200"): 2}), canary=after.canary),
        endpoints=ENDPOINTS,
    )
    assert most.canary.sample.failures == most.canary.sample.requests == 2


def test_a_restarted_server_counts_anew() -> None:
    before = Reading(traefik=page({requests("stable", "200"): 500}))
    after = Reading(traefik=page({requests("stable", "200"): 20}))
    assert sample.between(before, after, endpoints=ENDPOINTS).stable.sample.requests == 20


def test_times_of_answered_requests() -> None:
    after = Reading(
        traefik=page(
            {
                seconds("canary", "0.01"): 50,
                seconds("canary", "0.02"): 90,
                seconds("canary", "+Inf"): 100,
                seconds("canary-grpc", "0.01", "2"): 100,
                seconds("canary-grpc", "0.02", "2"): 100,
                seconds("canary-grpc", "+Inf", "2"): 100,
                seconds("canary-grpc", "0.01", "13"): 1000,
                seconds("canary", "0.01", "500"): 1000,
            }
        )
    )
    counted = sample.between(Reading(), after, endpoints=ENDPOINTS).canary.sample
    assert counted.answered == 200
    assert counted.p99 == 0.02  # above the last bound
    assert (counted.above(0.01), counted.above(0.015), counted.above(0.02), counted.above(9.0)) == (
        50,
        30,
        10,
        0,
    )


def test_own_times_have_traefiks_buckets() -> None:
    counted = sample.of([0.0101] * 99 + [0.5], 3)
    assert (counted.requests, counted.failures, counted.answered) == (103, 3, 100)
    assert counted.p99 == pytest.approx(0.0101, rel=0.1)
    assert counted.above(0.1) == 1
    assert sample.of([], 0).p99 is None
    assert counted.plus(counted).requests == 206
    assert counted.plus(sample.of([], 0)).buckets == counted.buckets


def test_distributions_over_versions() -> None:
    old = page({'trb_answers_total{model="bert_post",version="1",label="good"}': 10})
    new = page(
        {
            'trb_answers_total{model="bert_post",version="1",label="good"}': 15,
            'trb_answers_total{model="bert_post",version="2",label="bad"}': 5,
            'trb_text_tokens_bucket{model="bert_tokenizer",version="1",le="4"}': 3,
            'trb_text_tokens_bucket{model="bert_tokenizer",version="1",le="8"}': 4,
            'trb_text_tokens_bucket{model="bert_tokenizer",version="1",le="+Inf"}': 4,
        }
    )
    side = sample.between(Reading(stable=old), Reading(stable=new), endpoints=ENDPOINTS).stable
    assert side.counts["bert_post", "answers"] == {"good": 5.0, "bad": 5.0}
    assert side.texts["bert_tokenizer", "text_tokens"] == 4
    assert sample.side_of_json(json.loads(json.dumps(side.to_json()))) == side


def test_shadow_of_the_gateway() -> None:
    def gateway(same: float, different: float) -> Page:
        return page(
            {
                'trb_shadow_answers_total{endpoint="bert",agreement="same"}': same,
                'trb_shadow_answers_total{endpoint="bert",agreement="different"}': different,
                'trb_shadow_answers_total{endpoint="other",agreement="different"}': 1000,
            }
        )

    traffic = sample.between(
        Reading(gateway=gateway(10, 1)), Reading(gateway=gateway(50, 11)), endpoints=ENDPOINTS
    )
    assert traffic.shadow is not None
    assert (traffic.shadow.compared, traffic.shadow.different) == (50, 10)


def test_a_quantile_without_end() -> None:
    assert math.isclose(sample.of([100.0] * 10, 0).p99 or 0, sample.BUCKETS[-1])
    assert Side().sample.share == 0.0
