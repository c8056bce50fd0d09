"""``trb export sagemaker``: requests by botocore's own model of the API, and what SageMaker would refuse."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from tests.support import deploy_files as files
from tests.support import serve_repository as made
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import revision
from triton_repo_builder.ship.targets import archive, facts
from triton_repo_builder.ship.targets.facts import Deployment

REQUESTS = {
    "create-model": ("sagemaker", "CreateModel"),
    "create-endpoint-config": ("sagemaker", "CreateEndpointConfig"),
    "create-endpoint": ("sagemaker", "CreateEndpoint"),
    "update-endpoint": ("sagemaker", "UpdateEndpoint"),
    "alarm-failures": ("cloudwatch", "PutMetricAlarm"),
    "alarm-latency": ("cloudwatch", "PutMetricAlarm"),
    "register-scalable-target": ("application-autoscaling", "RegisterScalableTarget"),
    "put-scaling-policy": ("application-autoscaling", "PutScalingPolicy"),
    "canary/create-endpoint-config": ("sagemaker", "CreateEndpointConfig"),
    "canary/update-endpoint": ("sagemaker", "UpdateEndpoint"),
    "canary/step-50": ("sagemaker", "UpdateEndpointWeightsAndCapacities"),
    "canary/step-100": ("sagemaker", "UpdateEndpointWeightsAndCapacities"),
    "canary/abort": ("sagemaker", "UpdateEndpointWeightsAndCapacities"),
    "canary/promote": ("sagemaker", "UpdateEndpoint"),
    **{
        f"canary/alarm-{kind}-{variant}": ("cloudwatch", "PutMetricAlarm")
        for kind in ("failures", "latency")
        for variant in ("stable", "candidate")
    },
    "shadow/create-endpoint-config": ("sagemaker", "CreateEndpointConfig"),
    "shadow/update-endpoint": ("sagemaker", "UpdateEndpoint"),
}


@cache
def service(name: str) -> Any:
    return botocore.session.get_session().get_service_model(name)


def faults(path: str, body: dict[str, Any]) -> str:
    """Faults by the service's model: types, required fields, limits of numbers and lengths."""
    name, operation = REQUESTS[path.removesuffix(".json")]
    shape = service(name).operation_model(operation).input_shape
    return str(ParamValidator().validate(body, shape).generate_report())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(facts.git, "last_commit", lambda path: "")
    return files.repository(tmp_path)


def deployment(root: Path, **tables: dict[str, Any]) -> Deployment:
    known: dict[str, dict[str, Any]] = {
        "server": {"image": files.ECR},
        "sagemaker": {"role": files.ROLE, "bucket": "s3://models/archives"},
    }
    for table, values in tables.items():
        known[table] = {**known.get(table, {}), **values}
    return files.read(root, **known)


def requests(root: Path, **tables: dict[str, Any]) -> dict[str, Any]:
    contents = files.rendered("sagemaker", deployment(root, **tables))
    return {
        path.removesuffix(".json"): json.loads(text)
        for path, text in contents.items()
        if path.endswith(".json") and path != "export.json"
    }


def test_every_request_is_valid_by_the_services_models(root: Path) -> None:
    bodies = requests(
        root,
        sagemaker={"stable": "bert-0123456789ab"},
        autoscaling={"least": 1, "most": 4, "report": files.capacity(root.parent)},
    )
    assert sorted(bodies) == sorted(REQUESTS)
    assert {path: faults(path, body) for path, body in bodies.items()} == dict.fromkeys(bodies, "")


def test_the_models_refuse_mistakes() -> None:
    assert "Missing required parameter" in faults("create-endpoint", {"EndpointName": "bert"})
    assert "Unknown parameter" in faults("create-model", {"ModelName": "a", "Image": "b"})


def test_the_container_gets_the_environment_that_its_start_reads(root: Path) -> None:
    container = requests(root)["create-model"]["PrimaryContainer"]
    assert container["Image"] == files.ECR
    digest = revision.collect(root).index.digest
    assert container["ModelDataUrl"] == f"s3://models/archives/bert/{digest[:12]}/model.tar.gz"
    assert container["Environment"] == {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "whole",
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        "SAGEMAKER_TRITON_THREAD_COUNT": "8",
        "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": str(16 << 20),
        "SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE": str(1 << 20),
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--exit-on-error=true --strict-readiness=true "
        "--exit-timeout-secs=30",
    }


@pytest.mark.parametrize(("instances", "mebi"), [(1, 16), (2, 16), (3, 10), (32, 1), (64, 1)])
def test_regions_of_python_instances_fit_into_shared_memory(root: Path, instances: int, mebi: int) -> None:
    _instances(root, instances)
    environment = requests(root)["create-model"]["PrimaryContainer"]["Environment"]
    assert environment["SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE"] == str(mebi << 20)


def test_more_python_instances_than_shared_memory_has_room_for_are_refused(root: Path) -> None:
    _instances(root, 65)
    with pytest.raises(TrbError, match="65 Python instances need 65 MiB"):
        requests(root)


