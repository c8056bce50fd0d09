"""``deploy.toml``: its keys, their values, and each message for what is wrong with them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.objective import Objective
from triton_repo_builder.ship.targets import spec

SHA = "a" * 64
COMMIT = "b" * 40


def read(tmp_path: Path, text: str) -> spec.Spec:
    file = tmp_path / "deploy.toml"
    file.write_text(text)
    return spec.read(file)


def refusal(tmp_path: Path, text: str) -> TrbError:
    with pytest.raises(TrbError) as caught:
        read(tmp_path, text)
    assert caught.value.code is Code.USAGE
    assert caught.value.where == str(tmp_path / "deploy.toml")
    assert caught.value.remedy
    return caught.value


def test_a_name_is_enough_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    deployment = read(tmp_path, 'name = "bert"')
    assert deployment.name == "bert"
    assert deployment.objective == Objective(percentile="p99", ms=500)
    assert deployment.repository.path == tmp_path / "model_repository"
    assert deployment.exposure.admin_key == tmp_path / "admin_key"
    assert deployment.exposure.tls_key is None and deployment.autoscaling.report is None


def test_stated_paths_are_relative_to_the_file_and_an_empty_one_is_the_default(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        'name = "bert"\n[repository]\npath = "../models"\n[exposure]\nadmin_key = ""\ntls_key = "/k"\n'
        'tls_certificate = "c"\n',
    )
    assert deployment.repository.path == tmp_path / "../models"
    assert deployment.exposure.admin_key == tmp_path / "admin_key"
    assert (deployment.exposure.tls_key, deployment.exposure.tls_certificate) == (Path("/k"), tmp_path / "c")


def test_values_have_the_units_that_they_state(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        'name = "bert"\nobjective = "p95=1.5s"\n[server]\nmemory = "1.5GiB"\nstart = "2m"\ncpus = 3\n'
        "[canary]\nsteps = [5, 100]\n[canary.rules]\nfailures = 0.5\n",
    )
    assert deployment.objective == Objective(percentile="p95", ms=1500)
    assert (deployment.server.memory, deployment.server.start, deployment.server.cpus) == (3 << 29, 120, 3.0)
    assert deployment.canary.steps == (5, 100) and deployment.canary.rules.failures == 0.5


@pytest.mark.parametrize(
    ("text", "kind", "url"),
    [
        ("folder", "folder", ""),
        ("image", "image", ""),
        (f"s3://bucket/models@sha256:{SHA}", "s3", ""),
        (f"s3://https://host:9000/bucket/models@sha256:{SHA}", "s3", ""),
        (f"gs://bucket/models@sha256:{SHA}", "gs", ""),
        (f"az://account/models@sha256:{SHA}", "az", ""),
        (f"oci://registry.example:5000/team/bert@sha256:{SHA}", "oci", ""),
        (f"git+https://example.com/a.git@{COMMIT}#models", "git", "https://example.com/a.git"),
    ],
)
def test_places_of_a_repository(tmp_path: Path, text: str, kind: str, url: str) -> None:
    image = '[server]\nimage = "registry.example/bert:1"\n'
    source = read(tmp_path, f'name = "bert"\n{image}[repository]\nsource = "{text}"').repository.source
    assert (source.kind, source.url) == (kind, url)
    assert source.location == ("" if kind in ("folder", "image") else text)
    if kind == "git":
        assert (source.commit, source.folder) == (COMMIT, "models")


@pytest.mark.parametrize(
    "text",
    [
        "models",
        "ftp://bucket/models",
        "s3://bucket/models",
        f"s3://@sha256:{SHA}",
        f"s3://a bucket/models@sha256:{SHA}",
        f"oci://registry.example/bert@sha256:{SHA[:-1]}",
        "oci://registry.example/bert:latest",
        "git+https://example.com/a.git@main#models",
        f"git+https://example.com/a.git@{COMMIT}",
    ],
)
def test_places_that_name_no_revision(tmp_path: Path, text: str) -> None:
    error = refusal(tmp_path, f'name = "bert"\n[repository]\nsource = "{text}"')
    assert error.message.startswith("'repository.source': ")


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("", "has no 'name'", 'name = "…"'),
        ("nam = 'bert'", "unknown key 'nam'", "did you mean 'name'?"),
        ("zzz = 1", "unknown key 'zzz'", "there are name, objective"),
        ('name = "bert"\n[servers]\nx = 1', "unknown key 'servers'", "did you mean 'server'?"),
        ('name = "bert"\n[server]\nreplica = 3', "unknown key 'server.replica'", "'server.replicas'?"),
        ('name = "bert"\n[server]\nzzz = 3', "unknown key 'server.zzz'", "[server] has image, release"),
        ('name = "bert"\n[canary.rules]\nfailure = 1', "'canary.rules.failure'", "'canary.rules.failures'?"),
        ('name = "bert"\nserver = 3', "'server' is no table", "[server]"),
        ('name = "Bert"', "'name': 'Bert' is not a name", "small letters"),
        ('name = ""', "'name': '' is not a name", "small letters"),
        ('name = "1st"', "'name': '1st' is not a name", "letter first"),
        (f'name = "{"b" * 41}"', "'name': ", "at most 40"),
        ("name = 3", "'name' = 3 is not valid", "give it as name"),
        ('name = "bert', "is not valid TOML", "correct"),
        ('name = "bert"\nobjective = "p98=1s"', "'objective': ", ""),
        ('name = "bert"\nobjective = "p99=50"', "'objective': 'p99=50' has no unit", "ms or s"),
        ('name = "bert"\nobjective = "max=1s"', "'objective': max", "p99"),
        ('name = "bert"\n[server]\nreplicas = 0', "'server.replicas': must be", ""),
        ('name = "bert"\n[server]\nreplicas = "2"', "'server.replicas' = '2' is not valid", "number"),
        ('name = "bert"\n[server]\nreplicas = true', "'server.replicas' = True is not valid", "number"),
        ('name = "bert"\n[server]\ncpus = nan', "'server.cpus': must be", ""),
        ('name = "bert"\n[server]\nmemory = 4', "'server.memory' = 4 is not valid", '"4GiB"'),
        ('name = "bert"\n[server]\nmemory = "4GB"', "'server.memory': '4GB' is not a size", "4GiB"),
        ('name = "bert"\n[server]\nstart = 30', "'server.start' = 30 is not valid", '"5m"'),
        ('name = "bert"\n[server]\nstart = "0s"', "'server.start' is below a second", "load"),
        ('name = "bert"\n[server]\nimage = "a b"', "'server.image' = 'a b' has characters", "correct"),
        ('name = "bert"\n[server]\nimage = "a\\nb"', "'server.image'", "correct"),
        ('name = "bert"\n[exposure]\nhttp_port = 65536', "'exposure.http_port': must be", ""),
        (
            'name = "bert"\n[exposure]\nhttp_port = 8001',
            "'exposure.http_port' and 'exposure.grpc_port' are both 8001",
            "0",
        ),
        ('name = "bert"\n[exposure]\ngrafana_port = 9000', "'exposure.gateway_port' and 'exposure.graf", "0"),
        ('name = "bert"\n[exposure]\nmonitoring_host = "x"', "'exposure.monitoring_host' 'x'", "127.0.0.1"),
        ('name = "bert"\n[exposure]\nbody_limit = "900000GiB"', "must be from 1KiB to 2GiB, not 878.9", ""),
        ('name = "bert"\n[exposure]\nbody_limit = "0GiB"', "'exposure.body_limit': must be from 1KiB", ""),
        ('name = "bert"\n[server]\nmemory = "900000GiB"', "must be from 64MiB to 32TiB, not 878.9", ""),
        ('name = "bert"\n[gateway]\nmemory = "1KiB"', "'gateway.memory': must be from 64MiB", ""),
        ('name = "bert"\n[exposure]\nhost = "example.com"', "'exposure.host' 'example.com'", "127.0.0.1"),
        ('name = "bert"\n[exposure]\ndomain = "a_b"', "'exposure.domain' 'a_b'", "bert.example.com"),
        ('name = "bert"\n[exposure]\ntls_key = "k"', "half a TLS identity", "both"),
        ('name = "bert"\n[autoscaling]\nleast = 3\nmost = 2', "'autoscaling.most' is below", "raise it"),
        ('name = "bert"\n[canary]\nsteps = [50, 10, 100]', "'canary.steps' must rise", "[10, 50, 100]"),
        ('name = "bert"\n[canary]\nsteps = [10, 50]', "'canary.steps' must rise", "[10, 50, 100]"),
        ('name = "bert"\n[canary]\nsteps = [10, 100, 200]', "'canary.steps' must rise", "[10, 50, 100]"),
        ('name = "bert"\n[canary]\nsteps = []', "'canary.steps': is empty", "[10, 50, 100]"),
        ('name = "bert"\n[canary]\nhold = "1h"', "'canary.hold' is longer", "lower it"),
        ('name = "bert"\n[canary.rules]\nanswers = 1.1', "'canary.rules.answers': ", ""),
        (
            f'name = "bert"\n[repository]\nrevision = "sha256:{"c" * 64}"\nsource = "s3://b/m@sha256:{SHA}"',
            "'repository.source' is another revision",
            "trb push",
        ),
        ('name = "bert"\n[repository]\nsource = "image"', "'server.image' names none", "--repository"),
        ('name = "bert"\n[canary]\nsteps = [0, 100]', "'canary.steps': [0,100] is not a list of", "[10, 50,"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, text: str, message: str, remedy: str) -> None:
    error = refusal(tmp_path, text)
    assert message in error.message
    assert remedy in error.remedy


def test_a_port_of_0_is_none_and_may_be_there_twice(tmp_path: Path) -> None:
    exposure = read(tmp_path, 'name = "bert"\n[exposure]\nhttp_port = 0\ngrpc_port = 0').exposure
    assert (exposure.http_port, exposure.grpc_port) == (0, 0)


def test_a_missing_file_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        spec.read(tmp_path / "deploy.toml")
    assert caught.value.code is Code.NOT_FOUND
    assert "trb deploy init" in caught.value.remedy


def test_a_folder_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(TrbError) as caught:
        spec.read(tmp_path)
    assert caught.value.code is Code.NOT_FOUND
    (tmp_path / "deploy.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(TrbError) as caught:
        spec.read(tmp_path / "deploy.toml")
    assert caught.value.code is Code.USAGE and "not valid TOML" in caught.value.message


def test_every_key_says_what_it_means() -> None:
    def keys(kind: type, prefix: str = "") -> list[tuple[str, str]]:
        listed = []
        for each in fields(kind):
            if inner := each.metadata.get("nested"):
                listed += keys(inner, f"{prefix}{each.name}.")
            else:
                listed.append((f"{prefix}{each.name}", each.metadata["option"].help))
        return listed

    named = keys(spec.Spec)
    assert len(named) == len(dict(named)) > 30
    assert all(about.endswith(".") for _, about in named)
