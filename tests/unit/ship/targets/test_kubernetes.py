"""Objects of Kubernetes as data: what every pod has, where the repository comes from, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import deployments
from tests.support.deployments import GATEWAY, GIT, KEY, OCI, SCALED, bucket, gateway, server
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import export
from triton_repo_builder.ship.targets.facts import Deployment

SOURCES: Mapping[str, tuple[str, str]] = {
    "image": ("image", server()),
    "oci": (OCI, gateway() + SCALED),
    "git": (GIT, '[kubernetes]\nfetch_image = "registry.example/git:2.47"\n'),
    "s3": (bucket("s3"), SCALED),
    "gs": (bucket("gs"), ""),
    "az": (bucket("az"), gateway() + '[kubernetes]\nfetch_image = "registry.example/trb-az:1"\n'),
}


def rendered(deployment: Deployment, target: str = "kubernetes") -> dict[str, str]:
    files = export.render(target, deployment).contents
    return {path: content.decode() for path, content in files.items()}


def pod(files: Mapping[str, str], path: str = "base/deployment.yaml") -> Any:
    """Spec of the pods of a Deployment or a Job."""
    return yaml.safe_load(files[path])["spec"]["template"]["spec"]


@pytest.fixture(params=SOURCES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    source, tables = SOURCES[request.param]
    return rendered(deployments.read(tmp_path, source=source, tables=tables))


def test_every_pod_is_restricted(files: Mapping[str, str]) -> None:
    """Pod Security Standards, "restricted", and a read-only root."""
    objects = [yaml.safe_load(text) for path, text in files.items() if not path.endswith("n.yaml")]
    pods = [each["spec"]["template"]["spec"] for each in objects if each.get("kind") in ("Deployment", "Job")]
    assert len(pods) >= 3
    for each in pods:
        assert each["securityContext"]["runAsNonRoot"] and each["securityContext"]["runAsUser"] == 1000
        assert each["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert each["automountServiceAccountToken"] is False
        for container in (*each["containers"], *each.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["image"].rpartition(":")[2] not in ("", "latest")
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert "/tmp" in mounts and len(mounts) == len({*mounts})
            assert {mount["name"] for mount in container["volumeMounts"]} <= {
                volume["name"] for volume in each["volumes"]
            }


def test_no_key_and_nothing_of_helm_is_rendered(files: Mapping[str, str]) -> None:
    text = "".join(files.values())
    assert KEY not in text
    assert not any(mark in text for mark in ("⟦", "#:", "#|", "{{ .Values"))
    assert "admin-key=$(TRB_ADMIN_KEY)" in text


def test_times_and_memory_follow_from_the_deployment(tmp_path: Path) -> None:
    more = 'drain = "20s"\nstop = "1m"\nstart = "95s"\nmemory = "1536MiB"\ncpus = 0.5'
    deployment = deployments.read(tmp_path, source="image", tables=server(more=more))
    spec = pod(rendered(deployment))
    (container,) = spec["containers"]
    assert spec["terminationGracePeriodSeconds"] == 20 + 60 + 5
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "20"]
    assert "--exit-timeout-secs=60" in container["args"]
    probe = container["startupProbe"]
    assert probe["httpGet"]["path"] == "/v2/models/sentiment/ready"
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 95
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "1536Mi"}
    (shm,) = (volume for volume in spec["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{deployment.shared_memory >> 20}Mi"}


def test_a_gpu_is_asked_for_only_if_there_is_one(tmp_path: Path) -> None:
    def limits(more: str) -> Any:
        deployment = deployments.read(tmp_path, source="image", tables=server(more=more))
        return pod(rendered(deployment))["containers"][0]["resources"]["limits"]

    assert "nvidia.com/gpu" not in limits("")
    assert limits("gpus = 2")["nvidia.com/gpu"] == 2


def test_every_container_has_requests_that_are_its_limits(tmp_path: Path) -> None:
    """Otherwise a pod is not of the class Guaranteed, and a quota of limits.cpu refuses it."""
    tables = server() + gateway() + "cpus = 1.5\nreplicas = 2\n"
    files = rendered(deployments.read(tmp_path, source="image", tables=tables))
    pods = [pod(files), pod(files, "base/gateway-deployment.yaml"), pod(files, "components/smoke/job.yaml")]
    containers = [each for spec in pods for each in (*spec.get("initContainers", ()), *spec["containers"])]
    assert [each["name"] for each in containers] == ["tritonserver", "fetch", "gateway", "fetch", "smoke"]
    for each in containers:
        assert each["resources"]["requests"] == each["resources"]["limits"]
        assert each["resources"]["limits"].keys() == {"cpu", "memory"}
    assert containers[2]["resources"]["limits"] == {"cpu": "1500m", "memory": "1Gi"}


def test_several_gateways_have_a_disruption_budget_of_their_own(tmp_path: Path) -> None:
    def budget(replicas: int) -> str:
        tables = server() + gateway() + f"replicas = {replicas}\n"
        files = rendered(deployments.read(tmp_path, source="image", tables=tables))
        assert ("gateway-pdb.yaml" in files["base/kustomization.yaml"]) == (replicas > 1)
        return files.get("base/gateway-pdb.yaml", "")

    assert not budget(1)
    made = yaml.safe_load(budget(2))
    assert made["metadata"]["name"] == "sentiment-gateway"
    assert made["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "sentiment",
        "app.kubernetes.io/component": "gateway",
    }


def test_another_repository_makes_other_pods(tmp_path: Path) -> None:
    file = deployments.written(tmp_path, source="image", tables=server())

    def spec() -> Any:
        return yaml.safe_load(rendered(export.read(file))["base/deployment.yaml"])["spec"]

    before = spec()
    cases = tmp_path / "model_repository" / "sentiment" / "smoke.json"
    cases.write_text(f"{cases.read_text()}\n")
    after = spec()
    assert before["template"] != after["template"] and before["selector"] == after["selector"]


def test_a_registry_is_pulled_from_by_an_init_container(tmp_path: Path) -> None:
    files = rendered(deployments.read(tmp_path, source=OCI, tables=gateway()))
    spec = pod(files)
    (fetch,) = spec["initContainers"]
    assert fetch["image"] == GATEWAY
    assert fetch["args"] == ["trb", "pull", OCI, "/repository/models"]
    (mount,) = (m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "repository")
    assert mount == {"name": "repository", "mountPath": "/models", "subPath": "models", "readOnly": True}
    patch = yaml.safe_load(files["components/image-volume/patch-pods.yaml"])
    (volume,) = (v for v in patch["spec"]["template"]["spec"]["volumes"] if v["name"] == "repository")
    assert volume["image"]["reference"] == OCI.removeprefix("oci://")


@pytest.mark.parametrize(
    ("scheme", "start"),
    [("s3", "s3://models/"), ("gs", "gs://models/"), ("az", "as://$(AZURE_STORAGE_ACCOUNT)/models/")],
)
def test_a_bucket_is_read_by_triton_itself(tmp_path: Path, scheme: str, start: str) -> None:
    deployment = deployments.read(tmp_path, source=bucket(scheme))
    spec = pod(rendered(deployment))
    (container,) = spec["containers"]
    assert f"--model-repository={start}sentiment/revisions/{deployment.revision}" in container["args"]
    assert container["envFrom"] == [{"secretRef": {"name": "sentiment-repository", "optional": True}}]
    assert "initContainers" not in spec


def test_a_server_of_s3_that_is_not_amazon_is_named_as_triton_wants_it(tmp_path: Path) -> None:
    source = bucket("s3").replace("s3://", "s3://http://minio.storage:9000/")
    (container,) = pod(rendered(deployments.read(tmp_path, source=source)))["containers"]
    (models,) = (word for word in container["args"] if word.startswith("--model-repository="))
    assert models.startswith("--model-repository=s3://http://minio.storage:9000/models/sentiment/revisions/")


def test_an_image_has_nobody_to_call(tmp_path: Path) -> None:
    files = rendered(deployments.read(tmp_path, source="image", tables=server()))
    assert yaml.safe_load(files["base/networkpolicy.yaml"])["spec"]["egress"] == []


def test_who_may_call(tmp_path: Path) -> None:
    files = rendered(deployments.read(tmp_path, source=OCI, tables=gateway()))
    apis, metrics = yaml.safe_load(files["base/networkpolicy.yaml"])["spec"]["ingress"]
    assert [port["port"] for port in apis["ports"]] == [8000, 8001]
    assert [port["port"] for port in metrics["ports"]] == [8002]
    assert all(peer for rule in (apis, metrics) for peer in rule["from"])


def test_autoscaling_owns_the_replicas(tmp_path: Path) -> None:
    files = rendered(deployments.read(tmp_path, source="image", tables=server() + SCALED))
    assert "replicas" not in yaml.safe_load(files["base/deployment.yaml"])["spec"]
    hpa = yaml.safe_load(files["base/hpa.yaml"])["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (2, 8)
    (metric,) = (each["external"] for each in hpa["metrics"])
    assert metric["target"] == {"type": "AverageValue", "averageValue": "1300m"}
    (trigger,) = yaml.safe_load(files["components/keda/scaledobject.yaml"])["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == "1.3"
    (rule,) = yaml.safe_load(files["prometheus-adapter.yaml"])["rules"]["external"]
    assert rule["name"]["as"] == metric["metric"]["name"]
    assert rule["metricsQuery"] == trigger["metadata"]["query"]
    recorded = yaml.safe_load(files["components/monitoring/prometheusrule-scaling.yaml"])["spec"]["groups"]
    names = {rule["record"] for group in recorded for rule in group["rules"]}
    assert any(name in trigger["metadata"]["query"] for name in names)


def test_turning_autoscaling_on_says_what_happens_to_the_replicas(tmp_path: Path) -> None:
    """kubectl apply removes them from the Deployment in the cluster, which means 1."""

    def head(tables: str) -> str:
        return rendered(deployments.read(tmp_path, source="image", tables=tables))["base/kustomization.yaml"]

    assert "kubectl apply edit-last-applied deployment/sentiment" in head(server() + SCALED)
    assert "edit-last-applied" not in head(server())


def test_the_smoke_job_proves_golden_cases_if_its_image_has_them(tmp_path: Path) -> None:
    def words(source: str, tables: str) -> Any:
        files = rendered(deployments.read(tmp_path, source=source, tables=tables))
        return pod(files, "components/smoke/job.yaml")["containers"][0]["args"]

    url = "--url=http://sentiment:8000"
    assert words(OCI, gateway()) == ["trb", "smoke", "/models", url, "--live"]
    image = "registry.example/all:3"
    assert words("image", server(image) + gateway(image)) == ["trb", "smoke", "/models", url, "--live"]
    assert words("image", server())[:3] == ["python3", "-I", "-c"]


def test_the_gateway_gets_the_repository_of_a_server_with_another_image(tmp_path: Path) -> None:
    """Without it the gateway would know no endpoint: the list of models needs the admin key."""
    files = rendered(deployments.read(tmp_path, source="image", tables=server() + gateway()))
    for path in ("base/gateway-deployment.yaml", "components/smoke/job.yaml"):
        (fetch,) = pod(files, path)["initContainers"]
        assert fetch["image"] == "registry.example/sentiment:3"
        assert fetch["args"] == ["cp", "-r", "/models", "/repository/models"]
    assert "initContainers" not in pod(files)
    image = "registry.example/trb-s3:1"
    tables = f'{gateway()}[kubernetes]\nfetch_image = "{image}"\n'
    files = rendered(deployments.read(tmp_path, source=bucket("s3"), tables=tables))
    (fetch,) = pod(files, "base/gateway-deployment.yaml")["initContainers"]
    assert (fetch["image"], fetch["args"][:2]) == (image, ["trb", "pull"])
    assert "initContainers" not in pod(files)


def test_the_steps_of_a_rollout(tmp_path: Path) -> None:
    tables = gateway() + '[canary]\nsteps = [5, 100]\nrequests = 1000\nhold = "2m"\ntimeout = "10m"\n'
    files = rendered(deployments.read(tmp_path, source=OCI, tables=tables))
    canary = yaml.safe_load(files["components/rollout/rollout.yaml"])["spec"]["strategy"]["canary"]
    assert [step["setWeight"] for step in canary["steps"] if "setWeight" in step] == [5, 100]
    assert canary["steps"][1] == {"pause": {"duration": "120s"}}
    traffic = yaml.safe_load(files["components/rollout/analysis-traffic.yaml"])["spec"]["metrics"]
    golden, requests = traffic
    container = golden["provider"]["job"]["spec"]["template"]["spec"]["containers"][0]
    # As many golden requests as a step needs, so that it neither stalls nor passes unseen.
    assert "--clients=8 --requests=125" in container["args"][2]
    assert "http://sentiment-canary:8000" in container["args"][2]
    assert requests["successCondition"].endswith(">= 1000") and requests["count"] == 40
    rules = yaml.safe_load(files["components/rollout/analysis-rules.yaml"])["spec"]["metrics"]
    assert [rule["name"] for rule in rules] == ["failures", "p99", "labels"]
    assert all("{{args.latest-hash}}" in rule["provider"]["prometheus"]["query"] for rule in rules)
    route = yaml.safe_load(files["overlays/canary/httproute.yaml"])["spec"]["rules"][0]["backendRefs"]
    assert [(each["name"], each["weight"]) for each in route] == [("sentiment", 95), ("sentiment-canary", 5)]


@pytest.mark.parametrize("release", ["24.10", "25.01", "26.07"])
def test_p99_is_read_from_what_the_server_has_and_no_data_is_no_pass(tmp_path: Path, release: str) -> None:
    """Every release has the summary; the histogram some have for decoupled models only."""
    tables = server(more=f'release = "{release}"')
    files = rendered(deployments.read(tmp_path, source="image", tables=tables))
    assert "--metrics-config=summary_latencies=true" in pod(files)["containers"][0]["args"]

    def rule(name: str, analysis: str) -> Any:
        metrics = yaml.safe_load(files[f"components/rollout/analysis-{analysis}.yaml"])["spec"]["metrics"]
        return next(each for each in metrics if each["name"] == name)

    judged = rule("p99", "rules")
    assert "nv_inference_request_summary_us" in judged["provider"]["prometheus"]["query"]
    # Neither condition holds without a result, so that the Rollout stops and asks.
    assert judged["successCondition"] == "len(result) > 0 && result[0] <= 1.3"
    assert judged["failureCondition"] == "len(result) > 0 && result[0] > 1.3"
    assert rule("p99", "watch")["successCondition"].startswith("len(result) == 0")


def test_routes_reach_inference_only(tmp_path: Path) -> None:
    tables = gateway() + '[exposure]\ndomain = "m.example"\n[kubernetes]\nparent_gateway = "edge/public"\n'
    files = rendered(deployments.read(tmp_path, source=OCI, tables=tables))
    route = yaml.safe_load(files["components/route/httproute.yaml"])["spec"]
    assert route["parentRefs"] == [{"name": "public", "namespace": "edge"}]
    assert route["hostnames"] == ["m.example"]
    kserve, other = route["rules"]
    assert [match["path"]["value"] for match in kserve["matches"]] == ["/v2/models", "/v2/health", "/v2"]
    assert other["backendRefs"] == [{"name": "sentiment-gateway", "port": 9000}]


BAD: Mapping[str, tuple[str, str, str]] = {
    "folder": ("folder", "", "'repository.source' is folder, which the nodes of a cluster do not have"),
    "nothing has trb": (OCI, "", "no image has trb to fetch it"),
    "nothing has git": (GIT, gateway(), "no image with git is named"),
    "ssh": (GIT.replace("https", "ssh"), "", "reached by ssh"),
    "latest": ("image", server("registry.example/sentiment:latest"), "may be another image tomorrow"),
    "no tag": (OCI, gateway("registry.example:5000/trb"), "may be another image tomorrow"),
    "no image": ("image", server("Registry_Example"), "is not of the form REGISTRY/NAME:TAG"),
    "little memory": ("image", server(more='memory = "64MiB"'), "'server.memory' is 64 MiB, and /dev/shm"),
    "address": ("image", server() + '[kubernetes]\nprometheus = "prometheus:9090"', "http://HOST:PORT"),
    "gateway": ("image", server() + '[kubernetes]\nparent_gateway = "a/b/c"', "NAMESPACE/NAME"),
    "namespace": ("image", server() + '[kubernetes]\nnamespace = "a/b"', "'kubernetes.namespace' = "),
    "domain": ("image", server() + '[exposure]\ndomain = "https://m.example"', "no host name"),
    "a bucket's gateway": (bucket("s3"), gateway(), "'gateway.image' needs the repository"),
    "no capacity": ("image", server() + "[autoscaling]\nmost = 4", "neither 'report' nor"),
}


@pytest.mark.parametrize("target", ["kubernetes", "helm"])
@pytest.mark.parametrize("name", BAD)
def test_one_clear_message(tmp_path: Path, name: str, target: str) -> None:
    source, tables, message = BAD[name]
    with pytest.raises(TrbError) as error:
        rendered(deployments.read(tmp_path, source=source, tables=tables), target)
    assert message in error.value.message and error.value.remedy
    assert error.value.code is Code.USAGE and error.value.where.endswith("deploy.toml")


def test_a_namespace_is_everywhere(tmp_path: Path) -> None:
    """In each kustomization, and in the commands that make Secrets."""
    tables = f'{gateway()}{SCALED}[kubernetes]\nnamespace = "models"\n'
    files = rendered(deployments.read(tmp_path, source=OCI, tables=tables))
    for path, text in files.items():
        if path.endswith("kustomization.yaml") and "resources:\n  - ../" not in text:
            assert yaml.safe_load(text)["namespace"] == "models", path
    assert "kubectl -n models create secret" in files["base/kustomization.yaml"]
    assert "write the entries of all of them" in files["prometheus-adapter.yaml"].replace("\n# ", " ")


@pytest.mark.parametrize("suffix", ["-gateway", "-canary", "-headless", "-stable"])
def test_names_that_other_objects_have(tmp_path: Path, suffix: str) -> None:
    deployment = deployments.read(tmp_path, source="image", tables=server(), name=f"bert{suffix}")
    with pytest.raises(TrbError, match=f"'name' ends with {suffix}"):
        rendered(deployment)


@pytest.mark.parametrize("place", ["s3://models/sentiment", "oci://registry.example/models/sentiment"])
def test_another_revision_than_the_folder(tmp_path: Path, place: str) -> None:
    deployment = deployments.read(tmp_path, source=f"{place}@sha256:{deployments.DIGEST}", tables=gateway())
    with pytest.raises(TrbError) as error:
        rendered(deployment)
    assert error.value.code is Code.DIGEST_MISMATCH


def test_api_keys_in_plain_text(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    tables = f'{gateway()}keys = "{keys}"\n'
    keys.write_text(f"# ours\nsha256:{deployments.DIGEST} search\nplain-text-key-0123 other\n")
    with pytest.raises(TrbError) as error:
        rendered(deployments.read(tmp_path, source=OCI, tables=tables))
    assert error.value.message.startswith("line 3 is a key in plain text")
    keys.write_text(f"sha256:{deployments.DIGEST} search\n")
    files = rendered(deployments.read(tmp_path, source=OCI, tables=tables))
    assert "--api-keys=/etc/trb/keys/keys" in files["base/gateway-deployment.yaml"]
    assert deployments.DIGEST not in "".join(files.values())
    for listed in (
        pod(files, "base/gateway-deployment.yaml"),
        files["components/monitoring/gateway-servicemonitor.yaml"],
    ):
        assert "sentiment-api-keys" in str(listed) or "sentiment-metrics-key" in str(listed)
    without = "".join(rendered(deployments.read(tmp_path, source=OCI, tables=gateway())).values())
    assert "-api-keys" not in without and "-metrics-key" not in without


@pytest.mark.parametrize("target", ["kubernetes", "helm", "kserve", "oci", "compose", "swarm"])
def test_only_those_that_name_a_secrets_file_need_it(tmp_path: Path, target: str) -> None:
    """So CI renders and compares the others without any secret."""
    file = deployments.written(tmp_path, source=OCI, tables=f'{gateway()}keys = "no-keys"\n')
    (tmp_path / "admin_key").unlink()
    if target in ("compose", "swarm"):
        with pytest.raises(TrbError) as error:
            export.read(file, target=target)
        assert error.value.code is Code.NOT_FOUND and error.value.where.endswith("admin_key")
    else:
        assert export.render(target, export.read(file, target=target)).contents


@pytest.mark.parametrize("target", ["kubernetes", "helm"])
def test_equal_input_gives_equal_bytes(tmp_path: Path, target: str) -> None:
    deployment = deployments.read(tmp_path, source=OCI, tables=gateway() + SCALED)
    assert rendered(deployment, target) == rendered(deployment, target)
