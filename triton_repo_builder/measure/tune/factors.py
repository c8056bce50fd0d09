"""Factors of an endpoint that can be varied, and each model's configuration for a setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_repo_builder.repository.config import ModelConfig

VARIANT, INSTANCES, THREADS, BATCHING, MAX_BATCH = "variant", "instances", "threads", "batching", "max batch"
"""Names of factors; the instances of another model than the main one have its part of the name before."""
OFF = "off"
DEFAULT = "default"
"""Name of the setting that the server started with."""
DELAYS = (0, 200, 1000, 5000)
"""Microseconds to wait for a batch to fill."""
SIZES = (4, 8, 16, 32, 64)
COMPUTING = ("onnxruntime", "tensorrt", "pytorch", "tensorflow", "openvino")
FEWEST_CLIENTS, MOST_CLIENTS = 8, 64
THREAD_PARAMETER = "intra_op_thread_count"

Value = str | int
Setting = Mapping[str, Value]
"""A value for each factor."""
Raw = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One thing to vary."""

    name: str
    values: tuple[Value, ...]
    default: Value


@dataclass(frozen=True, kw_only=True)
class Member:
    """One model that an endpoint runs, with its configuration as the server started with it."""

    name: str
    raw: Raw = field(repr=False)

    @property
    def config(self) -> ModelConfig:
        return ModelConfig(self.raw)

    @property
    def ensemble(self) -> bool:
        return bool(self.config.steps)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An endpoint with its models: the inner ones in the order of the work, one of which is the main one."""

    endpoint: str
    members: tuple[Member, ...]
    main: str

    @property
    def others(self) -> tuple[Member, ...]:
        """Models besides the main one that compute: tokenizer, post-processing."""
        return tuple(each for each in self.members if not each.ensemble and each.name != self.main)

    def member(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    def role(self, member: Member) -> str:
        """Role of a model, ``tokenizer`` of ``bert_tokenizer``: variants use the same roles."""
        return member.name.removeprefix(self.endpoint).strip("_-") or member.name


def subject(endpoint: str, configs: Mapping[str, ModelConfig]) -> Subject:
    """``configs`` are of the endpoint and all it is composed of, the endpoint first."""
    members = tuple(Member(name=name, raw=dict(config.raw)) for name, config in configs.items())
    inner = [member for member in members if not member.ensemble]
    computing = [member for member in inner if member.config.runs_on in COMPUTING]
    main = (computing or inner)[-1 if computing else 0]
    return Subject(endpoint=endpoint, members=members, main=main.name)


def space(subject: Subject, cores: int, variants: tuple[str, ...] = ()) -> tuple[Factor, ...]:
    """Every factor with more than one value."""
    main = subject.member(subject.main)
    factors = []
    if variants:
        factors.append(_factor(VARIANT, (subject.endpoint, *variants), subject.endpoint))
    factors.append(_factor(INSTANCES, _counts(cores), _instances(main)))
    if main.config.runs_on == "onnxruntime":
        threads = [count for count in (1, 2, 4, 8, 16) if count <= cores] or [1]
        factors.append(_factor(THREADS, threads, _threads(main)))
    if main.config.max_batch_size > 1:
        factors.append(_factor(BATCHING, (OFF, *DELAYS), _batching(main)))
        factors.append(_factor(MAX_BATCH, SIZES, main.config.max_batch_size))
    for other in subject.others:
        name = f"{subject.role(other)} {INSTANCES}"
        factors.append(_factor(name, [n for n in (1, 2, 4) if n <= 2 * cores], _instances(other)))
    return tuple(factor for factor in factors if len(factor.values) > 1)


def default(factors: tuple[Factor, ...]) -> dict[str, Value]:
    """The setting that the server started with."""
    return {factor.name: factor.default for factor in factors}


def canonical(setting: Setting) -> dict[str, Value]:
    """Normalize a setting: without batching, the batch size means nothing."""
    return {
        name: value for name, value in setting.items() if name != MAX_BATCH or setting.get(BATCHING) != OFF
    }


def key(setting: Setting) -> str:
    """The canonical setting as text."""
    return json.dumps(canonical(setting), sort_keys=True)


def describe(setting: Setting, base: Setting) -> str:
    """Differences from the default, in words."""
    different = {k: v for k, v in canonical(setting).items() if v != canonical(base).get(k)}
    return ", ".join(f"{name} {shown(name, value)}" for name, value in different.items()) or DEFAULT


def shown(name: str, value: Value) -> str:
    """A value in words: ``on, 200 us``."""
    if name != BATCHING or value == OFF:
        return str(value)
    return f"on, {value} us" if value else "on"


def configs(subject: Subject, setting: Setting, base: Setting) -> dict[str, Raw]:
    """The configuration of each model, steps before their ensembles.

    A field that has the setting's value already is not touched: the user's blocks stay whole. ``base`` is the
    setting with which the server started, of the endpoint that is tuned: a file may leave to the server what
    it does not say. A variant has a setting of its own.
    """
    by_model = {}
    current = {
        **_own(subject.member(subject.main)),
        **(base if base.get(VARIANT, subject.endpoint) == subject.endpoint else {}),
    }
    for member in subject.members:
        raw = dict(member.raw)
        if member.name == subject.main:
            _set_main(raw, setting, current)
        elif not member.ensemble:
            name = f"{subject.role(member)} {INSTANCES}"
            count = setting.get(name)
            if count is not None and count != current.get(name, _instances(member)):
                _set_instances(raw, int(count))
        _set_size(raw, member, subject, setting, current)
        by_model[member.name] = raw
    return dict(reversed(by_model.items()))


def clients(setting: Setting) -> int:
    """Number of clients that keep all instances busy with full batches, as far as possible."""
    size = int(setting.get(MAX_BATCH, 1)) if setting.get(BATCHING, OFF) != OFF else 1
    return max(FEWEST_CLIENTS, min(MOST_CLIENTS, 2 * int(setting.get(INSTANCES, 1)) * size))


def _set_main(raw: Raw, setting: Setting, current: Setting) -> None:
    if INSTANCES in setting and setting[INSTANCES] != current[INSTANCES]:
        _set_instances(raw, int(setting[INSTANCES]))
    if THREADS in setting and setting[THREADS] != current[THREADS]:
        text = {"string_value": str(setting[THREADS])}
        raw["parameters"] = {**raw.get("parameters", {}), THREAD_PARAMETER: text}
    if BATCHING not in setting or _batch(setting) == _batch(current):
        return
    block = dict(raw.pop("dynamic_batching", None) or {})
    if setting[BATCHING] != OFF:
        # The server fills in its largest batch, which a smaller one contradicts.
        block.pop("preferred_batch_size", None)
        raw["dynamic_batching"] = {**block, "max_queue_delay_microseconds": int(setting[BATCHING])}


def _own(main: Member) -> dict[str, Value]:
    """The current setting of a main model."""
    return {
        INSTANCES: _instances(main),
        THREADS: _threads(main),
        BATCHING: _batching(main),
        MAX_BATCH: main.config.max_batch_size,
    }


def _threads(main: Member) -> int:
    text = str(main.config.parameters.get(THREAD_PARAMETER) or 0)
    return int(text) if text.isdecimal() else 0


def _batch(setting: Setting) -> dict[str, Value]:
    return {k: v for k, v in canonical(setting).items() if k in (BATCHING, MAX_BATCH)}


def _set_size(raw: Raw, member: Member, subject: Subject, setting: Setting, current: Setting) -> None:
    """Set the main model's largest batch, and lower its ensembles': Triton refuses a larger one there."""
    size = canonical(setting).get(MAX_BATCH)
    if size is None or size == current[MAX_BATCH]:
        return
    if member.name == subject.main or (member.ensemble and member.config.max_batch_size > int(size)):
        raw["max_batch_size"] = int(size)


def _set_instances(raw: Raw, count: int) -> None:
    groups = [dict(group) for group in raw.get("instance_group") or ()] or [{}]
    for group in groups:
        group.pop("name", None)
        group["count"] = count
    raw["instance_group"] = groups


def _instances(member: Member) -> int:
    return max((group.count for group in member.config.instance_groups), default=0) or 1


def _batching(member: Member) -> Value:
    block = member.config.dynamic_batching
    return OFF if block is None else int(block.get("max_queue_delay_microseconds") or 0)


def _counts(cores: int) -> tuple[int, ...]:
    few = range(1, 5)
    many = [count for count in (8, 16, 32) if count <= 2 * cores]
    return (*few, *many)


def _factor(name: str, values: Any, initial: Value) -> Factor:
    listed = [*values] if initial in values else [*values, initial]
    return Factor(name=name, values=tuple(listed), default=initial)
