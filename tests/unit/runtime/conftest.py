"""Models of one test deliver no numbers in the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import triton_python_backend_utils as pb_utils


@pytest.fixture(autouse=True)
def no_late_delivery() -> Iterator[None]:
    """A model that a test leaves behind has a timer, which would write onto the next test's page."""
    pb_utils.MetricFamily.made.clear()
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()
            thread.join()
