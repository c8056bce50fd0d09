"""Debian's docker-registry on loopback, configured as its package and image do it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from needs import unavailable

from tests.support import serve_repository as made
from tests.support import small_registry
from tests.support.certificates import Certificate

CONFIG = """version: 0.1
log: {{level: error}}
storage:
  delete: {{enabled: true}}
  cache: {{blobdescriptor: inmemory}}
  filesystem: {{rootdirectory: {folder}/data}}
http: {{addr: "127.0.0.1:{port}"{tls}}}
"""


@contextmanager
def running(folder: Path, certificate: Certificate | None = None) -> Iterator[str]:
    """``127.0.0.1:PORT`` of an empty registry; with a certificate it speaks TLS."""
    binary = shutil.which("docker-registry")
    if binary is None:
        unavailable("docker-registry is not installed (apt-get install docker-registry)")
    port = made.free_port()
    tls = f", tls: {{certificate: {certificate.file}, key: {certificate.key}}}" if certificate else ""
    (folder / "config.yml").write_text(CONFIG.format(folder=folder, port=port, tls=tls))
    with subprocess.Popen([binary, "serve", str(folder / "config.yml")], stderr=subprocess.DEVNULL) as server:
        try:
            made.until(lambda: server.poll() is not None or made.listens(port))
            assert server.poll() is None, f"docker-registry ended with {server.returncode}"
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


REGISTRIES = {"small": small_registry.running, "docker-registry": running}
PARAMS = ["small", pytest.param("docker-registry", marks=pytest.mark.docker)]
"""For fixtures: every day a registry of our own, with Docker the real one."""
