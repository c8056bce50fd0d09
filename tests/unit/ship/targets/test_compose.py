"""The files of Docker Compose, read back."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import call, kind
from tests.support.stacks import KEY, deployment, folder
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import compose, host_ports, routes, server
from triton_repo_builder.ship.targets.routes import Backend
from triton_repo_builder.ship.vcs import git

OWN = '[server]\nimage = "own:1"\n'
GATEWAY = '[gateway]\nimage = "gate:1"\n'
DIGEST = "0" * 64


@pytest.fixture(autouse=True)
def outside_of_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests start no process."""
    monkeypatch.setattr(git, "last_commit", lambda path: "")


def services(root: Path, text: str = "") -> Any:
    """Services of the file, by name."""
    return yaml.safe_load(compose.render(deployment(root, text))[compose.FILE])["services"]


def test_every_server_of_the_stack_is_hardened(tmp_path: Path) -> None:
    made = services(tmp_path, OWN + GATEWAY)
    once = {"bert-secrets"}
    assert made.keys() == {"bert", "bert-canary", "bert-gateway", "traefik", "prometheus", "grafana", *once}
    for name, service in made.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service and ("cap_add" in service) == (name in once), name
    for name in ("bert", "bert-canary", "bert-gateway", "traefik"):
        assert made[name]["user"] == "1000:1000"
        assert all(mount["read_only"] for mount in made[name]["volumes"])


def test_ports_are_published_on_the_host_of_the_exposure_by_the_proxy_only(tmp_path: Path) -> None:
    text = OWN + GATEWAY + '[exposure]\nhost = "127.0.0.2"\nhttp_port = 8100\ngrpc_port = 0\n'
    made = services(tmp_path, text)
    published = {name: service["ports"] for name, service in made.items() if "ports" in service}
    assert published == {
        "traefik": ["127.0.0.2:8100:8000", "127.0.0.2:9000:9000"],
        # They ask for no login.
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }
    # Without a route for gRPC the gateway asks the servers themselves.
    assert "--url=bert:8001" in made["bert-gateway"]["command"]
    made = services(tmp_path / "6", OWN + '[exposure]\nhost = "::1"\nprometheus_port = 0\ngrafana_port = 0\n')
    assert made["traefik"]["ports"] == ["[::1]:8000:8000", "[::1]:8001:8001"]
    assert "ports" not in made["prometheus"] and "grafana" not in made
    asked = services(tmp_path / "asked", OWN + '[exposure]\nmonitoring_host = "::"\n')
    assert asked["prometheus"]["ports"] == ["[::]:9090:9090"] and asked["grafana"]["ports"] == [
        "[::]:3000:3000"
    ]


def test_the_key_is_in_a_secret_and_nowhere_in_the_files(tmp_path: Path) -> None:
    files = compose.render(deployment(tmp_path, OWN))
    assert not [path for path, text in files.items() if KEY in text]
    document = yaml.safe_load(files[compose.FILE])
    assert document["secrets"] == {"admin_key": {"file": "../../admin_key"}}
    command = document["services"]["bert"]["command"]
    assert command[:2] == ["sh", "-c"] and command[2].startswith('exec tritonserver "$$@"')
    assert command[2].count("< /run/secrets/admin_key") == 2


def test_sizes_and_times_are_those_of_the_deployment(tmp_path: Path) -> None:
    text = (
        '[server]\nimage = "own:1"\nstop = "20s"\nstart = "90s"\ncpus = 1.5\nmemory = "2GiB"\nreplicas = 3\n'
    )
    given = deployment(tmp_path, text)
    made = yaml.safe_load(compose.render(given)[compose.FILE])["services"]["bert"]
    assert int(made["shm_size"]) == given.shared_memory
    assert made["stop_grace_period"] == f"{20 + server.MARGIN}s"
    assert made["healthcheck"]["start_period"] == "90s"
    assert made["healthcheck"]["test"][1:] == server.health_command(given)
    limits = made["deploy"]["resources"]["limits"]
    assert limits == {"cpus": "1.5", "memory": str(2 << 30)}
    assert "reservations" not in made["deploy"]["resources"]
    assert made["deploy"]["replicas"] == 3


