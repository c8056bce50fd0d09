"""Layers of a model image."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import oci_layers, revision


def test_layers_hold_every_file_once_and_large_ones_alone(repository: Path) -> None:
    local = revision.collect(repository)
    parts = oci_layers.split(local)
    names = [[file.path for file in part.files] for part in parts]
    assert ["m/1/weights.bin"] in names
    assert sorted(itertools.chain(*names)) == [entry.path for entry in local.index.entries]
    found = {}
    for part in parts:
        data = b"".join(part.blocks())
        assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (part.digest, part.size)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                assert member.name.split("/")[0] == "models"
                if member.isreg():
                    stream = archive.extractfile(member)
                    assert stream is not None
                    found[member.name.removeprefix("models/")] = hashlib.sha256(stream.read()).hexdigest()
    assert found == {entry.path: entry.sha256 for entry in local.index.entries}


def test_many_files_and_models_make_few_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_layers, "LARGE", 10)
    for number in range(150):
        folder = tmp_path / f"model{number}" / "1"
        folder.mkdir(parents=True)
        (folder / "large").write_bytes(bytes(10 + number))
        (folder / "small").touch()
    parts = oci_layers.split(revision.collect(tmp_path))
    assert len(parts) == oci_layers.MOST + 1


@pytest.mark.parametrize("step", [-1, 1, 3, 100])
def test_a_stream_can_be_read_in_any_pieces(step: int) -> None:
    reader = oci_layers.Reader(iter([b"abc", b"", b"", b"defg", b""]), 7)
    assert len(reader) == 7
    data = b""
    while piece := reader.read(step):
        data += piece
    assert data == b"abcdefg"


def test_a_file_that_cannot_be_read_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = revision.collect(repository)

    def denied(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "opened", denied)
    with pytest.raises(TrbError) as caught:
        oci_layers.split(local)
    assert caught.value.code is Code.REPOSITORY_UNREADABLE
    assert "weights.bin" in caught.value.where
