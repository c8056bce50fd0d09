"""``trb check s3://…``: what trb pushed, and model directories that others put there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import serve_repository as made

from tests.support import s3_server
from tests.support.cli import call


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server.running(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.use(monkeypatch)


def test_a_pushed_repository_and_a_plain_one(tmp_path: Path, address: str) -> None:
    root = tmp_path / "models"
    made.python(root, "one")
    pushed = f"s3://{address}/{s3_server.BUCKET}/pushed"
    assert call("push", pushed, root).returncode == 0
    done = call("check", pushed)
    assert (done.returncode, done.stdout) == (0, "1 model checked, no findings\n")
    client = s3_server.client(address)
    for file in (path for path in root.rglob("*") if path.is_file()):
        key = f"plain/{file.relative_to(root).as_posix()}"
        client.put_object(Bucket=s3_server.BUCKET, Key=key, Body=file.read_bytes())
    client.put_object(
        Bucket=s3_server.BUCKET, Key="plain/two/config.pbtxt", Body=b'backend: "python"\nmax_batch_size: -1\n'
    )
    plain = f"s3://{address}/{s3_server.BUCKET}/plain"
    done = call("check", plain, root)
    assert done.returncode == 1
    assert f"{plain}/two/config.pbtxt:2:1: error: 'max_batch_size' must be" in done.stdout
    assert "3 models checked: " in done.stdout
    assert call("check", f"s3://{address}/{s3_server.BUCKET}/nothing").returncode != 0