def _instances(root: Path, count: int) -> None:
    config = root / "step" / "config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", f"count: {count}"))


def test_the_archive_is_the_repository_and_the_same_bytes_again(root: Path) -> None:
    first, second = (files.rendered("sagemaker", deployment(root))["model.tar.gz"] for _ in range(2))
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first))) as tar:
        members = tar.getmembers()
        contents = {
            member.name: tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in members
            if member.isreg()
        }
    assert contents == {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}
    names = [member.name for member in members if member.isreg()]
    assert names == sorted(names)
    assert {"step", "step/1", "whole", "whole/1"} == {member.name for member in members if member.isdir()}


def test_the_archive_of_an_empty_version_has_a_placeholder(root: Path) -> None:
    (root / "whole" / "1" / ".gitkeep").unlink()
    content = files.rendered("sagemaker", deployment(root))["model.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        assert "whole/1/.gitkeep" in tar.getnames()


@pytest.mark.parametrize("sizes", [[], [0], [1], [archive.BLOCK], [archive.BLOCK + 1, 3], [1 << 20, 0, 7]])
def test_any_reader_of_gzip_gets_the_bytes(sizes: list[int]) -> None:
    blocks = [bytes((size + index) % 256 for index in range(size)) for size in sizes]
    assert gzip.decompress(b"".join(archive.gzip(blocks))) == b"".join(blocks)


def test_a_large_archive_is_never_held_whole(root: Path) -> None:
    with (root / "step" / "1" / "weights.bin").open("wb") as file:
        file.truncate(40 << 20)
    stream = archive.archive(revision.collect(root))
    longest = max(len(block) for block in stream.blocks())
    assert longest <= archive.BLOCK + 5
    assert stream.size > 40 << 20
    assert stream.sha256 == hashlib.sha256(b"".join(stream.blocks())).hexdigest()


def test_a_pushed_revision_needs_no_archive(root: Path) -> None:
    made_here = deployment(root, repository={"source": files.bucket(root)}, sagemaker={"bucket": ""})
    contents = files.rendered("sagemaker", made_here)
    assert "model.tar.gz" not in contents
    source = json.loads(contents["create-model.json"])["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]
    assert source == {
        "S3Uri": f"s3://models/bert/revisions/{made_here.revision}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    assert not faults("create-model", json.loads(contents["create-model.json"]))


ROUTING = [
    ([10, 50, 100], "CANARY", 10),
    ([50, 100], "CANARY", 50),
    ([25, 50, 75, 100], "LINEAR", 25),
    ([5, 10, 100], "CANARY", 5),
    ([100], "ALL_AT_ONCE", None),
]


@pytest.mark.parametrize(("steps", "kind", "percent"), ROUTING)
def test_steps_become_a_canary_or_equal_steps(
    root: Path, steps: list[int], kind: str, percent: int | None
) -> None:
    body = requests(root, canary={"steps": steps, "hold": "1m"})["update-endpoint"]
    assert faults("update-endpoint", body) == ""
    policy = body["DeploymentConfig"]["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    sizes = {"CANARY": "CanarySize", "LINEAR": "LinearStepSize"}
    assert policy["Type"] == kind
    assert policy["WaitIntervalInSeconds"] == 300
    if percent:
        assert policy[sizes[kind]] == {"Type": "CAPACITY_PERCENT", "Value": percent}
    alarms = body["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    assert [alarm["AlarmName"] for alarm in alarms] == ["bert-failures", "bert-latency"]


def test_alarms_follow_the_rules_and_the_objective(root: Path) -> None:
    bodies = requests(root, canary={"steps": [10, 100]})
    assert bodies["alarm-failures"]["Threshold"] == 0.01
    assert bodies["alarm-latency"]["Threshold"] == 500_000
    assert bodies["alarm-latency"]["ExtendedStatistic"] == "p99"


def watched(body: dict[str, Any]) -> set[str]:
    """Names of the variants that an alarm asks CloudWatch for."""
    metrics = [each["MetricStat"]["Metric"] for each in body.get("Metrics", ()) if "MetricStat" in each]
    listed = [each for metric in (metrics or [body]) for each in metric["Dimensions"]]
    return {each["Value"] for each in listed if each["Name"] == "VariantName"}


def test_every_variant_that_a_configuration_names_has_its_alarms(root: Path) -> None:
    bodies = requests(root, sagemaker={"stable": "bert-old"})
    variants = {
        folder: {
            each["VariantName"]
            for key in ("ProductionVariants", "ShadowProductionVariants")
            for each in bodies[f"{folder}create-endpoint-config"].get(key, ())
        }
        for folder in ("", "canary/", "shadow/")
    }
    for kind in ("failures", "latency"):
        assert watched(bodies[f"alarm-{kind}"]) == variants[""]
        beside = {each: bodies[f"canary/alarm-{kind}-{each}"] for each in variants["canary/"]}
        assert variants["shadow/"] == beside.keys()
        assert {each: watched(body) for each, body in beside.items()} == {each: {each} for each in beside}
    alarms = [body["AlarmName"] for path, body in bodies.items() if "alarm-" in path]
    assert len(alarms) == len(set(alarms)) == 6


def test_variants_beside_the_stable_model(root: Path) -> None:
    bodies = requests(root, sagemaker={"stable": "bert-old"}, canary={"steps": [20, 60, 100]})
    model = bodies["create-model"]["ModelName"]
    variants = bodies["canary/create-endpoint-config"]["ProductionVariants"]
    weights = {each["ModelName"]: each["InitialVariantWeight"] for each in variants}
    assert weights == {"bert-old": 80.0, model: 20.0}
    later = bodies["canary/step-60"]["DesiredWeightsAndCapacities"]
    assert [each["DesiredWeight"] for each in later] == [40.0, 60.0]
    back = bodies["canary/abort"]["DesiredWeightsAndCapacities"]
    assert [each["DesiredWeight"] for each in back] == [100.0, 0.0]
    alone = bodies["create-endpoint-config"]["EndpointConfigName"]
    assert bodies["canary/promote"] == {"EndpointName": "bert", "EndpointConfigName": alone}
    shadow = bodies["shadow/create-endpoint-config"]
    assert [each["ModelName"] for each in shadow["ProductionVariants"]] == ["bert-old"]
    assert [each["ModelName"] for each in shadow["ShadowProductionVariants"]] == [model]
    names = {body["EndpointConfigName"] for path, body in bodies.items() if path.endswith("endpoint-config")}
    assert len(names) == 3


def test_replicas_follow_half_of_the_measured_capacity(root: Path) -> None:
    stated = {"least": 1, "most": 4, "report": files.capacity(root.parent, 30.0)}
    bodies = requests(root, autoscaling=stated)
    policy = bodies["put-scaling-policy"]["TargetTrackingScalingPolicyConfiguration"]
    assert policy["TargetValue"] == 30 * 60 / 2
    target = bodies["register-scalable-target"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 4)
    assert target["ResourceId"] == "endpoint/bert/variant/server"
    assert bodies["create-endpoint-config"]["ProductionVariants"][0]["InitialInstanceCount"] == 1


def test_what_never_changes_has_a_name_of_its_content(root: Path) -> None:
    first = requests(root)
    assert requests(root) == first
    more = requests(root, server={"replicas": 3})
    assert more["create-model"]["ModelName"] == first["create-model"]["ModelName"]
    assert more["create-endpoint-config"] != first["create-endpoint-config"]
    other = requests(root, server={"stop": "20s"})
    assert other["create-model"]["ModelName"] != first["create-model"]["ModelName"]


def refusals() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    yield "has no 'sagemaker.role'", {"sagemaker": {"role": ""}}
    yield "no role's ARN", {"sagemaker": {"role": "arn:aws:iam::1:role/x"}}
    yield "has no 'sagemaker.bucket'", {"sagemaker": {"bucket": ""}}
    yield "'sagemaker.bucket' is 'models', no URL", {"sagemaker": {"bucket": "models"}}
    yield "'sagemaker.bucket': ", {"sagemaker": {"bucket": "s3://b/p"}}
    yield "must be s3://BUCKET/PREFIX", {"sagemaker": {"bucket": "s3://localhost:9000/models"}}
    yield "SageMaker takes images of Amazon ECR only", {"server": {"image": ""}}
    yield "'sagemaker.instance' is 'm5.large'", {"sagemaker": {"instance": "m5.large"}}
    yield "but ml.m5.xlarge has no GPU", {"server": {"gpus": 1}}
    yield "'sagemaker.endpoint' is 'bert', no endpoint", {"sagemaker": {"endpoint": "bert"}}
    yield "'sagemaker.stable' is 'bert_old', no name", {"sagemaker": {"stable": "bert_old"}}
    yield "'canary.steps' begin with 60 %", {"canary": {"steps": [60, 100]}}
    yield "'canary.hold' is 7200 s", {"canary": {"hold": "2h", "timeout": "3h"}}
    yield "'server.start' is 30 s", {"server": {"start": "30s"}}
    yield "scales by requests per minute", {"autoscaling": {"most": 4, "pending_batches": 1.0}}


@pytest.mark.parametrize(("message", "tables"), list(refusals()), ids=[message for message, _ in refusals()])
def test_what_sagemaker_would_refuse_is_named(
    root: Path, message: str, tables: dict[str, dict[str, Any]]
) -> None:
    with pytest.raises(TrbError) as caught:
        requests(root, **tables)
    assert message in caught.value.message
    assert caught.value.code is Code.USAGE
    assert caught.value.remedy


def test_several_endpoints_need_a_choice(root: Path) -> None:
    made.python(root, "other")
    with pytest.raises(TrbError, match="the repository has 2 endpoints"):
        requests(root)
    body = requests(root, sagemaker={"endpoint": "other"})["create-model"]
    assert body["PrimaryContainer"]["Environment"]["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] == "other"


def test_a_model_in_place_of_the_repository_is_refused(root: Path) -> None:
    (root / "config.pbtxt").write_text('name: "bert"\n')
    with pytest.raises(TrbError, match=r"has a config\.pbtxt at its top"):
        requests(root)
