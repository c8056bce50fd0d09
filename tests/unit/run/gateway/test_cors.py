"""Pages of other origins."""

from __future__ import annotations

import pytest

from triton_repo_builder.run.gateway.cors import Cors
from triton_repo_builder.run.gateway.refusal import Refusal

PAGE = {b"origin": b"https://app.example", b"host": b"127.0.0.1:9000"}
OWN = {b"origin": b"http://127.0.0.1:9000", b"host": b"127.0.0.1:9000"}


def test_off_unless_asked() -> None:
    cors = Cors("")
    assert cors.headers(PAGE) == cors.preflight(PAGE) == []
    with pytest.raises(Refusal) as refused:
        cors.check(PAGE)
    assert refused.value.status == 403
    with pytest.raises(Refusal):
        cors.check({**PAGE, b"origin": b"null"})


def test_programs_and_the_gateways_page_may_call_it() -> None:
    cors = Cors("")
    cors.check({})
    cors.check(OWN)
    cors.check({**PAGE, b"sec-fetch-site": b"same-origin"})  # behind a proxy that changes Host


@pytest.mark.parametrize("origins", ["*", "https://app.example", "http://a, https://app.example/"])
def test_allowed_origins_may_read_the_answer(origins: str) -> None:
    cors = Cors(origins)
    cors.check(PAGE)
    assert dict(cors.headers(PAGE))[b"access-control-allow-origin"] == b"https://app.example"
    asked = {**PAGE, b"access-control-request-headers": b"authorization, x-stainless-os"}
    answer = dict(cors.preflight(asked))
    assert answer[b"access-control-allow-headers"] == b"authorization, x-stainless-os"
    assert b"POST" in answer[b"access-control-allow-methods"]


def test_another_origin_is_still_refused() -> None:
    with pytest.raises(Refusal):
        Cors("https://app.example").check({**PAGE, b"origin": b"https://app.example.evil"})