def test_a_gpu_is_reserved_only_if_the_server_has_one(tmp_path: Path) -> None:
    made = services(tmp_path, "[server]\nreplicas = 1\ngpus = 2\n")["bert"]
    (device,) = made["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    with pytest.raises(TrbError, match="gives each replica the same GPUs"):
        services(tmp_path / "two", "[server]\ngpus = 1\n")


def test_traefik_and_prometheus_know_every_replica(tmp_path: Path) -> None:
    given = deployment(tmp_path, OWN + GATEWAY)
    files = compose.render(given)
    stated = routes.read(files["traefik/routes.yml"], "routes.yml")
    assert stated.stable == tuple(
        Backend(http=f"http://bert-bert-{n}:8000", grpc=f"h2c://bert-bert-{n}:8001") for n in (1, 2)
    )
    assert stated.gateways == ("http://bert-bert-gateway-1:9000",)
    assert "--url=traefik:8101" in yaml.safe_load(files[compose.FILE])["services"]["bert-gateway"]["command"]
    static = yaml.safe_load(files["traefik/traefik.yml"])
    routers = yaml.safe_load(files["traefik/routes.yml"])["http"]["routers"]
    # The gateway asks for the list of models, too, and is refused: that is no failure of a canary.
    assert "ModelInfer" in routers["v2-inner"]["rule"] and routers["v2-inner"]["service"] == "v2-grpc"
    assert routers["inner"]["service"] == "inner-grpc"
    assert len(routers["v2-inner"]["rule"]) > len(routers["inner"]["rule"])
    points = {name: point["address"] for name, point in static["entryPoints"].items()}
    assert points == {
        "http": ":8000",
        "grpc": ":8001",
        "gateway": ":9000",
        "inner": ":8101",
        "traefik": ":8080",
    }
    dynamic = yaml.safe_load(files["traefik/routes.yml"])["http"]
    assert {each for router in dynamic["routers"].values() for each in router["entryPoints"]} < points.keys()
    assert static["metrics"]["prometheus"]["buckets"] == list(routes.BUCKETS)
    jobs = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in yaml.safe_load(files["monitoring/prometheus.yml"])["scrape_configs"]
    }
    assert jobs == {
        "tritonserver": ["bert-bert-1:8002", "bert-bert-2:8002"],
        "trb-gateway": ["bert-bert-gateway-1:9000"],
        "traefik": ["traefik:8080"],
    }
    assert "monitoring/rules.yml" in files and "grafana/boards/serving.json" in files


def test_prometheus_gets_a_key_of_the_gateway_if_there_is_a_plain_one(tmp_path: Path) -> None:
    text = f'{OWN}{GATEWAY}keys = "keys"\n'
    (tmp_path / "keys").write_text(f"# of clients\nsha256:{DIGEST} bob\na-key-of-a-client-0123 alice\n")
    files = compose.render(deployment(tmp_path, text))
    assert 'credentials_file: "/run/secrets/gateway_key"' in files["monitoring/prometheus.yml"]
    made = yaml.safe_load(files[compose.FILE])["services"]
    assert "/run/secrets" in [each["target"] for each in made["prometheus"]["volumes"]]
    assert "hand monitoring-secrets gateway_key 65534:65534" in made["bert-secrets"]["command"][0]
    assert "--api-keys=/run/secrets/gateway_keys" in made["bert-gateway"]["command"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "keys").write_text(f"sha256:{DIGEST} bob\n")
    files = compose.render(deployment(tmp_path / "other", text))
    assert "trb-gateway" not in files["monitoring/prometheus.yml"]


