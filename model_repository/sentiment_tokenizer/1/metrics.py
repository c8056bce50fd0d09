"""Runs inside tritonserver: numbers of a Python model for the server's metrics page (docs/metrics.md).

Copied byte for byte to ``<model>/1/metrics.py``. The parameter ``metrics`` (``off``) switches them off.

Calls into the server are dear, so a model's numbers are only summed in memory; a timer sends
them ``SECOND`` later, and ``close`` sends the rest. Triton's own histograms take one value a call. Ours are
counters instead, with the names and labels that Prometheus gives to a histogram: ``_bucket{le}``, ``_sum``
and ``_count``. Queries are the same, a call stands for any number of values, and every release has them.

``reference`` puts the shares of a ``reference.json`` beside this file on the page, too: the texts and answers
when the endpoint was built.

Needs only the standard library.
"""

import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

SECOND = 1.0
"""Between two deliveries to the server."""
OTHER = "other"
"""Label of all values beyond the most that a metric may have."""
LONGEST = 100
"""Characters of a label's value; the rest is cut."""
TEXT_TOKENS = tuple(4 << power for power in range(12))
CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
NORM = (0.1, 0.25, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 5, 10, 50, 100)
CHARACTERS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

REFERENCE = Path(__file__).with_name("reference.json")

Add = Callable[..., None]
"""``add(value)`` of a counter or gauge, ``add(value, times)`` of a histogram, ``add(label, value)`` of a
metric by label."""


