"""``trb export kserve``: the objects by KServe's schemas, and the sources that it cannot fetch."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import deploy_files as files
from tests.support import kubernetes
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.targets import facts
from triton_repo_builder.ship.targets.facts import Deployment


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(facts.git, "last_commit", lambda path: "")
    return files.repository(tmp_path)


def objects(deployment: Deployment) -> dict[str, Any]:
    contents = files.rendered("kserve", deployment)
    return {path: files.objects(text) for path, text in contents.items() if path.endswith(".yaml")}


def from_bucket(root: Path, **tables: dict[str, Any]) -> Deployment:
    return files.read(root, repository={"source": files.bucket(root)}, **tables)


def patched(target: Any, patch: Any) -> Any:
    """The object after a merge patch (RFC 7386), as ``kubectl patch --type merge`` sends it."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


def test_every_object_is_valid_by_its_schema(root: Path) -> None:
    rendered = objects(from_bucket(root, server={"gpus": 1}))
    assert sorted(rendered) == [
        "canary/abort.yaml",
        "canary/promote.yaml",
        "canary/step-10.yaml",
        "canary/step-100.yaml",
        "canary/step-50.yaml",
        "inference-service.yaml",
        "kustomization.yaml",
        "pod-disruption-budget.yaml",
        "service-account.yaml",
        "serving-runtime.yaml",
    ]
    runtime, service = rendered["serving-runtime.yaml"], rendered["inference-service.yaml"]
    assert files.kserve_errors(runtime) == []
    assert files.kserve_errors(service) == []
    for step in (10, 50, 100):
        assert files.kserve_errors(patched(service, rendered[f"canary/step-{step}.yaml"])) == []


def test_the_schemas_refuse_mistakes(root: Path) -> None:
    rendered = objects(from_bucket(root))
    runtime, service = rendered["serving-runtime.yaml"], rendered["inference-service.yaml"]
    runtime["spec"]["containers"][0]["volumeMount"] = []
    service["spec"]["predictor"]["replicas"] = 2
    assert "volumeMount" in str(files.kserve_errors(runtime))
    assert "replicas" in str(files.kserve_errors(service))


