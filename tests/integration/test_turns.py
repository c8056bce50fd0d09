"""Several ``trb`` at one repository at the same time: each waits for its turn; none undoes another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny
import two_versions

from tests.support import cli, s3_server
from tests.support.interrupted import command
from triton_repo_builder import repository
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import integrity
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.ship import stores

BUILDS = 6


@contextmanager
def busy(repository: Path) -> Iterator[threading.Event]:
    """Another process has the turn until the event is set."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with staging.exclusive(repository):
            held.set()
            done.wait(120)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    try:
        yield done
    finally:
        done.set()
        holder.join()


def net(path: Path, seed: int) -> Path:
    """A model with weights of its own."""
    two_versions.change_weights(tiny.tensor_model(path), ("W",), seed)
    return path


def built(tmp: Path, commands: list[tuple[str | Path, ...]]) -> list[str]:
    """What builds at the same time say, each of which succeeds."""
    with ThreadPoolExecutor(len(commands)) as pool:
        done = list(pool.map(lambda each: cli.process(tmp, "build", *map(str, each)), commands))
    assert [each.returncode for each in done] == [0] * len(commands), "\n".join(each.stderr for each in done)
    return [each.stdout + each.stderr for each in done]


def whole(output: Path) -> repository.Manifest:
    """The manifest, which is true of every file; nothing is left beside the repository."""
    manifest = repository.read_manifest(output)
    assert manifest is not None
    assert integrity.altered(output, manifest.files) == ()
    assert staging.leftovers(output) == []
    assert cli.call("check", output).returncode == 0
    return manifest


@pytest.mark.parametrize("builds", [BUILDS, pytest.param(10, marks=pytest.mark.slow)])
def test_builds_of_several_endpoints(tmp_path: Path, builds: int) -> None:
    """Into a repository that is not there yet."""
    output = tmp_path / "new" / "models"
    names = [f"net_{number}" for number in range(builds)]
    models = [tiny.tensor_model(tmp_path / name / "model.onnx") for name in names]
    built(
        tmp_path,
        [("--model", m, "--name", n, "--output", output) for m, n in zip(models, names, strict=True)],
    )
    assert whole(output).endpoints.keys() == {*names}


def test_builds_of_one_endpoint(tmp_path: Path) -> None:
    output = tmp_path / "models"
    models = [net(tmp_path / str(seed) / "m.onnx", seed) for seed in range(4)]
    built(tmp_path, [("--model", model, "--name", "net", "--output", output) for model in models])
    (entry,) = whole(output).endpoints.values()
    sources = [files.hash_file(model) for model in models]
    assert entry.served.sources[0].sha256 in sources


def test_builds_of_the_next_version(tmp_path: Path) -> None:
    """Each gets a number of its own."""
    output = tmp_path / "models"
    models = [net(tmp_path / str(seed) / "m.onnx", seed) for seed in range(3)]
    tail = ("--name", "net", "--output", output, "--version", "next")
    built(tmp_path, [("--model", model, *tail) for model in models])
    (entry,) = whole(output).endpoints.values()
    assert entry.versions.keys() == {1, 2, 3}
    assert {version.sources[0].sha256 for version in entry.versions.values()} == {
        files.hash_file(model) for model in models
    }


def test_a_build_says_that_it_waits(tmp_path: Path) -> None:
    output = tmp_path / "models"
    model = tiny.tensor_model(tmp_path / "net.onnx")
    tiny.put(model, output)
    with busy(output) as done, command(tmp_path, "build", "--model", model, "--output", output) as trb:
        trb.says(f"waiting for another trb that works on {output}")
        done.set()
        assert trb.ends() == 0
    whole(output)


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path: Path) -> None:
    output = tmp_path / "models"
    a_file = tmp_path / "taken"
    a_file.touch()
    model = tiny.tensor_model(tmp_path / "net.onnx")
    refused = cli.call("build", "--model", model, "--output", a_file)
    assert cli.kind(refused.stderr) == Code.OUTPUT_FOREIGN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "put", _full)
        failed = cli.call("build", "--model", model, "--output", output)
    assert cli.kind(failed.stderr) == Code.DISK_FULL
    assert not output.exists()


def _full(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_push_waits_for_a_build_and_says_so_if_one_comes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.use(monkeypatch)
    output = tmp_path / "models"
    tiny.put(tiny.tensor_model(tmp_path / "net.onnx"), output)
    with s3_server.running(tmp_path) as address:
        url = f"s3://{address}/{s3_server.BUCKET}/turns"
        with busy(output) as done, command(tmp_path, "push", url, output) as trb:
            trb.says(f"waiting for another trb that works on {output}")
            done.set()
            assert trb.ends() == 0
        before = stores.revisions(stores.parse(url))
        tiny.put(net(tmp_path / "newer.onnx", 6), output, name="net")
        collect = stores.collect

        def overtaken(root: Path) -> stores.LocalRevision:
            local = collect(root)
            if not (root / "other").exists():
                tiny.put(net(tmp_path / "other.onnx", 7), output, name="other")
                tiny.put(net(tmp_path / "more.onnx", 8), output, name="net")
            return local

        monkeypatch.setattr(stores, "collect", overtaken)
        with pytest.raises(TrbError) as caught:
            stores.push(output, stores.parse(url), lambda name, done, total: None)
        assert (caught.value.code, caught.value.where) == (Code.REPOSITORY_BUSY, str(output))
        assert stores.revisions(stores.parse(url)) == before
        assert cli.call("push", url, output).returncode == 0
