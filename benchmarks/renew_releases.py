"""Renew releases.toml from what NVIDIA publishes: the source of ``make releases``.

    python benchmarks/renew_releases.py [--dry-run] [SOURCE]
    python benchmarks/renew_releases.py ~/clones/server
    python benchmarks/renew_releases.py --limits 1.29.0=13,26 ~/clones/server

SOURCE is a clone of triton-inference-server/server, or an address with ``{ref}`` and ``{path}``; by default
that of raw.githubusercontent.com. Reads docs/introduction/compatibility.md and build.py of the branch of the
newest known release (r26.08) and of the months after it, up to the first that has no branch. Prints the
difference and writes it: lines are added, comments and all other lines stay. If the sources describe a known
release differently, lack a table or a row, contradict each other, or let a version fall, nothing is written.
The limits of a new ONNX Runtime are measured with probe_releases.py, which needs PyPI; ``--limits`` states
them instead.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import difflib
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_repo_builder.base.files import load_toml

FILE = Path(__file__).resolve().parents[1] / "triton_repo_builder" / "base" / "releases.toml"
REPOSITORY = "triton-inference-server/server"
RAW = f"https://raw.githubusercontent.com/{REPOSITORY}/{{ref}}/{{path}}"
COMMITS = f"https://api.github.com/repos/{REPOSITORY}/commits/{{ref}}"
COMPATIBILITY, BUILD = "docs/introduction/compatibility.md", "build.py"
MONTHS = 24
"""Months after the newest known release that are looked for."""

Read = Callable[[str, str], str | None]
"""Text of a file on a branch; None if there is no such branch or file."""
Limits = Callable[[str], tuple[int, int]]
"""Highest IR version and opset of an ONNX Runtime."""


class Nonsense(ValueError):
    """The sources say something that cannot be right."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One release, as the sources describe it."""

    name: str
    server: str
    onnxruntime: str
    python: str
    cuda: str

    def line(self) -> str:
        """The line of releases.toml."""
        return (
            f'"{self.name}" = {{ server = "{self.server}", onnxruntime = "{self.onnxruntime}", '
            f'python = "{self.python}", cuda = "{self.cuda}" }}'
        )


def table(text: str, heading: str) -> dict[str, dict[str, str]]:
    """The cells of the Markdown table below a heading, by release and column. Raises ``Nonsense``."""
    _, found, after = text.partition(f"\n## {heading}\n")
    lines = [line for line in after.partition("\n## ")[0].splitlines() if line.lstrip().startswith("|")]
    if not found or len(lines) < 3:
        raise Nonsense(f"{COMPATIBILITY} has no table '{heading}'")
    header, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines)
    if header[0] != "Triton release version":
        raise Nonsense(f"the table '{heading}' begins with '{header[0]}', not with the release")
    for row in rows:
        if len(row) != len(header) or not re.fullmatch(r"\d\d\.(0[1-9]|1[0-2])", row[0]):
            raise Nonsense(f"the table '{heading}' has the row {row}")
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def compatibility(text: str) -> dict[str, dict[str, str]]:
    """``onnxruntime``, ``python`` and ``cuda`` of each release in compatibility.md. Raises ``Nonsense``."""
    images, runtimes = table(text, "Container Name: vllm-python-py3"), table(text, "ONNX Runtime Versions")
    result = {}
    for name, cells in runtimes.items():
        if name not in images:
            raise Nonsense(f"{name} is in the table of ONNX Runtime and not in that of images")
        image = images[name]
        result[name] = {
            "onnxruntime": _version(cells["ONNX Runtime"], f"ONNX Runtime of {name}"),
            "python": _version(image["Python version"], f"Python of {name}").rpartition(".")[0],
            "cuda": ".".join(_version(image["CUDA version"], f"CUDA of {name}").split(".")[:3]),
        }
    return result


