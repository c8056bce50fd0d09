"""``trb check --live``: a real server against its repository, before and after changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import serve_repository as made

from tests.support.cli import call
from tests.support.raw_server import raw_server
from triton_repo_builder import repository
from triton_repo_builder.ship.deploy import live_check

pytestmark = pytest.mark.server


def codes(root: Path, url: str) -> set[str]:
    return {finding.code for finding in live_check.check(repository.read(root), url)}


def test_what_drifts_is_found(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    made.python(root, "one")
    made.python(root, "two")
    made.ensemble(root, "both", "one")
    with raw_server(root, tmp_path) as server:
        url = f"http://{server.http}"
        assert codes(root, url) == {"live-missing"}
        for name in ("two", "both"):  # the ensemble loads its step
            assert server.load(name) == ""
        assert codes(root, url) == set()
        done = call("check", root, "--live", url, "--select", "live-*")
        assert (done.returncode, done.stdout) == (0, "3 models checked, no findings\n")
        with (root / "one" / "config.pbtxt").open("a") as config:
            config.write('parameters { key: "new" value { string_value: "1" } }\n')
        assert codes(root, url) == {"live-config"}
        # The server lists what lies in its own folder: the other one has another model.
        other = tmp_path / "other"
        shutil.copytree(root, other)
        (other / "two").rename(other / "three")
        assert codes(other, url) == {"live-config", "live-missing", "live-extra"}
        # What is gone from its own folder as well it lists no longer, and serves.
        shutil.rmtree(root / "two")
        assert codes(root, url) == {"live-config", "live-extra"}
    assert codes(root, url) == {"live-unreachable"}


def test_the_version_of_a_step_drifts_and_no_number_does_not(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    made.python(root, "one")
    made.ensemble(root, "both", "one")
    control = 'name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, inf ] } ]'
    with (root / "one" / "config.pbtxt").open("a") as config:
        config.write("sequence_batching { direct { minimum_slot_utilization: nan } ")
        config.write(f"control_input [ {{ {control} }} ] }}\n")
    file = root / "both" / "config.pbtxt"
    text = file.read_text()
    assert "model_version: -1" in text
    with raw_server(root, tmp_path) as server:
        url = f"http://{server.http}"
        assert server.load("both") == ""
        assert codes(root, url) == set()
        file.write_text(text.replace("model_version: -1", "model_version: 1"))
        assert codes(root, url) == {"live-config"}
        assert server.load("both") == ""
        assert codes(root, url) == set()
        file.write_text(text)
        assert codes(root, url) == {"live-config"}
