"""Load a server and report: throughput, exact latencies, failures, batching, CPU."""

from triton_repo_builder.measure.bench.options import Variant, limit, shapes
from triton_repo_builder.measure.bench.report.comparison import compare
from triton_repo_builder.measure.bench.report.comparison import load as load_baseline
from triton_repo_builder.measure.bench.report.files import open_folder, write
from triton_repo_builder.measure.bench.report.json import text as json_text
from triton_repo_builder.measure.bench.report.regression import error as regression_error
from triton_repo_builder.measure.bench.report.regression import judge as judge_regressions
from triton_repo_builder.measure.bench.report.report import (
    BenchReport,
    Latency,
    Level,
    Ratio,
)
from triton_repo_builder.measure.bench.run import Progress, run, run_variants
from triton_repo_builder.measure.options import BenchOptions
from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.client.statistics import ModelSplit

__all__ = [
    "BenchOptions",
    "BenchReport",
    "Latency",
    "Level",
    "ModelSplit",
    "Progress",
    "Ratio",
    "Urls",
    "Variant",
    "compare",
    "json_text",
    "judge_regressions",
    "limit",
    "load_baseline",
    "open_folder",
    "regression_error",
    "run",
    "run_variants",
    "shapes",
    "write",
]