class Metrics:
    """The metrics of one instance; the server adds up those of all instances."""

    def __init__(self, args: dict[str, str]) -> None:
        """``args`` of the model's ``initialize``."""
        config = json.loads(args.get("model_config", "{}"))
        self._off = config.get("parameters", {}).get("metrics", {}).get("string_value") == "off"
        self._labels = {"model": args.get("model_name", ""), "version": args.get("model_version", "")}
        # A metric is dead once its family is no longer held.
        self._families: dict[str, Any] = {}
        self._instruments: list[Any] = []
        self.lock, self._sending = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        self._gauges: list[Add] = []

    def counter(self, name: str, description: str, **labels: str) -> Add:
        """A sum that only grows."""
        metric = self.metric(name, description, labels)
        return nothing if metric is None else self._instrument(_Counter(self, metric))

    def histogram(self, name: str, description: str, buckets: Sequence[float], **labels: str) -> Add:
        """Number and sum of values, and how many are at most each of ``buckets``."""
        bounds = [*(f"{bound:g}" for bound in buckets), "+Inf"]
        series = [self.metric(f"{name}_bucket", description, {**labels, "le": bound}) for bound in bounds]
        series += [self.metric(f"{name}_{part}", description, labels) for part in ("count", "sum")]
        return nothing if None in series else self._instrument(_Histogram(self, buckets, series))

    def labelled(self, name: str, description: str, label: str, most: int = 50) -> Add:
        """Counters by ``label``, of the ``most`` values that come first; 0 announces a value."""
        return nothing if self._off else self._instrument(_Labelled(self, (name, description, label), most))

    def gauge(self, name: str, description: str, **labels: str) -> Add:
        """A number that is set at once."""
        metric = self.metric(name, description, labels, "GAUGE")
        return nothing if metric is None else metric.set

    def reference(self) -> None:
        """Export the shares of the reference, if there is one; a damaged file leaves the model without."""
        if self._off or not REFERENCE.is_file():
            return
        try:
            distributions = json.loads(REFERENCE.read_bytes())["distributions"]
            # A graph's model counts its answers under its own name, and has no file of its own.
            stored = [
                (
                    {"metric": metric, "model": each.get("model") or self._labels["model"]},
                    float(each["texts"]),
                    {bucket: float(share) for bucket, share in each["shares"].items()},
                )
                for metric, each in distributions.items()
            ]
        except Exception as error:
            with suppress(Exception):
                pb_utils.Logger.log_warn(f"{REFERENCE}: not exported, it is damaged: {error}")
            return
        for labels, count, shares in stored:
            gauges = [(self.gauge("trb_reference_texts", "Texts of the reference", **labels), count)]
            for bucket, share in shares.items():
                about = "Share of the reference in each bucket"
                gauges.append((self.gauge("trb_reference_share", about, bucket=bucket, **labels), share))
            for gauge, value in gauges:
                gauge(value)
                self._gauges.append(gauge)

    def rows(self) -> Add:
        """Rows of each execution."""
        return self.histogram("trb_batch_rows", "Rows of one execution", ROWS)

    def phase(self, phase: str) -> Add:
        """Seconds that an execution spends in a phase."""
        about = "Seconds of one execution in a phase"
        return self.histogram("trb_phase_seconds", about, SECONDS, phase=phase)

    def answers(self) -> Add:
        """Answers by label: the best label of each row."""
        return self.labelled("trb_answers_total", "Answers by their best label", "label")

    def confidence(self) -> Add:
        """Score of the best label of each row."""
        return self.histogram("trb_answer_confidence", "Score of the best label", CONFIDENCE)

    def norm(self) -> Add:
        """Length of each vector."""
        return self.histogram("trb_embedding_norm", "Length of an embedding", NORM)

    def boxes(self) -> Add:
        """Objects by label."""
        return self.labelled("trb_boxes_total", "Objects in images by their label", "label")

    def characters(self) -> Add:
        """Characters of each transcript."""
        return self.histogram("trb_transcript_characters", "Characters of a transcript", CHARACTERS)

    def metric(self, name: str, description: str, labels: dict[str, str], kind: str = "COUNTER") -> Any:
        """The server's metric; None if it is switched off, or on a server without."""
        if self._off:
            return None
        try:
            if name not in self._families:
                self._families[name] = pb_utils.MetricFamily(
                    name=name, description=description, kind=getattr(pb_utils.MetricFamily, kind)
                )
            return self._families[name].Metric(labels={**self._labels, **labels})
        except Exception:
            return None

    def wake(self) -> None:
        """Deliver soon; the caller holds ``lock``."""
        if self._timer is None:
            self._timer = threading.Timer(SECOND, self._deliver)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Deliver what is left: from the model's ``finalize``.

        The families stay: tritonserver 24.10 dies of deleted ones (SIGSEGV, broken heap) when the model loads
        again under traffic.
        """
        if (timer := self._timer) is not None:
            timer.cancel()
            timer.join()
        self._deliver()
        self._off = True

    def _instrument(self, instrument: Any) -> Any:
        self._instruments.append(instrument)
        return instrument

    def _deliver(self) -> None:
        with self._sending:
            with self.lock:
                self._timer = None
                changes = [change for instrument in self._instruments for change in instrument.take()]
            for metric, amount in changes:
                if metric is not None and amount > 0:
                    with suppress(Exception):
                        metric.increment(amount)


class Files:
    """The metrics of a model that reads files: images or sounds."""

    def __init__(self, metrics: Metrics) -> None:
        self.read = metrics.counter("trb_files_total", "Files that were read")
        self.refused = metrics.labelled(
            "trb_refused_files_total", "Files because of which a request was refused", "reason"
        )
        self.rows, self.phase = metrics.rows(), metrics.phase("decode")
        self.close = metrics.close
        self.count = 0

    def execution(self, seconds: float) -> None:
        """Add one execution of ``count`` files."""
        self.phase(seconds)
        if self.count:
            self.read(self.count)
            self.rows(self.count)
        self.count = 0


class _Counter:
    def __init__(self, metrics: Metrics, metric: Any) -> None:
        self._metrics, self._metric, self._sum = metrics, metric, 0.0

    def __call__(self, value: float) -> None:
        if value and isfinite(value):
            with self._metrics.lock:
                self._sum += value
                self._metrics.wake()

    def take(self) -> list[tuple[Any, float]]:
        """Amounts to deliver."""
        amount, self._sum = self._sum, 0.0
        return [(self._metric, amount)]


class _Histogram:
    def __init__(self, metrics: Metrics, buckets: Sequence[float], series: list[Any]) -> None:
        self._metrics, self._buckets = metrics, list(buckets)
        *self._series, self._count, self._total = series
        self._counts, self._sum = [0] * len(self._series), 0.0

    def __call__(self, value: float, times: int = 1) -> None:
        if isfinite(value):
            place = bisect_left(self._buckets, value)
            with self._metrics.lock:
                self._counts[place] += times
                self._sum += value * times
                self._metrics.wake()

    def take(self) -> list[tuple[Any, float]]:
        """Amounts to deliver: the widest bucket first, so that none ever exceeds a wider one."""
        counts = list(accumulate(self._counts))
        amounts = [(self._count, counts[-1]), (self._total, self._sum)]
        self._counts, self._sum = [0] * len(counts), 0.0
        return [*zip(reversed(self._series), reversed(counts), strict=True), *amounts]


class _Labelled:
    def __init__(self, metrics: Metrics, of: tuple[str, str, str], most: int) -> None:
        self._metrics, self._most = metrics, most
        self._name, self._description, self._label = of
        self._sums: dict[str, float] = {}
        self._series: dict[str, Any] = {}

    def __call__(self, label: str, value: float = 1) -> None:
        label = label[:LONGEST] if label.isprintable() else OTHER
        with self._metrics.lock:
            if label not in self._sums and len(self._sums) - (OTHER in self._sums) >= self._most:
                label = OTHER
            self._sums[label] = self._sums.get(label, 0.0) + value
            self._metrics.wake()

    def take(self) -> list[tuple[Any, float]]:
        """Amounts to deliver."""
        for label in self._sums.keys() - self._series.keys():
            labels = {self._label: label}
            self._series[label] = self._metrics.metric(self._name, self._description, labels)
        changes = [(self._series[label], amount) for label, amount in self._sums.items()]
        self._sums = dict.fromkeys(self._sums, 0.0)
        return changes


def nothing(*_: Any) -> None:
    """The place of a metric that is switched off, or that the server does not have."""
