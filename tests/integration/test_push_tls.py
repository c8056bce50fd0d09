"""``trb push`` and ``trb pull`` over TLS with a certificate that nobody knows: refused, trusted as told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_push_s3 import push
from tests.support import certificates, oci_registry, s3_server
from tests.support import serve_repository as made
from tests.support.certificates import Certificate
from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import failures

VARIABLES = {name for kind in stores.STORES.values() for name in kind.HINTS.ca_variables}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CA of this machine's settings; Amazon's as a user has them."""
    s3_server.use(monkeypatch)
    for name in VARIABLES & set(os.environ):
        monkeypatch.delenv(name)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    made.python(root, "step")
    return root


@contextmanager
def registry(folder: Path, certificate: Certificate) -> Iterator[str]:
    with oci_registry.running(folder, certificate) as address:
        yield f"oci://{address}/m:1"


@contextmanager
def bucket(folder: Path, certificate: Certificate) -> Iterator[str]:
    with s3_server.running(folder, certificate) as address:
        yield f"s3://https://{address}/{s3_server.BUCKET}/m"


@pytest.mark.slow
@pytest.mark.parametrize("store", [pytest.param(registry, marks=pytest.mark.docker), bucket])
def test_a_private_ca_is_named_in_the_remedy_and_trusted_by_it(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, store: type
) -> None:
    certificate = certificates.make(tmp_path)
    with store(tmp_path, certificate) as url:
        refused = made.trb(tmp_path, "push", url, str(repository))
        assert refused.returncode == Code.STORAGE_UNREACHABLE.exit, refused.stderr
        assert f"{url}: its certificate is not trusted: self-signed certificate" in refused.stderr
        assert "Traceback" not in refused.stderr
        told = re.search(r"fix: .* (\w+)=FILE.pem", refused.stderr)
        assert told, refused.stderr

        for file, words in ((tmp_path / "gone", "names no file"), (made_empty(tmp_path), "holds no cert")):
            monkeypatch.setenv(told[1], str(file))
            wrong = made.trb(tmp_path, "push", url, str(repository))
            assert (wrong.returncode, f"{told[1]} {words}" in wrong.stderr) == (10, True), wrong.stderr

        monkeypatch.setenv(told[1], str(certificate.file))
        push(tmp_path, url, str(repository))
        pulled = made.trb(tmp_path, "pull", url, str(tmp_path / "pulled"))
        assert pulled.returncode == 0, pulled.stderr
        assert (tmp_path / "pulled" / "step" / "1" / "model.py").read_text() == made.HEALTHY


def made_empty(folder: Path) -> Path:
    file = folder / "empty.pem"
    file.write_text("no certificate\n")
    return file


@pytest.mark.docker
def test_a_certificate_for_another_name_is_not_cured_by_its_ca(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificates.make(tmp_path, "DNS:registry.example.com")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.file))
    with registry(tmp_path, certificate) as url:
        refused = made.trb(tmp_path, "push", url, str(repository))
    assert refused.returncode == Code.STORAGE_UNREACHABLE.exit, refused.stderr
    assert "mismatch" in refused.stderr
    assert "fix: use a name or an address that the certificate is made for" in refused.stderr


def test_tls_with_a_server_that_speaks_none(tmp_path: Path, repository: Path) -> None:
    with s3_server.running(tmp_path) as address:
        refused = made.trb(tmp_path, "push", f"s3://https://{address}/models/m", str(repository))
    assert (refused.returncode, "does not speak TLS" in refused.stderr) == (10, True), refused.stderr
    assert "plain HTTP" in refused.stderr


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("self-signed certificate in certificate chain", "name its CA's certificate: SSL_CERT_FILE=FILE.pem"),
        ("unable to get local issuer certificate", "name its CA's certificate: SSL_CERT_FILE=FILE.pem"),
        ("certificate has expired", "renew the server's certificate"),
        ("IP address mismatch, certificate is not valid for '10.0.0.1'", "use a name or an address"),
    ],
)
def test_each_reason_has_its_remedy(why: str, remedy: str) -> None:
    text = f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {why}. (_ssl.c:1006)"
    found = failures.explain(OSError(text), stores.STORES["gs"].HINTS, "gs://models")
    assert found.code == Code.STORAGE_UNREACHABLE
    assert why in found.message
    assert remedy in found.remedy
