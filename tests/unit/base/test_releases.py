from __future__ import annotations

from itertools import pairwise

import pytest

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError


def test_the_default_is_the_embedded_server() -> None:
    release = releases.default()
    assert (release.name, release.server, release.onnxruntime) == ("24.10", "2.51.0", "1.19.2")
    assert (release.max_ir, release.max_opset, release.python) == (10, 21, "3.10")


def test_releases_are_in_order_and_limits_never_fall() -> None:
    known = list(releases.load().values())
    assert [release.name for release in known] == sorted(release.name for release in known)
    assert known[0].name == "24.04"
    for older, newer in pairwise(known):
        assert older.max_ir <= newer.max_ir
        assert older.max_opset <= newer.max_opset
        assert older.features <= newer.features
        assert _numbers(older.server) < _numbers(newer.server)
        assert _numbers(older.onnxruntime) <= _numbers(newer.onnxruntime)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split("."))


def test_what_older_runtimes_do_not_infer() -> None:
    tables = releases.older_inference()
    newest, *_, oldest = tables
    assert newest["GreaterOrEqual"] == (12, "nothing")
    assert "Einsum" not in newest
    assert oldest["Einsum"] == (12, "rank")
    # 1.18.0 to 1.20.1 count other windows than 1.17.3 before and 1.21.0 after them.
    assert [table.get("MaxPool", (0, ""))[1] for table in tables] == ["", "windows", "windows", ""]
    for release in releases.load().values():
        less = {
            operator: (since, kept)
            for table in tables
            for operator, (since, kept) in table.items()
            if release.infers(operator, since) == kept
        }
        assert less in [{}, *tables], release.name


def test_each_month_from_the_first_to_the_last_is_there() -> None:
    names = list(releases.load())
    months = [int(name[:2]) * 12 + int(name[3:]) for name in names]
    assert months == list(range(months[0], months[-1] + 1))


def test_each_runtime_is_used_and_each_feature_begins_at_a_release() -> None:
    document = releases._document()
    used = {entry["onnxruntime"] for entry in document["releases"].values()}
    assert set(document["onnxruntime"]) == used
    assert set(document["features"].values()) <= set(releases.load())


@pytest.mark.parametrize(
    ("feature", "first"),
    [("model_metrics", "24.11"), ("max_inflight_requests", "25.11"), ("bf16_io", "26.03")],
)
def test_features_begin(feature: str, first: str) -> None:
    assert releases.first_with(feature) == first
    having = [release.name for release in releases.load().values() if feature in release.features]
    assert having[0] == first
    assert having[-1] == list(releases.load())[-1]


def test_what_can_load_a_model() -> None:
    assert releases.can_load(9, 20)[0] == "24.04"
    assert releases.can_load(10, 21)[0] == "24.05"
    assert releases.can_load(10, 22)[0] == "25.03"
    assert releases.can_load(11, 21)[0] == "25.09"
    assert releases.can_load(99, 17) == []


def test_an_unknown_release_names_the_known_ones() -> None:
    with pytest.raises(TrbError) as caught:
        releases.get("24.13")
    assert caught.value.code is Code.USAGE
    assert "24.10" in caught.value.remedy