def test_the_runtime_runs_triton_as_every_target_does(root: Path) -> None:
    deployment = from_bucket(
        root, server={"image": "registry.example/triton:1", "memory": "2GiB", "cpus": 1.5}
    )
    runtime = objects(deployment)["serving-runtime.yaml"]
    (container,) = runtime["spec"]["containers"]
    assert container["image"] == "registry.example/triton:1"
    assert container["args"][0] == "tritonserver"
    assert {"--model-repository=/mnt/models", "--http-port=8080", "--grpc-port=9000"} <= set(
        container["args"]
    )
    assert "--model-control-mode=none" in container["args"]
    restricted = [word for word in container["args"] if "restricted" in word]
    assert len(restricted) == 2
    assert all(word.endswith("=$(ADMIN_KEY)") for word in restricted)
    secret = container["env"][0]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "bert-admin-key", "key": "key"}
    assert container["ports"][0] == {"name": "http1", "containerPort": 8080, "protocol": "TCP"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/models/whole/ready", "port": 8080}
    assert container["resources"]["limits"] == {"cpu": "1.5", "memory": str(2 << 30)}
    shared = next(volume for volume in runtime["spec"]["volumes"] if volume["name"] == "shared-memory")
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": str(deployment.shared_memory)}
    temporary = next(volume for volume in runtime["spec"]["volumes"] if volume["name"] == "temporary")
    assert temporary["emptyDir"] == {"sizeLimit": "1Gi"}
    assert container["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_prefix_of_a_bucket_ends_before_the_index_beside_it(root: Path) -> None:
    deployment = from_bucket(root)
    model = objects(deployment)["inference-service.yaml"]["spec"]["predictor"]["model"]
    assert model["storageUri"] == f"s3://models/bert/revisions/{deployment.revision}/"


def test_an_image_is_fetched_by_its_digest(root: Path) -> None:
    source = files.image(root)
    model = objects(files.read(root, repository={"source": source}))["inference-service.yaml"]["spec"][
        "predictor"
    ]["model"]
    assert model["storageUri"] == source.replace("oci://", "oci+fetch://")


def test_a_canary_has_the_steps_shares_and_as_many_replicas(root: Path) -> None:
    rendered = objects(from_bucket(root, server={"replicas": 4}, canary={"steps": [5, 30, 100]}))
    service = rendered["inference-service.yaml"]
    predictor = service["spec"]["predictor"]
    shares = {}
    for step in (5, 30, 100):
        (canary,) = rendered[f"canary/step-{step}.yaml"]["spec"]["canary"]
        shares[canary["trafficPercent"]] = canary["predictor"]["minReplicas"]
        # The last step's predictor becomes the stable one without a restart: it is the same.
        assert canary["predictor"]["name"] == predictor["name"]
        counted = ("minReplicas", "maxReplicas")
        assert {key: value for key, value in canary["predictor"].items() if key not in counted} == {
            key: value for key, value in predictor.items() if key not in counted
        }
    assert shares == {5: 1, 30: 2, 100: 4}
    assert service["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "Standard"
    assert rendered["canary/abort.yaml"] == {"spec": {"canary": None}}


def test_a_canary_goes_from_the_running_version_to_the_new_one(root: Path) -> None:
    stable = objects(from_bucket(root))["inference-service.yaml"]
    (root / "step" / "1" / "model.py").write_text("# another\n")
    new = objects(from_bucket(root))
    service = stable
    for step in (10, 50, 100):
        service = patched(service, new[f"canary/step-{step}.yaml"])
        assert files.kserve_errors(service) == []
        assert service["spec"]["predictor"] == stable["spec"]["predictor"]
        assert service["spec"]["canary"][0]["predictor"]["name"] != service["spec"]["predictor"]["name"]
    assert patched(service, new["canary/abort.yaml"]) == stable
    assert patched(service, new["canary/promote.yaml"]) == new["inference-service.yaml"]


def test_another_version_has_another_name_and_runtime(root: Path) -> None:
    before = objects(from_bucket(root))
    image = objects(from_bucket(root, server={"image": "registry.example/triton:2"}))
    (root / "step" / "1" / "model.py").write_text("# another\n")
    model = objects(from_bucket(root))
    names = {each["serving-runtime.yaml"]["metadata"]["name"] for each in (before, image, model)}
    assert len(names) == 3
    for each in (before, image, model):
        predictor = each["inference-service.yaml"]["spec"]["predictor"]
        assert predictor["model"]["runtime"] == each["serving-runtime.yaml"]["metadata"]["name"]
        assert predictor["name"] == f"v{predictor['model']['runtime'].removeprefix('bert-')}"


def test_the_autoscaler_asks_for_waiting_batches(root: Path) -> None:
    stated = {"least": 2, "most": 6, "pending_batches": 1.5, "window": "10m"}
    service = objects(from_bucket(root, autoscaling=stated))["inference-service.yaml"]
    assert files.kserve_errors(service) == []
    predictor = service["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (2, 6)
    assert service["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "keda"
    (metric,) = predictor["autoScaling"]["metrics"]
    assert 'trb:pending_batches:mean1m{deployment="bert"}' in metric["external"]["metric"]["query"]
    assert metric["external"]["target"] == {"type": "Value", "value": "1.5"}


def test_what_the_autoscaler_reads_is_recorded_from_these_pods(root: Path) -> None:
    stated = {"least": 2, "most": 6, "pending_batches": 1.5}
    rendered = objects(from_bucket(root, autoscaling=stated))
    assert set(rendered["kustomization.yaml"]["resources"]) == {
        path for path in rendered if path != "kustomization.yaml" and not path.startswith("canary/")
    }
    (group,) = rendered["prometheus-rule.yaml"]["spec"]["groups"]
    rules = {rule["record"]: rule for rule in group["rules"]}
    pending = rules["trb:pending_batches:mean1m"]
    assert pending["labels"] == {"deployment": "bert", "model": "step"}
    pods = re.search(r'pod=~"([^"]+)"', pending["expr"])
    assert pods is not None
    name = rendered["inference-service.yaml"]["spec"]["predictor"]["name"]
    assert re.fullmatch(pods[1], f"bert-{name}-predictor-6d5f7b9c4-x2x8p")
    labels = rendered["serving-runtime.yaml"]["spec"]["labels"]
    selected = rendered["pod-monitor.yaml"]["spec"]["selector"]["matchLabels"]
    assert selected.items() <= labels.items()


@pytest.mark.parametrize("version", kubernetes.VERSIONS)
def test_a_drained_node_takes_one_replica_at_a_time(root: Path, version: str) -> None:
    rendered = objects(from_bucket(root))
    budget = rendered["pod-disruption-budget.yaml"]
    assert kubernetes.faults([budget], version) == []
    assert budget["spec"]["maxUnavailable"] == 1
    labels = rendered["serving-runtime.yaml"]["spec"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert "pod-disruption-budget.yaml" in rendered["kustomization.yaml"]["resources"]


SOURCES = [
    ("folder", "is folder, which KServe cannot fetch"),
    ("az://models/bert@sha256:" + "0" * 64, "which KServe cannot fetch"),
    ("git+https://example.com/models@" + "0" * 40 + "#bert", "which KServe cannot fetch"),
]


@pytest.mark.parametrize(("source", "message"), SOURCES)
def test_a_source_that_kserve_cannot_fetch_is_named(root: Path, source: str, message: str) -> None:
    with pytest.raises(TrbError, match=message) as caught:
        objects(files.read(root, repository={"source": source}))
    assert caught.value.code is Code.USAGE
    assert "trb push" in caught.value.remedy


@pytest.mark.parametrize("source", ["s3://models/bert", "gs://models/bert", "oci://registry.example/bert"])
def test_a_source_of_another_revision_is_refused(root: Path, source: str) -> None:
    with pytest.raises(TrbError, match="is pushed as sha256") as caught:
        objects(files.read(root, repository={"source": f"{source}@sha256:{'0' * 64}"}))
    assert caught.value.code is Code.DIGEST_MISMATCH


def test_a_version_of_empty_files_would_not_arrive_from_s3(root: Path) -> None:
    (root / "whole" / "1" / ".gitkeep").write_bytes(b"")
    with pytest.raises(TrbError, match="whole/1: only empty files") as caught:
        objects(from_bucket(root))
    assert "echo > whole/1/.gitkeep" in caught.value.remedy
    assert objects(files.read(root, repository={"source": files.bucket(root, "gs://models/bert")}))
