"""The command line, the health check and the times that every target uses."""

from __future__ import annotations

from pathlib import Path

from tests.support import tuned_deployments as deployments
from triton_repo_builder.ship.targets import server


def test_the_command_line(tmp_path: Path) -> None:
    deployment = deployments.deployment(tmp_path, '[server]\nstop = "12.5s"\n')
    arguments = server.arguments(deployment)
    assert arguments == (
        "--model-repository=/models",
        "--model-control-mode=none",
        "--exit-on-error=true",
        "--strict-readiness=true",
        "--disable-auto-complete-config",
        "--http-port=8000",
        "--grpc-port=8001",
        "--metrics-port=8002",
        "--exit-timeout-secs=13",
        "--grpc-max-connection-age=300000",
        "--grpc-max-connection-age-grace=13000",
    )
    assert (
        server.arguments(deployment, models="s3://bucket/models")[0]
        == "--model-repository=s3://bucket/models"
    )


def test_a_configuration_that_the_server_must_complete(tmp_path: Path) -> None:
    deployments.folder(tmp_path)
    config = tmp_path / "model_repository" / "sentiment_model" / "config.pbtxt"
    text = config.read_text()
    config.write_text(text[: text.index("output {")])
    assert "--disable-auto-complete-config" not in server.arguments(deployments.deployment(tmp_path))


def test_the_administrative_apis_need_the_key() -> None:
    http, grpc = server.restricted("$(ADMIN_KEY)")
    for argument in (http, grpc):
        assert argument.endswith(":admin-key=$(ADMIN_KEY)")
        for api in ("model-repository", "shared-memory", "trace", "logging"):
            assert api in argument
    assert http.startswith("--http-restricted-api=") and grpc.startswith("--grpc-restricted-protocol=")


def test_times_are_whole_seconds_and_add_up(tmp_path: Path) -> None:
    text = '[server]\nstart = "61s"\ndrain = "7500ms"\nstop = "20s"\n'
    times = server.times(deployments.deployment(tmp_path, text))
    assert (times.start, times.drain, times.stop) == (61, 8, 20)
    assert (times.grace, times.total) == (25, 33)
    assert times.start_checks == 7


def test_ready_is_the_server_if_that_sees_dead_processes(tmp_path: Path) -> None:
    deployment = deployments.deployment(tmp_path, '[server]\nrelease = "26.04"\n')
    assert server.ready_path(deployment) == "/v2/health/ready"


def test_ready_is_the_endpoint_itself_if_there_is_one(tmp_path: Path) -> None:
    deployment = deployments.deployment(tmp_path, '[server]\nrelease = "26.03"\n')
    assert server.ready_path(deployment) == "/v2/models/sentiment/ready"
    command = server.health_command(deployment)
    assert command[:3] == ["python3", "-I", "-c"]
    compile(command[3], "health", "exec")
    assert "http://127.0.0.1:8000/v2/models/sentiment/ready" in command[3]
