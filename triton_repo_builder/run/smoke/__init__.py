"""Prove, through the server, that answers equal the original model's."""

from triton_repo_builder.run.client import Urls
from triton_repo_builder.run.options import SmokeOptions
from triton_repo_builder.run.smoke.junit import junit
from triton_repo_builder.run.smoke.report import (
    Check,
    ReportLine,
    SmokeReport,
    Status,
    did_not_pass,
)
from triton_repo_builder.run.smoke.run import Progress, reach, run

__all__ = [
    "Check",
    "Progress",
    "ReportLine",
    "SmokeOptions",
    "SmokeReport",
    "Status",
    "Urls",
    "did_not_pass",
    "junit",
    "reach",
    "run",
]
