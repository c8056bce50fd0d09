"""moto's S3 server on loopback, in a process of its own as Triton needs it, and a bucket in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import serve_repository as made
from tests.support.certificates import Certificate

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
BUCKET = "models"


@contextmanager
def running(folder: Path, certificate: Certificate | None = None) -> Iterator[str]:
    """``127.0.0.1:PORT`` of a server with an empty bucket; with a certificate it speaks TLS."""
    port = made.free_port()
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if certificate:
        argv += ["-s", "-c", str(certificate.file), "-k", str(certificate.key)]
    with (folder / "moto.log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as server:
        try:
            made.until(lambda: made.listens(port))
            client(f"127.0.0.1:{port}", certificate).create_bucket(Bucket=BUCKET)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


def client(address: str, certificate: Certificate | None = None) -> Any:
    """A client of Amazon's own library, to look at what really arrived."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=f"{'https' if certificate else 'http'}://{address}",
        verify=str(certificate.file) if certificate else None,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def keys(address: str, prefix: str = "") -> dict[str, bytes]:
    """Every object below a prefix."""
    found = {}
    store = client(address)
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    for page in pages:
        for item in page.get("Contents", ()):
            found[item["Key"]] = store.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read()
    return found


def use(monkeypatch: Any) -> None:
    """Credentials in the environment, as a user has them; no profile of this machine."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
