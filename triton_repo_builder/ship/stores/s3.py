"""Amazon S3, and compatible servers (s3fs); Triton reads models from it by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from triton_repo_builder import repository
from triton_repo_builder.ship.stores import location
from triton_repo_builder.ship.stores.bucket import REVISIONS, BucketStore
from triton_repo_builder.ship.stores.failures import explained
from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.revision import Entry
from triton_repo_builder.ship.stores.store import Hints, Progress

DESCRIBING = (repository.CONFIG, repository.MANIFEST, repository.CASES)
"""Files that describe a repository. Only a server that reads the bucket needs the others."""
_HOST = re.compile(r"(?:(https?)://)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/(.*)", re.DOTALL)


class S3Store(BucketStore):
    SCHEME = "s3"
    FORMS = "s3://BUCKET/PREFIX, s3://HOST:PORT/BUCKET/PREFIX (as Triton writes it)"
    HINTS = Hints(
        credentials="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        unreachable="check the network and AWS_ENDPOINT_URL, or write s3://HOST:PORT/BUCKET/PREFIX; "
        "with TLS s3://https://HOST:PORT/…",
        ca_variables=("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
        plain_http="check the port, or write s3://HOST:PORT/BUCKET/PREFIX, which is plain HTTP",
        tries=5,  # botocore's own
    )

    @classmethod
    def parse(cls, text: str, rest: str, revision: str) -> Bucket:
        """Read ``[http[s]://HOST:PORT/]BUCKET[/PREFIX]``."""
        endpoint = ""
        if host := _HOST.fullmatch(rest):
            endpoint, rest = f"{host[1] or 'http'}://{host[2]}:{host[3]}", host[4]
        return location.bucket(text, cls.SCHEME, rest, revision, endpoint)

    def options(self) -> dict[str, Any]:
        """The endpoint, if the address has one."""
        return {"endpoint_url": self.location.endpoint} if self.location.endpoint else {}

    def serve_from(self, target: Path, progress: Progress) -> str:
        """URL of the revision; here come the files that describe the models, and empty ones for the rest."""
        digest, index = self.index()
        self.fetch(digest, tuple(filter(_describes, index.entries)), target, progress)
        for entry in index.entries:
            if not _describes(entry):
                (target / entry.path).parent.mkdir(parents=True, exist_ok=True)
                (target / entry.path).touch()
        return self.models_url(digest)

    def models_url(self, digest: str) -> str:
        """The revision as Triton's ``--model-repository`` takes it."""
        endpoint = self.location.endpoint
        if not endpoint:
            with explained(self.HINTS, str(self.location)):
                self.system.connect()
                # From AWS_ENDPOINT_URL or the profile; Triton's own SDK supports only Amazon's.
                configured = str(self.system.s3.meta.endpoint_url)
            endpoint = "" if ".amazonaws.com" in configured else configured
        server = f"{_with_port(endpoint)}/" if endpoint else ""
        return f"s3://{server}{self.location.root}/{REVISIONS}/{digest}"


def _describes(entry: Entry) -> bool:
    return entry.path.rsplit("/", 1)[-1] in DESCRIBING


def _with_port(endpoint: str) -> str:
    """Add the default port: Triton tells a host from a bucket by its port."""
    scheme, _, host = endpoint.rstrip("/").partition("://")
    if ":" in host:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{443 if scheme == 'https' else 80}"
