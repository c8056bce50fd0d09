"""docs/gateway.md names each option of ``trb gateway`` with its default, each cause and each metric."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from triton_repo_builder.base.declaration import declared
from triton_repo_builder.cli.gateway import PlaceOptions
from triton_repo_builder.run.gateway import metrics
from triton_repo_builder.run.gateway.options import GatewayOptions

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "gateway.md").read_text()
TABLE = dict(re.findall(r"^\| `(--[a-z-]+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
OPTIONS = {
    flag: field.default
    for kind in (PlaceOptions, GatewayOptions)
    for flag, field, option in declared(kind)
    if not option.hidden
}


@pytest.mark.parametrize("flag", [flag for flag in OPTIONS if flag != "--json"])
def test_every_option_is_there(flag: str) -> None:
    assert f"`{flag}`" in PAGE


@pytest.mark.parametrize("flag", [flag for flag in TABLE if flag in OPTIONS and flag != "--no-page"])
def test_defaults_are_true(flag: str) -> None:
    default = OPTIONS[flag]
    number = isinstance(default, (int, float))
    assert TABLE[flag] == (f"{default:g}" if number else str(default or "none"))


def test_every_metric_and_cause_is_there() -> None:
    names = {metric.name for metric in REGISTRY.collect() if metric.name.startswith("trb_gateway_")}
    assert len(names) >= 8
    for name in names:
        assert f"`{name}_total`" in PAGE or f"`{name}`" in PAGE, name
    for cause in metrics.CAUSES.values():
        assert f"`{cause}`" in PAGE, cause
