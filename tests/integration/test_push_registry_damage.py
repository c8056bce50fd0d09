"""What ``trb push`` and ``trb pull`` make of a docker-registry whose storage is damaged.

It keeps the file that it has under a digest whatever is sent, and says that all is well: only who reads back
notices, and only its administrator can repair it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_push_registry import manifest
from tests.integration.test_push_s3 import push
from tests.support import oci_registry
from tests.support import serve_repository as made
from tests.support.small_registry import blob
from triton_repo_builder.base.errors import Code
from triton_repo_builder.ship.stores import retries

Registry = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage does not pass: each try ends as the first."""
    monkeypatch.setattr(retries, "PAUSES", (0.01,) * (retries.TRIES - 1))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    folder = tmp_path / "storage"
    folder.mkdir()
    return folder


@pytest.fixture(params=oci_registry.PARAMS)
def registry_at(request: pytest.FixtureRequest) -> Registry:
    return oci_registry.REGISTRIES[request.param]


@pytest.fixture
def url(storage: Path, registry_at: Registry) -> Iterator[str]:
    with registry_at(storage) as address:
        yield f"oci://{address}/team/two:1"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    made.python(root, "step")
    (root / "step" / "1" / "data.bin").write_bytes(bytes(range(256)) * 10_000)
    return root


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-700] ^= 1
    file.write_bytes(data)


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-700])


def largest(document: dict[str, Any]) -> str:
    return str(max(document["layers"], key=lambda layer: layer["size"])["digest"])


def smallest(document: dict[str, Any]) -> str:
    return str(min(document["layers"], key=lambda layer: layer["size"])["digest"])


def config(document: dict[str, Any]) -> str:
    return str(document["config"]["digest"])


@pytest.mark.parametrize(
    ("which", "damage"), [(largest, flip), (largest, shorten), (smallest, flip), (config, shorten)]
)
def test_a_damaged_blob_is_named_and_repaired_once_it_is_out_of_the_way(
    tmp_path: Path, storage: Path, url: str, repository: Path, which: Any, damage: Any
) -> None:
    push(tmp_path, url, str(repository))
    digest = which(manifest(url)[1])
    file = blob(storage, digest)
    damage(file)
    if which is not config:  # Nobody who pulls files reads that one.
        pulled = made.trb(tmp_path, "pull", url, str(tmp_path / "pulled"))
        assert pulled.returncode == Code.DIGEST_MISMATCH.exit, pulled.stderr
        assert "push the same files again" in pulled.stderr
        assert not (tmp_path / "pulled").exists()

    assert push(tmp_path, url, str(repository), "--dry-run")["sent"] == [digest]
    refused = made.trb(tmp_path, "push", url, str(repository))
    assert refused.returncode == Code.DIGEST_MISMATCH.exit, refused.stderr
    assert f"@{digest}: is damaged in the registry (" in refused.stderr
    # The remedy names the folder to remove, and that is what helps.
    assert str(file.parent.relative_to(storage / "data")) in refused.stderr
    assert "administrator" in refused.stderr
    shutil.rmtree(file.parent)
    again = push(tmp_path, url, str(repository))
    assert again["sent"] == [digest]
    assert made.trb(tmp_path, "pull", url, str(tmp_path / "pulled")).returncode == 0


def test_a_damaged_blob_is_no_base_for_another_revision_or_image(
    tmp_path: Path, storage: Path, url: str, repository: Path
) -> None:
    old = push(tmp_path, url, str(repository))["revision"]
    flip(blob(storage, largest(manifest(url)[1])))
    (repository / "step" / "1" / "model.py").write_text(made.HEALTHY + "# newer\n")
    assert made.trb(tmp_path, "push", url, str(repository)).returncode == Code.DIGEST_MISMATCH.exit
    assert manifest(url)[0] == old
    # Another image of the same registry has no link to the blob, so it is sent, and thrown away all the same.
    other = made.trb(tmp_path, "push", url.replace("/two", "/other"), str(repository))
    assert (other.returncode, "is damaged in the registry" in other.stderr) == (10, True), other.stderr


def test_a_blob_whose_file_is_gone_is_sent_again(
    tmp_path: Path, storage: Path, url: str, repository: Path
) -> None:
    push(tmp_path, url, str(repository))
    digest = largest(manifest(url)[1])
    blob(storage, digest).unlink()
    assert push(tmp_path, url, str(repository))["sent"] == [digest]
    assert made.trb(tmp_path, "pull", url, str(tmp_path / "pulled")).returncode == 0


@pytest.mark.parametrize("garbage", [False, True])
def test_a_damaged_manifest_is_named_and_the_next_revision_gets_past_it(
    tmp_path: Path, storage: Path, registry_at: Registry, repository: Path, garbage: bool
) -> None:
    with registry_at(storage) as address:
        url = f"oci://{address}/team/two:1"
        first = damaged_manifest(tmp_path, storage, url, repository, garbage)
        code = repository / "step" / "1" / "model.py"
        code.write_text(made.HEALTHY + "# newer\n")
        assert push(tmp_path, url, str(repository))["previous"] == ""
        assert made.trb(tmp_path, "pull", url, str(tmp_path / "pulled")).returncode == 0
        code.write_text(made.HEALTHY)
        shutil.rmtree(blob(storage, first).parent)
    # It remembers which manifests it has, so it is restarted, as the remedy says.
    with registry_at(storage) as address:
        url = f"oci://{address}/team/two:1"
        assert push(tmp_path, url, str(repository))["revision"] == first
        assert made.trb(tmp_path, "pull", url, str(tmp_path / "pulled"), "--force").returncode == 0


def damaged_manifest(tmp_path: Path, storage: Path, url: str, repository: Path, garbage: bool) -> str:
    first = str(push(tmp_path, url, str(repository))["revision"])
    file = blob(storage, first)
    data = file.read_bytes()
    file.write_bytes(bytes(len(data)) if garbage else data.replace(b"trb.revision", b"trb.revisioN"))
    pulled = made.trb(tmp_path, "pull", url, str(tmp_path / "pulled"))
    assert (pulled.returncode, "Traceback" in pulled.stderr) == (10, False), pulled.stderr
    refused = made.trb(tmp_path, "push", url, str(repository))
    assert refused.returncode == Code.DIGEST_MISMATCH.exit, refused.stderr
    assert f"@{first}: is damaged in the registry" in refused.stderr
    assert "and restart it" in refused.stderr
    return first
