"""Weights outside git: what lies at an address is read before it counts, and each failure is one message."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_commit import web
from tests.support import s3_server
from tests.support.cli import ARGV, kind
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import external_weights

CONTENT = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "weights.bin").write_bytes(CONTENT)
    return tmp_path / "weights.bin"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    s3_server.use(monkeypatch)
    with s3_server.running(tmp_path) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        yield address


def fails(file: Path, url: str) -> TrbError:
    with pytest.raises(TrbError) as caught:
        external_weights.put(file, url, SHA256)
    assert (caught.value.where, bool(caught.value.remedy)) == (url, True)
    return caught.value


def run(tmp_path: Path, url: str, **env: str) -> subprocess.CompletedProcess[str]:
    """``trb fetch`` of one file that lies at ``url``, with nothing else in the environment."""
    repo = tmp_path / "repo"
    repo.mkdir(exist_ok=True)
    fact = {"sha256": SHA256, "bytes": len(CONTENT), "url": url}
    (repo / "manifest.json").write_text(json.dumps({"endpoints": {}, "files": {"m/1/w.bin": fact}}))
    argv = [*ARGV, "fetch", str(repo)]
    path = ":".join(entry for entry in sys.path if entry)
    alone = {"HOME": str(tmp_path), "PYTHONPATH": path, "AWS_EC2_METADATA_DISABLED": "true", **env}
    done = subprocess.run(argv, env=alone, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("error: ") == done.stderr.count("fix: ") == bool(done.returncode)
    return done


def test_a_folder_gets_a_file_once_and_again_where_another_lies(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "a store" / SHA256
    url = target.as_uri()
    assert external_weights.put(file, url, SHA256) is True
    assert external_weights.put(file, url, SHA256) is False
    target.write_bytes(bytes(len(CONTENT)))  # of the same size
    assert external_weights.put(file, url, SHA256) is True
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.slow
def test_a_bucket_gets_a_file_once_and_again_where_another_lies(file: Path, tmp_path: Path, s3: str) -> None:
    url, key = f"s3://{s3_server.BUCKET}/weights/{SHA256}", f"weights/{SHA256}"
    assert external_weights.put(file, url, SHA256) is True
    assert external_weights.put(file, url, SHA256) is False
    s3_server.client(s3).put_object(Bucket=s3_server.BUCKET, Key=key, Body=bytes(len(CONTENT)))
    assert external_weights.put(file, url, SHA256) is True
    assert s3_server.keys(s3) == {key: CONTENT}
    settings = {**s3_server.CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{s3}"}
    assert "fetched m/1/w.bin" in run(tmp_path, url, **settings).stdout
    # What is missing, and what may not be used.
    error = fails(file, f"s3://nobucket/{SHA256}")
    assert (error.code, "there is no such bucket" in error.message) == (Code.DOWNLOAD_FAILED, True)
    (tmp_path / "repo" / "m" / "1" / "w.bin").unlink()
    said = run(tmp_path, f"s3://{s3_server.BUCKET}/gone", **settings)
    assert (kind(said.stderr), "is not there" in said.stderr) == (Code.DOWNLOAD_FAILED, True)
    said = run(tmp_path, url)
    assert (kind(said.stderr), "set AWS_ACCESS_KEY_ID" in said.stderr) == (Code.DOWNLOAD_FAILED, True)
    said = run(tmp_path, url, AWS_PROFILE="nope")
    assert (kind(said.stderr), "profile (nope) could not be found" in said.stderr) == (
        Code.DOWNLOAD_FAILED,
        True,
    )
    said = run(tmp_path, url, **{**settings, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    assert (kind(said.stderr), "does not answer" in said.stderr) == (Code.DOWNLOAD_FAILED, True)


def test_a_web_server_s_file_is_read_before_it_counts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with web(tmp_path / "store") as server:
        url = f"{server}/{SHA256}"
        assert "is not there (HTTP 404)" in fails(file, url).message
        (tmp_path / "store" / SHA256).write_bytes(bytes(len(CONTENT)))
        error = fails(file, url)
        assert error.code == Code.DOWNLOAD_FAILED
        assert "is another file" in error.message and "cannot upload" in error.message
        (tmp_path / "store" / SHA256).write_bytes(CONTENT)
        assert external_weights.put(file, url, SHA256) is False


@contextmanager
def answering(words: bytes) -> Iterator[str]:
    """Something on loopback that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(words)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"", "failed: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", "is another file|does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "HTTP 401"),
    ],
)
def test_what_is_no_web_server(file: Path, tmp_path: Path, words: bytes, message: str) -> None:
    with answering(words) as url:
        error = fails(file, url)
        assert error.code == Code.DOWNLOAD_FAILED
        assert any(part in error.message for part in message.split("|")), error.message
        assert run(tmp_path, url).returncode == Code.DOWNLOAD_FAILED.exit


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:port/x", "http://127.0.0.1:1/a b", "http://127.0.0.1:1/ü", "http://[::1/x"]
)
def test_urls_that_cannot_be_asked_for(file: Path, tmp_path: Path, url: str) -> None:
    error = fails(file, url)
    assert error.code == Code.DOWNLOAD_FAILED
    assert "cannot be requested" in error.message
    assert run(tmp_path, url).returncode == Code.DOWNLOAD_FAILED.exit


def test_a_folder_that_cannot_be_made(file: Path) -> None:
    assert fails(file, "file:///proc/weights/x").code == Code.DOWNLOAD_FAILED


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("/srv/weights", "file:///srv/weights"),
        ("/srv/my weights", "file:///srv/my%20weights"),
        ("file://srv/weights", "file:///srv/weights"),
        ("file:///srv/a#b", "%23"),
        ("https://example.org/x?token=1", "%3F"),
        ("s3:/bucket/weights", "SCHEME://"),
        ("localhost:8000/x", "SCHEME://"),
        ("http://[::1/x", "SCHEME://"),
    ],
)
def test_addresses_below_which_nothing_can_lie(url: str, words: str) -> None:
    with pytest.raises(TrbError) as caught:
        external_weights.check(url)
    assert caught.value.code == Code.USAGE
    assert words in caught.value.remedy


@pytest.mark.parametrize(
    "url", ["file:///srv/a%20b", "file://localhost/srv", "s3://b/x#y", "https://example.org:8443/x", "gs://b"]
)
def test_addresses_below_which_files_can_lie(url: str) -> None:
    external_weights.check(url)


@pytest.mark.slow  # gcsfs tries for half a minute
def test_a_bucket_of_google_s_that_cannot_be_reached_gives_one_error(tmp_path: Path) -> None:
    said = run(tmp_path, "gs://models/x", STORAGE_EMULATOR_HOST="http://127.0.0.1:1")
    assert said.returncode == Code.DOWNLOAD_FAILED.exit
    assert "does not answer" in said.stderr
    assert len(said.stderr.splitlines()) == 2
