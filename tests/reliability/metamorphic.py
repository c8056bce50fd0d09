"""``make metamorphic``: relations that answers of many random graphs must have, whatever these compute.

    python -m tests.reliability.metamorphic [--graphs 300] [--seed 0] [--output docs/reliability.md]

No reference takes part: an answer is compared with the answer to the same row, asked in another way.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tiny

from tests.reliability import random_tensors, random_text
from tests.reliability.graph_writer import Array, Graph, Rows
from tests.reliability.report import section
from tests.support import zoo
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run import serve
from triton_repo_builder.run.client import HttpClient
from triton_repo_builder.run.client.codec import encode_binary, encode_json
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.client.values import JSON, Body

AT_ONCE = 24
"""Graphs that one server has at the same time."""
CLIENTS = 8
TOLERANCE = {"f4": 1e-5, "f8": 1e-5, "f2": 2e-3}
"""Absolute, and relative to the number: weights and sums are FP32 whatever the answer is."""
ENTITIES = {"label", "start", "end"}
"""Outputs with as many elements as a text has entities; ``entities`` are all of them in one string."""
WHOLE = "entities"
Ask = Callable[[Rows], Rows]


@dataclass
class Tally:
    """What was compared."""

    graphs: Counter[str] = field(default_factory=Counter)
    """Graphs by kind; ``refused`` by trb build."""
    compared: Counter[str] = field(default_factory=Counter)
    """Rows compared, by relation."""
    differences: list[str] = field(default_factory=list)
    largest: float = 0.0
    """The largest accepted difference, as a share of the tolerance."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.metamorphic", description=__doc__)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="document whose section is replaced")
    options = parser.parse_args()
    tally, start = Tally(), time.monotonic()
    seeds = range(options.seed, options.seed + options.graphs)
    with tempfile.TemporaryDirectory() as folder, zoo.running(Path(folder) / "zoo") as running:
        for first in range(0, len(seeds), AT_ONCE):
            run(Path(folder) / f"from_{first}", seeds[first : first + AT_ONCE], running, tally)
            print(f"{first + AT_ONCE}: {len(tally.differences)} differences", file=sys.stderr, flush=True)
    text = document(tally, time.monotonic() - start, options.seed)
    print(text, *tally.differences, sep="\n")
    if options.output:
        section(options.output, "metamorphic", text)
    return 1 if tally.differences else 0


def run(folder: Path, seeds: Sequence[int], running: zoo.Zoo, tally: Tally) -> None:
    """Build a graph of each seed, two texts to a tensor, serve all at once, and compare."""
    built = []
    for seed in seeds:
        graph = (random_tensors if seed % 3 == 2 else random_text).make(folder / "exports", seed)
        options = {"instances": 1, "golden": True, "share_tokenizer": True, **graph.options}
        try:
            tiny.put(graph.model, folder / "repository", name=graph.name, **options)
        except TrbError as error:
            tally.graphs["refused"] += 1
            if error.code not in (Code.USAGE, Code.NOT_BATCHABLE):  # what was drawn would change answers
                tally.differences.append(f"{graph.name}: not built: {error} ({graph.about})")
            continue
        built.append(graph)
    with running.serving(folder / "repository") as server:
        for graph in built:
            compare(graph, server, tally)


def compare(graph: Graph, server: serve.RunningServer, tally: Tally) -> None:
    """Every relation that the graph's endpoint can have."""
    http, grpc = HttpClient(server.urls.http, 60), GrpcClient(server.urls.grpc, 60)
    most = http.config(graph.name).max_batch_size
    tally.graphs[f"{graph.name.split('_')[0]}, {'batched' if most else 'one at a time'}"] += 1
    plain = _plain(graph, http)

    def ask(rows: Rows) -> Rows:
        encode = encode_json if plain else encode_binary
        return _split(http.infer(graph.name, encode(_joined(rows, most))), len(rows), most)

    try:
        alone = [ask([row])[0] for row in graph.rows]
        for relation, got, expected in _relations(graph, alone, ask, most):
            _note(tally, graph, relation, got, expected)
        for protocol, send in _protocols(graph, http, grpc, most, plain).items():
            _note(tally, graph, protocol, [send([row])[0] for row in graph.rows], alone)
    except Exception as error:
        tally.differences.append(f"{graph.name}: {type(error).__name__}: {error} ({graph.about})")
    finally:
        grpc.close()


def _relations(graph: Graph, alone: Rows, ask: Ask, most: int) -> Iterator[tuple[str, Rows, Rows]]:
    """Name, answers, and what they must be."""
    rows, numbers = graph.rows, np.random.default_rng(len(graph.rows))

    def asked(order: Sequence[int]) -> tuple[Rows, Rows]:
        """In requests of as many rows as the endpoint takes."""
        size = max(most, 1)
        parts = [order[start : start + size] for start in range(0, len(order), size)]
        return [a for part in parts for a in ask([rows[n] for n in part])], [alone[n] for n in order]

    def at_once(orders: Sequence[Sequence[int]]) -> tuple[Rows, Rows]:
        with ThreadPoolExecutor(CLIENTS) as pool:
            pairs = list(pool.map(asked, orders))
        return [a for got, _ in pairs for a in got], [e for _, expected in pairs for e in expected]

    everything = list(range(len(rows)))
    yield "asked again", *asked([everything[0]] * 2)
    yield "neighbours in other requests", *at_once([[n] for n in everything * 4])
    if most < 2:
        return
    longest = max(everything, key=lambda n: sum(_length(array) for array in rows[n].values()))
    yield "all rows in one request", *asked(everything)
    for _ in range(3):
        yield "rows in another order", *asked(numbers.permutation(everything).tolist())
    yield "each row twice", *asked(sorted(everything * 2))
    yield "one row many times", *asked([everything[-1]] * most)
    yield "split in two", *at_once([everything[:2], everything[2:]])
    for number in everything:
        yield "beside the longest", *asked([number, longest])
    mixed = [numbers.choice(everything, numbers.integers(1, 4)).tolist() for _ in range(16)]
    yield "requests of several rows at once", *at_once(mixed)