def _version(cell: str, what: str) -> str:
    """The version in a cell, such as ``Python 3.12.3`` or ``1.23.0+1d1712fdaf``, a pre-release."""
    match = re.search(r"\d+\.\d+\.\d+(?:\.\d+)*(\+\w+)?", cell)
    if match is None:
        raise Nonsense(f"{what} is '{cell}'")
    plain = match[0].partition("+")[0]
    return f"{plain}-pre" if match[1] else plain


def stated_by_build(text: str, name: str) -> dict[str, str]:
    """The versions in build.py of a release's branch. Raises ``Nonsense``."""
    match = re.search(r"^DEFAULT_TRITON_VERSION_MAP = (\{.*?^\})", text, re.M | re.S)
    if match is None:
        raise Nonsense(f"{BUILD} of r{name} has no DEFAULT_TRITON_VERSION_MAP")
    versions: dict[str, str] = ast.literal_eval(match[1])
    if versions["triton_container_version"] != name:
        raise Nonsense(f"{BUILD} of r{name} is of {versions['triton_container_version']}")
    return versions


def months_after(name: str) -> list[str]:
    """The names of the ``MONTHS`` releases that would follow."""
    number = int(name[:2]) * 12 + int(name[3:]) - 1
    return [f"{month // 12:02}.{month % 12 + 1:02}" for month in range(number + 1, number + 1 + MONTHS)]


def following(newest: str, read: Read) -> list[tuple[str, str, str]]:
    """Name, compatibility.md and build.py of the newest known release and of those after it.

    Raises ``Nonsense`` if the known one is not there.
    """
    result = []
    for name in (newest, *months_after(newest)):
        texts = [read(f"r{name}", path) for path in (COMPATIBILITY, BUILD)]
        if None in texts:
            break
        result.append((name, *map(str, texts)))
    if not result:
        raise Nonsense(f"the source has no branch r{newest} with {COMPATIBILITY}")
    return result


def renewed(
    text: str, read: Read, limits: Limits, *, today: datetime.date, commit: Callable[[str], str]
) -> str:
    """releases.toml with the releases that the source has and the file has not. Raises ``Nonsense``."""
    known = load_toml(text)
    sources = following(max(known["releases"]), read)
    newest = sources[-1][0]
    described = compatibility(sources[-1][1])
    for name, entry in known["releases"].items():
        differing = {
            key: (entry[key], described.get(name, {}).get(key))
            for key in ("onnxruntime", "python")
            if entry[key] != described.get(name, {}).get(key)
        }
        if differing:
            raise Nonsense(f"{name} differs between releases.toml and {COMPATIBILITY}: {differing}")
    rows = []
    for name, _, build in sources[1:]:
        versions = stated_by_build(build, name)
        row = Row(name=name, server=versions["release_version"], **_of(described, name))
        if versions["ort_version"] != row.onnxruntime.removesuffix("-pre"):
            raise Nonsense(
                f"{name}: ONNX Runtime {row.onnxruntime}, and {versions['ort_version']} in {BUILD}"
            )
        rows.append(row)
    _check_order([*known["releases"].values()][-1], rows)
    runtimes = dict.fromkeys(row.onnxruntime for row in rows if row.onnxruntime not in known["onnxruntime"])
    for version in runtimes:
        ir, opset = limits(version)
        line = f'"{version}" = {{ max_ir = {ir}, max_opset = {opset} }}'
        text = _appended(text, "onnxruntime", line)
    for row in rows:
        text = _appended(text, "releases", row.line())
    source = f"{REPOSITORY}, branch r{newest}, commit {commit(f'r{newest}')}"
    text = re.sub(r"^read = .*$", f"read = {today.isoformat()}", text, count=1, flags=re.M)
    text = re.sub(r"^source = .*$", f'source = "{source}"', text, count=1, flags=re.M)
    load_toml(text)
    return text


def _of(described: Mapping[str, dict[str, str]], name: str) -> dict[str, str]:
    if name not in described:
        raise Nonsense(f"r{name} exists, and {COMPATIBILITY} does not list it")
    return described[name]