def test_a_service_gets_the_secrets_that_it_needs_and_no_others(tmp_path: Path) -> None:
    def volumes(root: Path, text: str) -> dict[str, set[str]]:
        document = yaml.safe_load(compose.render(deployment(root, text))[compose.FILE])
        found = {
            name: {each["source"] for each in service.get("volumes", ()) if "secrets" in each["source"]}
            for name, service in document["services"].items()
        }
        assert found.pop("bert-secrets") <= document["volumes"].keys()
        return {name: sources for name, sources in found.items() if sources}

    servers = {"bert": {"secrets"}, "bert-canary": {"secrets"}}
    assert volumes(tmp_path / "few", OWN + GATEWAY) == servers
    for name in ("cert.pem", "key.pem", "keys"):
        (tmp_path / name).write_text("a-key-of-a-client-0123\n")
    tls = '[exposure]\ntls_certificate = "../cert.pem"\ntls_key = "../key.pem"\n'
    text = f'{OWN}{GATEWAY}keys = "../keys"\n{tls}'
    assert volumes(tmp_path / "all", text) == {
        **servers,
        "traefik": {"proxy-secrets"},
        "bert-gateway": {"gateway-secrets"},
        "prometheus": {"monitoring-secrets"},
    }
    made = services(tmp_path / "again", text)["bert-secrets"]
    copies = [line.partition("hand ")[2] for line in made["command"][0].split("\n") if "| hand" in line]
    assert copies == [
        "secrets admin_key 1000:1000",
        "proxy-secrets tls_certificate 1000:1000",
        "proxy-secrets tls_key 1000:1000",
        "gateway-secrets gateway_keys 1000:1000",
        "monitoring-secrets gateway_key 65534:65534",
    ]


def test_the_first_to_start_is_the_last_to_stop(tmp_path: Path) -> None:
    """Compose stops services before those that they depend on: no request arrives that nobody answers."""
    made = services(tmp_path, OWN + GATEWAY)
    assert made["traefik"]["depends_on"].keys() == {"bert", "bert-gateway"}
    assert "bert" in made["bert-gateway"]["depends_on"]
    assert made["bert"]["depends_on"].keys() == {"bert-secrets"}