def _protocols(graph: Graph, http: HttpClient, grpc: GrpcClient, most: int, plain: bool) -> Mapping[str, Ask]:
    """The other ways to send a request: all give the same numbers."""

    def binary(rows: Rows) -> Rows:
        return _split(http.infer(graph.name, encode_binary(_joined(rows, most))), len(rows), most)

    def over_grpc(rows: Rows) -> Rows:
        return _split(grpc.infer(graph.name, _joined(rows, most)), len(rows), most)

    def generate(rows: Rows) -> Rows:
        body = {name: array[0].decode() for name, array in rows[0].items()}
        path = f"/v2/models/{graph.name}/generate"
        said = http.call("POST", path, Body(data=json.dumps(body).encode(), headers=JSON))
        return [{name: np.array(value).reshape(-1) for name, value in said.items()}]

    ways: dict[str, Ask] = {"HTTP, binary": binary, "gRPC": over_grpc}
    if plain and "TEXT" in graph.rows[0]:
        ways["generate"] = generate
    return ways


def _plain(graph: Graph, http: HttpClient) -> bool:
    """Whether plain JSON can carry inputs and outputs: it has no FP16."""
    metadata = http.metadata(graph.name)
    return all(t["datatype"] != "FP16" for t in (*metadata["inputs"], *metadata["outputs"]))


def _joined(rows: Rows, most: int) -> dict[str, Array]:
    """Rows as one request; an endpoint that does not batch takes one text, or the tensor of one row."""
    if not most and "TEXT" in rows[0]:
        return dict(rows[0])
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _split(answer: Mapping[str, Array], count: int, most: int) -> Rows:
    if not most:
        return [dict(answer)]
    assert all(len(array) == count for array in answer.values()), {n: a.shape for n, a in answer.items()}
    rows = [{name: array[number] for name, array in answer.items()} for number in range(count)]
    return [_unfilled(row) if row.keys() >= ENTITIES else row for row in rows]


def _unfilled(row: dict[str, Array]) -> dict[str, Array]:
    """Without the empty labels that make the rows of a request equally long."""
    count = sum(1 for label in row["label"].tolist() if label)
    return {name: array if name == WHOLE else array[:count] for name, array in row.items()}


def _note(tally: Tally, graph: Graph, relation: str, got: Rows, expected: Rows) -> None:
    tally.compared[relation] += len(expected)
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        for name, array in other.items():
            pairs = zip(parts(name, one[name]), parts(name, array), strict=True)
            share = max(apart(mine, theirs) for mine, theirs in pairs)
            if share <= 1:
                tally.largest = max(tally.largest, share)
            else:
                tally.differences.append(
                    f"{graph.name}: {relation}: answer {number}, {name}: {one[name].tolist()} for "
                    f"{array.tolist()} ({graph.about})"
                )


def parts(name: str, array: Array) -> tuple[Array, ...]:
    """What is compared of an output: of entities as one JSON text the words, and the scores as numbers."""
    flat = array.reshape(-1)
    if name != WHOLE:
        return (flat,)
    found = [entity for text in flat.tolist() for entity in json.loads(_text(text))]
    words = [json.dumps({**entity, "score": None}) for entity in found]
    scores = [entity["score"] for entity in found]
    return np.array(words, dtype=object), np.array(scores, dtype=np.float32)


def apart(got: Array, expected: Array) -> float:
    """The largest difference as a share of the tolerance; infinite where an answer is no number."""
    if got.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f":
        same = [_text(a) == _text(b) for a, b in zip(got.tolist(), expected.tolist(), strict=True)]
        return 0.0 if all(same) else float("inf")
    tolerance = TOLERANCE[expected.dtype.str[1:]]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(expected).all() or not np.isfinite(got).all():
        return float("inf")
    return float(np.max(np.abs(got - expected) / (tolerance * (1 + np.abs(expected))), initial=0.0))


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _length(array: Array) -> int:
    return len(array[0]) if array.dtype.kind == "O" else array.size


def document(tally: Tally, seconds: float, seed: int) -> str:
    """The section of docs/reliability.md."""
    graphs = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.graphs.items()))
    lines = [
        f"{sum(tally.graphs.values())} random graphs ({graphs}), seeds from {seed}, in "
        f"{seconds / 60:.0f} minutes: {sum(tally.compared.values()):,} rows compared, "
        f"**{len(tally.differences)} differences** beyond the tolerance (1e-5, FP16 2e-3; absolute, and "
        f"relative to the number); the largest within it was {tally.largest:.1g} of it.",
        "",
        "| the same row | rows compared |",
        "|---|---:|",
        *(f"| {relation} | {count:,} |" for relation, count in tally.compared.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