def _check_order(last: Mapping[str, str], rows: list[Row]) -> None:
    """Raise ``Nonsense`` unless versions grow from release to release."""
    server, runtime = last["server"], last["onnxruntime"]
    for row in rows:
        if _numbers(row.server) <= _numbers(server) or _numbers(row.onnxruntime) < _numbers(runtime):
            raise Nonsense(
                f"{row.name} would go back: server {server} to {row.server}, ONNX Runtime {runtime} to "
                f"{row.onnxruntime}"
            )
        server, runtime = row.server, row.onnxruntime


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.removesuffix("-pre").split(".")))


def _appended(text: str, name: str, line: str) -> str:
    """The text with one more line at the end of a table."""
    match = re.search(rf"^\[{name}\]\n(?:(?!\[).*\n)*^\".*\n", text, re.M)
    assert match is not None
    return f"{text[: match.end()]}{line}\n{text[match.end() :]}"


def of_clone(folder: Path) -> tuple[Read, Callable[[str], str]]:
    """Files and commits of a clone's branches."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def branch(ref: str) -> str:
        places = (f"refs/remotes/origin/{ref}", f"refs/heads/{ref}")
        return next((place for place in places if git("rev-parse", "--verify", "-q", place)), places[0])

    def commit(ref: str) -> str:
        return (git("rev-parse", branch(ref)) or "").strip()

    return lambda ref, path: git("show", f"{branch(ref)}:{path}"), commit


def of_address(address: str) -> tuple[Read, Callable[[str], str]]:
    """Files at an address, and GitHub's commits."""

    def get(url: str, accept: str = "*/*") -> str | None:
        request = urllib.request.Request(url, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def commit(ref: str) -> str:
        return (get(COMMITS.format(ref=ref), "application/vnd.github.sha") or "unknown").strip()

    return lambda ref, path: get(address.format(ref=ref, path=path)), commit


def measured(stated: Mapping[str, tuple[int, int]]) -> Limits:
    """Limits that the command line states, or that a probe of the wheel from PyPI finds."""

    def limits(version: str) -> tuple[int, int]:
        if version in stated:
            return stated[version]
        import probe_releases

        with tempfile.TemporaryDirectory() as cache:
            plain = version.removesuffix("-pre")
            found = probe_releases.measure(plain, probe_releases.install(plain, Path(cache)))
        return found["ir"], found["opset"]

    return limits


def _stated(text: str) -> tuple[str, tuple[int, int]]:
    version, _, numbers = text.partition("=")
    ir, _, opset = numbers.partition(",")
    return version, (int(ir), int(opset))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", default=RAW, metavar="SOURCE")
    parser.add_argument("--dry-run", action="store_true", help="print the difference alone")
    parser.add_argument("--limits", action="append", default=[], type=_stated, metavar="VERSION=IR,OPSET")
    args = parser.parse_args()
    read, commit = of_address(args.source) if "{ref}" in args.source else of_clone(Path(args.source))
    text = FILE.read_text(encoding="utf-8")
    try:
        new = renewed(text, read, measured(dict(args.limits)), today=datetime.date.today(), commit=commit)
    except Nonsense as error:
        raise SystemExit(f"{error}; releases.toml is unchanged") from None
    except urllib.error.URLError as error:
        raise SystemExit(f"{args.source} cannot be reached: {error.reason}; name a clone instead") from None
    print(
        "".join(difflib.unified_diff(*(each.splitlines(True) for each in (text, new)), FILE.name, FILE.name))
    )
    if not args.dry_run:
        FILE.write_text(new, encoding="utf-8")
    added = set(load_toml(new)["onnxruntime"]) - set(load_toml(text)["onnxruntime"])
    if added:
        print(
            f"new: ONNX Runtime {', '.join(sorted(added))}; next: "
            "probe_releases.py --operators > operators.toml"
        )


if __name__ == "__main__":
    main()
