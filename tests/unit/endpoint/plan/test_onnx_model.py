from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from triton_repo_builder.base import releases
from triton_repo_builder.base.dtypes import (
    FP32,
    INT32,
    INT64,
    STRING,
)
from triton_repo_builder.base.hardware import Hardware
from triton_repo_builder.endpoint.plan import defaults, onnx_model
from triton_repo_builder.endpoint.plan import tensor as plan_tensor
from triton_repo_builder.endpoint.plan.defaults import ModelFacts
from triton_repo_builder.endpoint.plan.endpoint import PlanRequest
from triton_repo_builder.endpoint.plan.model import DynamicBatching, TensorPlan, WarmupInput, between
from triton_repo_builder.endpoint.render.config import config
from triton_repo_builder.endpoint.tasks import tensor
from triton_repo_builder.endpoint.tasks.task import (
    Encoding,
    Kind,
    Postprocess,
    TaskPlan,
    TextInput,
)
from triton_repo_builder.model.graph.parts import Head
from triton_repo_builder.model.read.options import BuildOptions
from triton_repo_builder.model.read.signature import ModelSignature, TensorSpec, batchability
from triton_repo_builder.model.read.source import Source

OPTIONS = BuildOptions(model=Path("m.onnx"))


def spec(name: str, *shape: int | str, dtype: Any = FP32) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def signature(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> ModelSignature:
    return ModelSignature(
        inputs=inputs,
        outputs=outputs,
        optional_inputs=(),
        ir_version=8,
        opsets=(("ai.onnx", 17),),
        producer="",
        operators=frozenset(),
        external=(),
        bytes=0,
        batch=batchability(inputs, outputs),
    )


TOKENS = signature(
    (spec("input_ids", "B", "T", dtype=INT32), spec("attention_mask", "B", "T", dtype=INT64)),
    (spec("last_hidden_state", "B", "T", 8),),
)
TASK = TaskPlan(
    name="embedding",
    head=Head(text="", bind={"hidden": "last_hidden_state", "attention_mask": "attention_mask"}),
    outputs=(TensorPlan(name="embedding", data_type="TYPE_FP32", dims=(8,), label_filename="labels.txt"),),
    reference=lambda outputs, mask: dict(outputs),
)


def text(
    options: BuildOptions = OPTIONS,
    read: ModelSignature = TOKENS,
    *,
    batching: bool = True,
    sample: tuple[WarmupInput, ...] = (),
    task: TaskPlan = TASK,
    **settings: Any,
) -> Any:
    values: dict[str, Any] = {"pad_id": 1, "max_length": 24, "pad_to": 0, "ragged": False, "types": False}
    made = onnx_model.TokenSettings(**(values | settings))
    texts = (WarmupInput(name="TEXT", data_type="TYPE_STRING", dims=(1,)),) if options.warmup else ()
    warmup = onnx_model.FirstRequests(model=sample, tokenizer=texts)
    return onnx_model.text(request(read, task, options), made, chosen(options), warmup, batching=batching)


def request(read: ModelSignature, task: TaskPlan, options: BuildOptions) -> PlanRequest:
    """A request of which only the signature is read from its source."""
    source = cast(Source, SimpleNamespace(signature=read))
    machine = Hardware(cores=2, gpus=())
    return PlanRequest(
        name="bert", source=source, task=task, options=options, release=releases.default(), machine=machine
    )


def chosen(options: BuildOptions) -> defaults.ServingSettings:
    facts = ModelFacts(kind=Kind.TEXT, bytes=1 << 20)
    return defaults.decide(options, Hardware(cores=2, gpus=()), facts)


def test_a_text_endpoint_is_an_ensemble_of_two() -> None:
    plan = text(replace(OPTIONS, instances=3, threads=2, tokenizer_instances=4, version=2))
    ensemble, tokenizer, model = plan.models
    assert [entry.name for entry in plan.models] == ["bert", "bert_tokenizer", "bert_model"]
    assert (plan.endpoint, plan.version) == (ensemble, 2)
    assert {entry.max_batch_size for entry in plan.models} == {32}
    assert [step.model_name for step in ensemble.step] == ["bert_tokenizer", "bert_model"]
    assert ensemble.instance_group is ensemble.dynamic_batching is None
    assert (ensemble.backend, ensemble.warmup, ensemble.parameters) == ("", (), ())
    assert dict(tokenizer.parameters) == {"max_length": "24", "pad_id": "1", "pad_to": "0"}
    assert (tokenizer.instance_group.count, tokenizer.instance_group.kind) == (4, "KIND_CPU")
    assert (model.instance_group.count, dict(model.parameters)) == (3, {"intra_op_thread_count": "2"})
    assert tokenizer.output == model.input
    assert [entry.data_type for entry in model.input] == ["TYPE_INT32", "TYPE_INT64"]
    # labels.txt lies in the model's directory, not in the ensemble's
    assert [entry.label_filename for entry in (*ensemble.output, *model.output)] == ["", "labels.txt"]


def test_every_tensor_of_the_steps_is_connected() -> None:
    first, second = text().endpoint.step
    assert set(dict(first.output_map).values()) == set(dict(second.input_map).values())
    assert dict(second.output_map) == {"embedding": "embedding"}


def test_a_tensor_between_the_steps_gives_way_to_the_endpoints_own() -> None:
    assert between("input_ids", ("TEXT", "scores")) == "input_ids"
    assert between("scores", ("scores", "trb_scores")) == "trb_trb_scores"


def test_batching_off_still_takes_batches_but_joins_none() -> None:
    plan = text(replace(OPTIONS, batching="off"))
    assert [entry.dynamic_batching for entry in plan.models] == [None, None, None]
    assert plan.endpoint.max_batch_size == 32
    for entry in plan.models[1:]:
        assert "set by --batching off; no model of the endpoint joins requests" in config(entry)
    assert "requests are not joined" in dict(plan.models[1].reasons)["instances"]


def test_preferences_reach_the_model_only() -> None:
    plan = text(replace(OPTIONS, preferred_batch_size=(4, 8), max_queue_delay=200, max_batch_size=8))
    wanted = DynamicBatching(preferred_batch_size=(4, 8), max_queue_delay_microseconds=200)
    assert [entry.dynamic_batching for entry in plan.models] == [None, DynamicBatching(), wanted]
    assert {entry.max_batch_size for entry in plan.models} == {8}


def test_without_a_batch_axis_every_axis_is_written() -> None:
    plan = text(batching=False, max_length=None)
    assert {entry.max_batch_size for entry in plan.models} == {0}
    assert all(entry.dynamic_batching is None for entry in plan.models)
    assert [entry.dims for entry in plan.models[2].input] == [(1, -1), (1, -1)]
    assert [entry.dims for entry in plan.models[2].output] == [(-1, 8)]
    assert dict(plan.models[1].parameters)["max_length"] == "0"


def test_a_mask_that_only_the_head_needs_is_an_input() -> None:
    read = signature((spec("input_ids", "B", "T", dtype=INT32),), TOKENS.outputs)
    assert [entry.name for entry in text(read=read).models[2].input] == ["input_ids", "attention_mask"]
    bound = replace(TASK, head=Head(text="", bind={"hidden": "h"}))
    assert onnx_model.model_inputs(read, bound) == read.inputs


def test_ragged_rows_are_one_small_tensor_and_their_lengths() -> None:
    ensemble, tokenizer, model = text(ragged=True).models
    assert [(entry.name, entry.data_type, entry.dims) for entry in tokenizer.output] == [
        ("trb_tokens", "TYPE_INT32", (-1,))
    ]
    assert [(entry.name, entry.allow_ragged_batch) for entry in model.input] == [("trb_tokens", True)]
    (lengths,) = model.batch_input
    assert (lengths.kind, lengths.target_name, lengths.source_input) == (
        "BATCH_ITEM_SHAPE",
        "trb_lengths",
        "trb_tokens",
    )
    assert set(dict(model.parameters)) == {"intra_op_thread_count"}
    assert ensemble.step[1].input_map == (("trb_tokens", "trb_tokens"),)


def test_token_types_that_matter_are_a_second_ragged_tensor() -> None:
    model = text(ragged=True, types=True).models[2]
    assert [entry.name for entry in model.input] == ["trb_tokens", "trb_types"]
    assert all(entry.allow_ragged_batch for entry in model.input)


def test_fixed_rows_have_fixed_dims() -> None:
    _, tokenizer, model = text(pad_to=16).models
    assert {entry.dims for entry in (*tokenizer.output, *model.input)} == {(16,)}
    assert model.batch_input == ()


SPANNED = replace(
    TASK,
    outputs=(TensorPlan(name="trb_scores", data_type="TYPE_FP32", dims=(-1, 3)),),
    texts=(
        TextInput(name="TEXT"),
        TextInput(name="LABELS", several=True),
        TextInput(name="X", optional=True),
    ),
    encoding=Encoding(truncation="only_second", offsets="words", parameters=(("cls_id", "2"),)),
    post=Postprocess(
        module="a.py",
        inputs=("LABELS", "trb_spans", "trb_tokens", "trb_scores"),
        outputs=(TensorPlan(name="answer", data_type="TYPE_STRING", dims=(-1,)),),
        parameters=(("k", "v"),),
    ),
)


def test_post_processing_is_a_third_step_before_the_network_in_the_plan() -> None:
    plan = text(task=SPANNED, ragged=True, stride=128)
    ensemble, tokenizer, post, model = plan.models
    assert (plan.network, post.name) == (model, "bert_postprocess")
    assert [step.model_name for step in ensemble.step] == ["bert_tokenizer", "bert_model", "bert_postprocess"]
    assert [(entry.name, entry.dims, entry.optional) for entry in ensemble.input] == [
        ("TEXT", (1,), False),
        ("LABELS", (-1,), False),
        ("X", (1,), True),
    ]
    assert [entry.name for entry in ensemble.output] == ["answer"]
    assert [entry.name for entry in tokenizer.output] == ["trb_tokens", "trb_spans"]
    assert tokenizer.output[1].dims == (-1, 5)
    assert [entry.name for entry in model.input] == ["trb_tokens"]
    # Whatever has an open axis is ragged, so that requests of any size join.
    assert [(entry.name, entry.allow_ragged_batch) for entry in tokenizer.input] == [
        ("TEXT", False),
        ("LABELS", True),
        ("X", False),
    ]
    assert [(entry.name, entry.allow_ragged_batch) for entry in post.input] == [
        ("LABELS", True),
        ("trb_spans", True),
        ("trb_tokens", True),
        ("trb_scores", True),
    ]
    assert (post.dynamic_batching, post.parameters) == (DynamicBatching(), (("k", "v"),))
    assert dict(tokenizer.parameters) == {
        "max_length": "24",
        "pad_id": "1",
        "pad_to": "0",
        "truncation": "only_second",
        "stride": "128",
        "spans": "words",
        "cls_id": "2",
    }


def test_post_processing_reads_padded_ids_where_no_tokens_travel() -> None:
    ensemble, _, post, _ = text(task=SPANNED).models
    assert dict(ensemble.step[2].input_map)["trb_tokens"] == "input_ids"
    assert {entry.name: entry.data_type for entry in post.input}["trb_tokens"] == "TYPE_INT32"


def test_warm_up_can_be_left_out() -> None:
    assert all(not entry.warmup for entry in text(replace(OPTIONS, warmup=False)).models)
    assert [
        bool(entry.warmup) for entry in text(sample=(WarmupInput(name="a", data_type="T", dims=(1,)),)).models
    ] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("shape", "batching", "dims", "reshape", "warm"),
    [
        (("B", 3, "H"), True, (3, -1), None, (3, 1)),
        (("B",), True, (1,), (), (1,)),
        (("B", 3), False, (-1, 3), None, (1, 3)),
        ((2, 3), False, (2, 3), None, (2, 3)),
        ((), False, (1,), None, (1,)),
    ],
)
def test_dims(shape: Any, batching: bool, dims: Any, reshape: Any, warm: Any) -> None:
    read = signature((spec("X", *shape),), (spec("Y", *shape),))
    task = tensor.plan(None, OPTIONS)  # type: ignore[arg-type]
    model = plan_tensor.models(request(read, task, OPTIONS), chosen(OPTIONS), batching=batching).endpoint
    assert (model.input[0].dims, model.input[0].reshape) == (dims, reshape)
    assert (model.output[0].dims, model.output[0].reshape) == (dims, reshape)
    assert model.warmup[0].dims == warm
    assert (model.max_batch_size, model.dynamic_batching) == (
        (32, DynamicBatching()) if batching else (0, None)
    )


def test_an_output_of_unknown_shape_is_one_number() -> None:
    unknown = TensorSpec(name="Y", dtype=STRING, shape=None)
    assert tensor.tensors((unknown,), batching=False) == (
        TensorPlan(name="Y", data_type="TYPE_STRING", dims=(1,)),
    )
