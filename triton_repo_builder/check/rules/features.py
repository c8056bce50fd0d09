"""Fields that the target release does not know: its parser refuses the whole file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from triton_repo_builder.base import releases
from triton_repo_builder.check.context import ModelContext
from triton_repo_builder.check.finding import Finding
from triton_repo_builder.repository.features import DEVICE_ALLOCATOR, FIELDS
from triton_repo_builder.repository.pbtxt_document import Key

_LABEL = re.compile(r"(?!__)[A-Za-z0-9_]*")
AGENTS = ("checksum",)
"""The repository agents of the stock image."""
OF_AGENTS = "/opt/tritonserver/repoagents/NAME/libtritonrepoagent_NAME.so"


def check(context: ModelContext) -> Iterator[Finding]:
    """Checks of the text, since the server also refuses a field with its default value."""
    for path, (message, feature) in FIELDS.items():
        if feature not in context.release.features and context.written(*path):
            first = releases.first_with(feature)
            yield context.finding(
                "field-too-new",
                f'Message type "inference.{message}" has no field named "{path[-1]}".',
                *path,
                remedy=f"remove it, or serve with release {first} or later (this is {context.release.name})",
            )
    yield from _metrics(context)
    yield from _agents(context)
    allocator = DEVICE_ALLOCATOR in context.config.parameters
    if allocator and "ort_device_allocator_for_initializers" not in context.release.features:
        first = releases.first_with("ort_device_allocator_for_initializers")
        message = f"release {context.release.name} ignores {DEVICE_ALLOCATOR}"
        yield context.finding(
            "parameter-ignored", message, "parameters", remedy=f"it takes effect from {first} on"
        )


def _agents(context: ModelContext) -> Iterator[Finding]:
    """The server uses the first agent without checking that one exists, and loads each by its name."""
    if not context.written("model_repository_agents"):
        return
    agents = context.config.raw.get("model_repository_agents", {}).get("agents", [])
    if not agents:
        message = "model_repository_agents has no agents: the server dies"
        yield context.finding("repository-agents", message, "model_repository_agents")
    for index, agent in enumerate(agents):
        if not agent.get("name"):
            message = "unable to find 'libtritonrepoagent_.so' for repo agent ''"
            yield context.finding("repository-agents", message, "model_repository_agents", "agents", index)
        elif agent["name"] not in AGENTS:
            message = (
                f"unable to find 'libtritonrepoagent_{agent['name']}.so' for repo agent '{agent['name']}': "
                "the stock image has none"
            )
            near = difflib.get_close_matches(agent["name"].lower(), AGENTS, 1, 0.8)
            remedy = (
                f"write {near[0]}" if near else f"serve it with an image that has it, which has {OF_AGENTS}"
            )
            yield context.finding(
                "repository-agents",
                message,
                *("model_repository_agents", "agents", index, "name"),
                remedy=remedy,
                severity="warning",
            )


def _metrics(context: ModelContext) -> Iterator[Finding]:
    """ValidateModelMetrics of core's model_config_utils.cc, of the releases that know the field."""
    for key in context.config.raw.get("metric_tags", {}):
        if not _LABEL.fullmatch(key):
            message = f"the server dies of the metric tag '{key}': no name of a label of Prometheus"
            remedy = "letters, digits and '_', not two of them at the start"
            yield context.finding("metrics", message, "metric_tags", Key(key), remedy=remedy)
    controls = context.config.raw.get("model_metrics", {}).get("metric_control", [])
    for index, control in enumerate(controls if "model_metrics" in context.release.features else []):
        message = ""
        if "metric_identifier" not in control:
            message = "metric control must specify 'metric_identifier'"
        elif not control["metric_identifier"].get("family"):
            message = "metric identifier must specify non-empty 'family'"
        elif "histogram_options" not in control:
            message = "metric control must specify 'histogram_options'"
        elif not control["histogram_options"].get("buckets"):
            message = "histogram options must specify non-empty 'buckets'"
        if message:
            yield context.finding("metrics", message, "model_metrics", "metric_control", index)
