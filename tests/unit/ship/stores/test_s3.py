"""The URL from which Triton reads a bucket."""

from __future__ import annotations

import pytest

from triton_repo_builder.ship.stores.location import Bucket
from triton_repo_builder.ship.stores.s3 import S3Store


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:9000", "s3://http://127.0.0.1:9000/models/a/revisions/12"),
        ("https://minio", "s3://https://minio:443/models/a/revisions/12"),
        ("https://s3.eu-west-1.amazonaws.com", "s3://models/a/revisions/12"),
    ],
)
def test_triton_is_told_where_the_bucket_is(endpoint: str, url: str) -> None:
    class Meta:
        endpoint_url = endpoint

    class System:
        class s3:
            meta = Meta

        def connect(self) -> None:
            pass

    assert S3Store(Bucket(scheme="s3", bucket="models", prefix="a"), System()).models_url("12") == url
