"""``trb export sagemaker``: the archive as SageMaker unpacks it, the container's start, and moto's API."""

from __future__ import annotations

import json
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import tiny
from moto import mock_aws

from tests.support import command_line, s3_server, sagemaker_start, two_versions
from tests.support import deploy_files as files
from tests.support.cli import trb
from tests.support.serve_repository import answers, free_port, until, whole

NAME = "sentiment"
REGION = "eu-central-1"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text classifier: an ensemble of a Python and an ONNX model."""
    folder = tmp_path_factory.mktemp("models")
    model, _ = two_versions.make(folder)
    trb("build", "--model", model, "--output", folder / "repository")
    return folder / "repository"


@pytest.fixture(scope="module")
def exported(models: Path) -> Path:
    """The export, beside the repository."""
    sagemaker = {"role": files.ROLE, "bucket": "s3://models/archives", "stable": "bert-0123456789ab"}
    scaling = {"least": 1, "most": 3, "report": files.capacity(models.parent)}
    file = files.write(models, server={"image": files.ECR}, sagemaker=sagemaker, autoscaling=scaling)
    output = models.parent / "deploy"
    trb("export", "sagemaker", file, "--output", output)
    assert "up to date" in trb("export", "sagemaker", file, "--output", output, "--check")
    return output


@pytest.fixture
def unpacked(exported: Path, tmp_path: Path) -> Path:
    """/opt/ml/model of the container, by tar as a container has it."""
    target = tmp_path / "opt-ml-model"
    target.mkdir()
    subprocess.run(["tar", "-xzf", exported / "model.tar.gz", "-C", target], check=True)
    return target


def request(folder: Path, name: str) -> dict[str, Any]:
    """The JSON that the AWS CLI sends."""
    body: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return body


def environment(folder: Path) -> dict[str, str]:
    variables: dict[str, str] = request(folder, "create-model")["PrimaryContainer"]["Environment"]
    return variables


def test_the_archive_unpacks_to_the_repository(exported: Path, unpacked: Path, models: Path) -> None:
    assert tiny.tree(unpacked) == tiny.tree(models)
    with tarfile.open(exported / "model.tar.gz") as archive:
        assert not [name for name in archive.getnames() if name.startswith((".", "/"))]


def test_the_container_starts_and_answers(
    exported: Path, unpacked: Path, models: Path, tmp_path: Path
) -> None:
    variables = environment(exported)
    assert set(variables) <= sagemaker_start.KNOWN
    port = free_port()
    argv = sagemaker_start.command({**variables, "SAGEMAKER_BIND_TO_PORT": str(port)}, unpacked)
    argv = [word.replace(sagemaker_start.REPOSITORY, str(unpacked)) for word in argv]
    name, case, tolerance = command_line.golden_case(models)
    assert f"--load-model={name}" in argv
    # The server itself reads the name of the model, too.
    with command_line.started(argv, unpacked, tmp_path, environment=variables) as running:
        until(lambda: running.process.poll() is not None or answers(f"http://127.0.0.1:{port}/ping"), 120)
        assert running.process.poll() is None, running.told()
        body = json.dumps({"inputs": case["inputs"]}).encode()
        headers = {"Content-Type": "application/json"}
        invocation = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, headers)
        with urllib.request.urlopen(invocation, timeout=60) as response:
            outputs = {output["name"]: output["data"] for output in json.load(response)["outputs"]}
        for expected in case["outputs"]:
            assert outputs[expected["name"]] == pytest.approx(expected["data"], abs=tolerance)
        # Neither the HTTP port nor the administrative APIs are there: nothing needs a key.
        assert not answers(f"{running.http}/v2/health/live")
        assert not answers(f"http://127.0.0.1:{port}/v2/repository/index")
        running.ends(120)


REFUSED = [
    ("a top level folder", lambda root: (root / "config.pbtxt").touch(), {}),
    ("2 model directories", lambda root: None, {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": ""}),
    ("no directory bert", lambda root: None, {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "bert"}),
]


@pytest.mark.parametrize(("message", "spoil", "variables"), REFUSED, ids=[case[0] for case in REFUSED])
def test_the_start_refuses_what_the_export_prevents(
    tmp_path: Path, message: str, spoil: Any, variables: dict[str, str]
) -> None:
    whole(tmp_path)
    spoil(tmp_path)
    with pytest.raises(sagemaker_start.Refused, match=message):
        sagemaker_start.command(variables, tmp_path)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    s3_server.use(monkeypatch)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


def test_moto_takes_every_request_and_has_what_it_says(
    aws: None, exported: Path, models: Path, tmp_path: Path
) -> None:
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": REGION})
    model = request(exported, "create-model")
    bucket, _, key = model["PrimaryContainer"]["ModelDataUrl"].removeprefix("s3://").partition("/")
    s3.upload_file(str(exported / "model.tar.gz"), bucket, key)
    s3.download_file(bucket, key, str(tmp_path / "model.tar.gz"))
    assert (tmp_path / "model.tar.gz").read_bytes() == (exported / "model.tar.gz").read_bytes()

    sagemaker.create_model(**model)
    sagemaker.create_endpoint_config(**request(exported, "create-endpoint-config"))
    sagemaker.create_endpoint(**request(exported, "create-endpoint"))
    described = sagemaker.describe_model(ModelName=model["ModelName"])
    assert described["PrimaryContainer"]["Environment"] == environment(exported)
    endpoint = sagemaker.describe_endpoint(EndpointName="bert")
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    (variant,) = config["ProductionVariants"]
    assert variant["ModelName"] == model["ModelName"]

    sagemaker.create_model(**{**model, "ModelName": "bert-0123456789ab"})
    sagemaker.create_endpoint_config(**request(exported, "canary/create-endpoint-config"))
    # moto has no UpdateEndpoint: the endpoint gets the canary's configuration anew.
    sagemaker.delete_endpoint(EndpointName="bert")
    sagemaker.create_endpoint(**request(exported, "canary/update-endpoint"))
    assert _weights(sagemaker) == {"stable": 90.0, "candidate": 10.0}
    sagemaker.update_endpoint_weights_and_capacities(**request(exported, "canary/step-50"))
    assert _weights(sagemaker) == {"stable": 50.0, "candidate": 50.0}
    sagemaker.create_endpoint_config(**request(exported, "shadow/create-endpoint-config"))

    cloudwatch, scaling = boto3.client("cloudwatch"), boto3.client("application-autoscaling")
    for name in ("alarm-failures", "alarm-latency"):
        cloudwatch.put_metric_alarm(**request(exported, name))
    alarms = {each["AlarmName"] for each in cloudwatch.describe_alarms()["MetricAlarms"]}
    rollback = request(exported, "update-endpoint")["DeploymentConfig"]["AutoRollbackConfiguration"]
    assert {each["AlarmName"] for each in rollback["Alarms"]} == alarms
    scaling.register_scalable_target(**request(exported, "register-scalable-target"))
    scaling.put_scaling_policy(**request(exported, "put-scaling-policy"))
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 3)


def _weights(sagemaker: Any) -> dict[str, float]:
    variants = sagemaker.describe_endpoint(EndpointName="bert")["ProductionVariants"]
    return {each["VariantName"]: each.get("DesiredWeight", each.get("CurrentWeight")) for each in variants}
