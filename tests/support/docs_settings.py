"""Settings on a page are read by the code whose file they are; a block that nobody reads fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from tests.support.docs_blocks import Block, Kind, read_json
from triton_repo_builder.check import settings
from triton_repo_builder.measure.bench.load import replay
from triton_repo_builder.measure.capacity import prices
from triton_repo_builder.model.read import trb_toml
from triton_repo_builder.repository import pbtxt
from triton_repo_builder.run.gateway import server
from triton_repo_builder.ship.targets import spec

STARTER = 'name = "sentiment"\n[repository]\nrevision = "sha256:' + "0" * 64 + '"\n'
"""What a page leaves out of a deploy.toml."""


def _deploy(path: Path) -> object:
    return spec.parse(STARTER + path.read_text(), path)


TOML: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "aliases": ("gateway.toml", server.read_map),
    "autoscaling": ("deploy.toml", _deploy),
    "build": ("trb.toml", trb_toml.read_toml),
    "canary": ("deploy.toml", _deploy),
    "endpoints": ("gateway.toml", server.read_map),
    "check": ("trb.toml", settings.read),
    "instances": ("prices.toml", prices.read),
    "kubernetes": ("deploy.toml", _deploy),
    "server": ("deploy.toml", _deploy),
}
"""First table of a block → the file that it is part of, and its reader."""
YAML: Mapping[str, frozenset[str]] = {
    "apiVersion": frozenset({"kind", "metadata", "spec"}),
    "entryPoints": frozenset({"providers", "api", "metrics"}),
    "resources": frozenset({"components"}),
    "readinessProbe": frozenset(),
    "route": frozenset(),
    "scrape_configs": frozenset(),
}
"""First key of a block → the others that its file has."""


def read(block: Block, folder: Path) -> None:
    """Read a block with its reader. Raises if it has none, or if it does not take the block."""
    if block.kind is Kind.TOML:
        table = re.search(r"^\[(\w+)", block.text, re.MULTILINE)
        assert table and table[1] in TOML, f"{block.where}: no reader in docs_settings.TOML"
        name, reader = TOML[table[1]]
        (folder / name).write_text(block.text)
        (folder / "requirements.txt").touch()  # which a block names
        reader(folder / name)
    elif block.kind is Kind.PBTXT:
        pbtxt.parse(block.text)
    elif block.kind is Kind.YAML:
        first, *others = yaml.safe_load(block.text)
        assert first in YAML and {*others} <= YAML[first], f"{block.where}: not in docs_settings.YAML"
    elif block.kind is Kind.JSON and '"at"' in block.text:
        (folder / "log.jsonl").write_text(block.text)
        replay.read(folder / "log.jsonl")
    else:
        read_json(block.text)