def test_tls_reaches_traefik_as_secrets_and_not_the_gateways_own_way(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("certificate")
    (tmp_path / "key.pem").write_text("key")
    text = OWN + GATEWAY + '[exposure]\ntls_certificate = "cert.pem"\ntls_key = "key.pem"\n'
    files = compose.render(deployment(tmp_path, text))
    document = yaml.safe_load(files[compose.FILE])
    assert set(document["secrets"]) == {"admin_key", "tls_certificate", "tls_key"}
    dynamic = yaml.safe_load(files["traefik/routes.yml"])
    store = dynamic["tls"]["stores"]["default"]["defaultCertificate"]
    assert store == {"certFile": "/run/secrets/tls_certificate", "keyFile": "/run/secrets/tls_key"}
    tls = {name: "tls" in router for name, router in dynamic["http"]["routers"].items()}
    assert tls == {"v2": True, "v2-grpc": True, "v2-inner": False, "inner": False, "gateway": True}


def mounted(root: Path, source: str, more: str = "") -> tuple[Any, list[Any], str]:
    """The services, the server's mounts at /models, and its --model-repository."""
    made = services(root, f'{OWN}{more}[repository]\nsource = "{source}"\n')
    mounts = [each for each in made["bert"]["volumes"] if each["target"] == "/models"]
    (models,) = [word for word in made["bert"]["command"] if word.startswith("--model-repository=")]
    return made, mounts, models.partition("=")[2]


def test_a_folder_is_mounted_and_a_canary_may_have_another(tmp_path: Path) -> None:
    made, mounts, models = mounted(tmp_path, "folder")
    assert mounts == [
        {"type": "bind", "source": "../../model_repository", "target": "/models", "read_only": True}
    ]
    assert models == "/models"
    canary = made["bert-canary"]
    assert canary["image"] == "${CANARY_IMAGE:-own:1}" and canary["profiles"] == ["canary"]
    assert "${CANARY_REPOSITORY:-../../model_repository}" in [each["source"] for each in canary["volumes"]]


def test_an_image_has_its_repository(tmp_path: Path) -> None:
    assert mounted(tmp_path, "image")[1:] == ([], "/models")


def test_a_gateway_of_another_image_reads_the_repository_of_this_machine(tmp_path: Path) -> None:
    text = f'{OWN}[repository]\nsource = "image"\n'
    two = services(tmp_path / "two", text + GATEWAY)["bert-gateway"]
    assert [(each["source"], each["target"]) for each in two["volumes"]] == [
        ("../../model_repository", "/models")
    ]
    assert "--repo=/models" in two["command"]
    one = services(tmp_path / "one", text + GATEWAY.replace("gate:1", "own:1"))["bert-gateway"]
    assert "volumes" not in one


def test_triton_reads_a_bucket_itself(tmp_path: Path) -> None:
    made, mounts, models = mounted(tmp_path, f"s3://host:9000/models/bert@sha256:{DIGEST}", GATEWAY)
    assert (mounts, models) == ([], f"s3://http://host:9000/models/bert/revisions/{DIGEST}")
    assert made["bert"]["env_file"] == [{"path": "../../storage.env", "required": False}]
    # The gateway cannot, and needs only the files that describe the models.
    assert "../../model_repository" in [each["source"] for each in made["bert-gateway"]["volumes"]]
    assert mounted(tmp_path / "gs", f"gs://models/bert@sha256:{DIGEST}")[2].startswith("gs://models/bert/rev")
    with pytest.raises(TrbError, match="az://"):
        mounted(tmp_path / "az", f"az://models/bert@sha256:{DIGEST}")


def test_a_registry_and_git_fill_a_volume_first(tmp_path: Path) -> None:
    source = f"oci://registry.example/bert@sha256:{DIGEST}"
    made, mounts, models = mounted(tmp_path, source, GATEWAY)
    assert (mounts[0]["source"], models) == ("models", "/models/repository")
    assert made["bert-repository"]["image"] == "${FETCH_IMAGE:-gate:1}"
    assert made["bert-repository"]["command"] == [f"trb pull {source} /models/repository"]
    assert "bert-repository" in made["bert"]["depends_on"]
    commit = "1" * 40
    made, mounts, models = mounted(tmp_path / "git", f"git+https://host.example/r.git@{commit}#a/repo")
    assert made["bert-repository"]["image"].startswith("${FETCH_IMAGE:-alpine/git:")
    assert (
        f"git fetch -q --depth 1 https://host.example/r.git {commit}" in made["bert-repository"]["command"][0]
    )
    assert models == "/models/repository"
    with pytest.raises(TrbError, match=r"gateway\.image"):
        mounted(tmp_path / "no", source)


def test_replicas_are_as_many_as_stated_since_compose_scales_by_no_load(tmp_path: Path) -> None:
    scaled = "[autoscaling]\nmost = 8\npending_batches = 1.0\n"
    assert services(tmp_path, OWN + scaled)["bert"]["deploy"]["replicas"] == 2


def test_no_variable_is_replaced_in_paths_and_arguments(tmp_path: Path) -> None:
    root = tmp_path / "a $HOME folder"
    made = services(root / "inner", OWN)
    texts = yaml.safe_dump(made)
    assert not re.search(r"(?<!\$)(\$\$)*\$(?![${])", texts)
    ports = "[exposure]\nhttp_port = 0\ngrpc_port = 0\nprometheus_port = 0\n"
    file = folder(tmp_path / "out", OWN + ports)
    away = tmp_path / "$elsewhere"
    done = call("export", "compose", file, "-o", away)
    assert done.returncode == 0, done.stderr
    assert 'source: "../out/model_repository"' in (away / compose.FILE).read_text()


def test_a_port_that_is_taken_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(1)
        port = held.getsockname()[1]
        ports = f"[exposure]\nhttp_port = {port}\ngrpc_port = 0\nprometheus_port = 0\n"
        file = folder(tmp_path, OWN + ports)
        done = call("export", "compose", file, cwd=tmp_path)
        assert kind(done.stderr) is Code.PORT_BUSY
        assert f"'exposure.http_port' is {port}, which is in use by" in done.stderr
        assert not (tmp_path / "deploy").exists()
        # A stack that runs from this folder holds its own ports; --check asks nothing of this machine.
        assert call("export", "compose", file, "--check", cwd=tmp_path).returncode == 1
        monkeypatch.setattr(host_ports, "_ours", lambda deployment: {port})
        assert call("export", "compose", file, cwd=tmp_path).returncode == 0
        assert call("export", "compose", file, "--check", cwd=tmp_path).returncode == 0


def test_an_address_of_another_machine_is_not_tried(tmp_path: Path) -> None:
    host_ports.check(deployment(tmp_path, OWN), "192.0.2.1", {"http_port": 8000})
