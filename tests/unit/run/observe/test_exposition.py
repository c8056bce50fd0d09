"""Pages in the Prometheus text format."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from triton_repo_builder.run.observe.exposition import Page, Sample, growth, quantile, read

PAGE = """
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="bert",version="1"} 42
nv_inference_request_failure{model="bert",reason="OTHER",version="1"} 3
nv_inference_request_failure{model="bert",reason="REJECTED",version="1"} 4
nv_inference_request_failure{model="other",reason="REJECTED",version="1"} 5
nv_inference_request_summary_us{model="bert",version="1",quantile="0.5"} Nan
nv_cpu_utilization 0.25
trb_text_tokens_bucket{model="t",version="1",le="+Inf"} 7 1795785357245
"""


def test_samples_have_name_labels_and_value() -> None:
    samples = read(PAGE)
    assert samples[0] == Sample("nv_inference_request_success", {"model": "bert", "version": "1"}, 42.0)
    assert Sample("nv_cpu_utilization", {}, 0.25) in samples
    assert samples[-1] == Sample("trb_text_tokens_bucket", {"model": "t", "version": "1", "le": "+Inf"}, 7.0)
    assert math.isnan(next(each.value for each in samples if "quantile" in each.labels))
    assert len(samples) == 7


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (r'a{l="b\\c\"d\ne"} 1', 'b\\c"d\ne'),
        ('a{ l = "x, y={z}" , } 1', "x, y={z}"),
        ('a{l="naïve \u2028 日本"} +Inf', "naïve \u2028 日本"),
        ('a{l=""}\t-1e-3\r', ""),
    ],
)
def test_labels_may_hold_anything(line: str, label: str) -> None:
    (sample,) = read(line)
    assert sample.labels == {"l": label}


@pytest.mark.parametrize(
    "line", ["", "# a 1", "a", "a b", "a{l=b} 1", 'a{l="b} 1', '{l="b"} 1', "<html> 1 </html>"]
)
def test_a_line_in_another_format_is_left_out(line: str) -> None:
    assert read(f"{line}\nb 2") == [Sample("b", {}, 2.0)]


@given(some.text())
def test_no_text_is_an_error(text: str) -> None:
    read(text)


@given(some.dictionaries(some.from_regex(r"[a-z_]+", fullmatch=True), some.text()))
def test_labels_are_read_as_they_were_written(labels: dict[str, str]) -> None:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    (sample,) = read("m{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "} 1")
    assert sample.labels == labels


def test_sums_over_some_labels() -> None:
    page = Page(read(PAGE))
    name = "nv_inference_request_failure"
    assert name in page
    assert page.total(name) == 12
    assert page.total(name, model="bert") == 7
    assert page.by("reason", name) == {"OTHER": 3, "REJECTED": 9}
    assert page.by("reason", name, model="other") == {"REJECTED": 5}


def test_what_a_page_does_not_have_is_none_and_not_zero() -> None:
    page = Page(read(PAGE))
    assert page.total("nv_gpu_utilization") is None
    assert page.total("nv_inference_request_summary_us", quantile="0.5") is None  # NaN: nothing was observed
    assert page.by("gpu_uuid", "nv_cpu_utilization") == {}


def test_a_counter_that_fell_began_anew() -> None:
    assert growth({"a": 5, "b": 9, "gone": 3}, {"a": 8, "b": 2, "new": 4}) == {"a": 3, "b": 2, "new": 4}


def test_a_quantile_is_interpolated_as_prometheus_does() -> None:
    buckets = {"1": 0.0, "2": 10.0, "4": 10.0, "+Inf": 20.0}
    assert quantile(0.25, buckets) == 1.5
    assert quantile(0.5, buckets) == 2.0
    assert quantile(0.99, buckets) == 4.0  # above the highest finite bound, which is all that is known
    assert quantile(0.5, {"1": 4.0, "+Inf": 4.0}) == 0.5


@pytest.mark.parametrize("buckets", [{}, {"+Inf": 5.0}, {"1": 0.0, "+Inf": 0.0}, {"1": 2.0, "2": 3.0}])
def test_no_quantile_without_observations(buckets: dict[str, float]) -> None:
    assert quantile(0.5, buckets) is None
