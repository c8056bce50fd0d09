"""How a new version takes over, what takes it back, and how replicas follow the load."""

from __future__ import annotations

import math
from typing import Any

from triton_repo_builder.ship.targets import server
from triton_repo_builder.ship.targets.facts import Deployment
from triton_repo_builder.ship.targets.sagemaker.variants import CANDIDATE, SERVER, STABLE
from triton_repo_builder.ship.targets.spec import wrong

LARGEST_CANARY = 50
"""Percent of the capacity that a canary, or a linear step, may have."""
LEAST_LINEAR = 10
LEAST_WAIT, LONGEST_WAIT = 300, 3600
"""Seconds between steps: CloudWatch's minutes come late; SageMaker's limit."""
ROLLOUT = (600, 28_800)
"""Seconds that MaximumExecutionTimeoutInSeconds may be."""
SAFETY = 0.5
"""Share of a replica's capacity that autoscaling aims at, as AWS recommends to begin with:
https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-scaling-loadtest.html"""


def rollout(deployment: Deployment) -> dict[str, Any]:
    """The steps as SageMaker has them: one canary and then all, or equal ones. Raises ``TrbError`` USAGE."""
    canary = deployment.spec.canary
    steps = canary.steps
    equal = [step * (index + 1) for index, step in enumerate([steps[0]] * len(steps))]
    wait = max(LEAST_WAIT, math.ceil(canary.hold))
    if len(steps) > 1 and steps[0] > LARGEST_CANARY:
        raise wrong(
            deployment.file,
            f"'canary.steps' begin with {steps[0]} %, and SageMaker's canary has at most {LARGEST_CANARY} %",
            "begin with fewer",
        )
    if wait > LONGEST_WAIT:
        raise wrong(deployment.file, f"'canary.hold' is {wait} s", "SageMaker holds a step for 1h at most")
    if len(steps) == 1:
        routing: dict[str, Any] = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": wait}
    elif list(steps) == equal and steps[0] >= LEAST_LINEAR and len(steps) > 2:
        size = {"Type": "CAPACITY_PERCENT", "Value": steps[0]}
        routing = {"Type": "LINEAR", "WaitIntervalInSeconds": wait, "LinearStepSize": size}
    else:
        size = {"Type": "CAPACITY_PERCENT", "Value": steps[0]}
        routing = {"Type": "CANARY", "WaitIntervalInSeconds": wait, "CanarySize": size}
    times = server.times(deployment)
    longest = times.start + len(steps) * max(wait, math.ceil(canary.timeout)) + times.drain
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": times.drain,
            "MaximumExecutionTimeoutInSeconds": min(max(longest, ROLLOUT[0]), ROLLOUT[1]),
        },
        "AutoRollbackConfiguration": {
            "Alarms": [{"AlarmName": body["AlarmName"]} for body in alarms(deployment).values()]
        },
    }


def alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Requests of ``aws cloudwatch put-metric-alarm``: what takes a new version back.

    CloudWatch has one series for a variant's name: during blue/green it is of both fleets together.
    """
    return _alarms(deployment, SERVER, "")


def alarms_beside_stable(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Alarms of the variants of ``canary/`` and ``shadow/``, whose names are others."""
    if not deployment.spec.sagemaker.stable:
        return {}
    return {
        f"canary/{path}-{variant}": body
        for variant in (STABLE, CANDIDATE)
        for path, body in _alarms(deployment, variant, f"-{variant}").items()
    }


def _alarms(deployment: Deployment, variant: str, suffix: str) -> dict[str, dict[str, Any]]:
    """The alarms of a variant. ``suffix``: of their names."""
    name, spec = deployment.name, deployment.spec
    dimensions = [{"Name": "EndpointName", "Value": name}, {"Name": "VariantName", "Value": variant}]
    common = {"EvaluationPeriods": 1, "TreatMissingData": "notBreaching"}

    def metric(label: str, counter: str) -> dict[str, Any]:
        source = {"Namespace": "AWS/SageMaker", "MetricName": counter, "Dimensions": dimensions}
        return {
            "Id": label,
            "MetricStat": {"Metric": source, "Period": 60, "Stat": "Sum"},
            "ReturnData": False,
        }

    percentile = spec.objective.percentile
    statistic = {"Statistic": "Maximum"} if percentile == "max" else {"ExtendedStatistic": percentile}
    return {
        "alarm-failures": {
            "AlarmName": f"{name}{suffix}-failures",
            "AlarmDescription": "Share of requests that the container failed.",
            **common,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": spec.canary.rules.failures,
            "Metrics": [
                {
                    "Id": "share",
                    "Expression": "IF(requests > 0, failures / requests, 0)",
                    "Label": "failed share",
                    "ReturnData": True,
                },
                metric("failures", "Invocation5XXErrors"),
                metric("requests", "Invocations"),
            ],
        },
        "alarm-latency": {
            "AlarmName": f"{name}{suffix}-latency",
            "AlarmDescription": f"Latency objective: {spec.objective}.",
            **common,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": spec.objective.ms * 1000,  # ModelLatency is in microseconds
            "Namespace": "AWS/SageMaker",
            "MetricName": "ModelLatency",
            "Dimensions": dimensions,
            "Period": 60,
            **statistic,
        },
    }


def autoscaling(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Requests of ``aws application-autoscaling``. Raises ``TrbError`` USAGE without a measured capacity."""
    scaling = deployment.spec.autoscaling
    if not scaling.most:
        return {}
    if deployment.capacity is None:
        raise wrong(
            deployment.file,
            "SageMaker scales by requests per minute, which 'autoscaling.pending_batches' does not say",
            "give the report.json of 'trb tune' in autoscaling.report",
        )
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/{deployment.name}/variant/{SERVER}",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    return {
        "register-scalable-target": {**target, "MinCapacity": scaling.least, "MaxCapacity": scaling.most},
        "put-scaling-policy": {
            "PolicyName": f"{deployment.name}-requests",
            **target,
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": round(deployment.capacity.per_second * 60 * SAFETY, 1),
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                },
                "ScaleInCooldown": math.ceil(scaling.window),
                "ScaleOutCooldown": 60,
            },
        },
    }
