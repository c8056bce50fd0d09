"""Broken repositories, one for each thread of a forum, rebuilt small; and healthy ones.

``THREADS`` has the question that was asked, the cause that must be named, and how the files are laid out.
All models have names of their own, so that one server can load the repaired copies together.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.support import tiny as tiny_text
from tests.support import tiny_images
from tests.support import tiny_onnx as tiny
from tests.support.tiny_onnx import FLOAT, INT64, node, tensor

MIB = 1 << 20
CPU = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
ROWS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            y = x.sum(axis=tuple(range(1, x.ndim))).reshape(-1, 1).astype(np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""
"""Sum of each row, request by request."""
PAIR = ROWS.replace(
    "y = x.sum", 'x = x * pb_utils.get_input_tensor_by_name(request, "M").as_numpy()\n            y = x.sum'
)
SLOW = ROWS.replace(
    "        answers = []", "        import time\n        time.sleep(0.02)\n        answers = []"
)
LATE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.weights = None
        self.runs = 0

    def load(self):
        import time
        time.sleep(1)
        return np.ones(4, np.float32)

    def execute(self, requests):
        if self.weights is None:
            self.weights = self.load()
        self.runs += len(requests)
        rows = [np.full((1, 1), self.runs, np.float32) for _ in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", row)]) for row in rows]
"""
"""Loads at the first request, and answers how many requests it has had."""
BIG = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + np.float32(1))]))
        return answers
"""


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A thread, its question, and its cause."""

    question: str
    code: str
    model: str
    lay: Callable[[Path], None]
    log: str = ""
    """Of the server, as the thread quotes it in its own words; here with the fixture's names."""
    arguments: tuple[str, ...] = ()
    left: str = ""
    """Cause that no edit of files removes: it is stated as left."""
    seen: str = "ready"
    """What shows that the repaired copy works: ``ready``, ``merges``, ``warm``, ``rows`` or ``files``."""
    shapes: tuple[tuple[int, ...], ...] = ((1, 4),)
    """Shapes of X in the requests that are sent."""


def python(root: Path, name: str, code: str, config: str) -> None:
    """A Python model."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(code)
    (root / name / "config.pbtxt").write_text(f'backend: "python"\n{config}')


def graph(root: Path, name: str, config: str, content: bytes) -> None:
    """An ONNX model."""
    tiny.write(root, name, f'backend: "onnxruntime"\n{config}{CPU}', content)


def x(dims: str, dtype: str = "TYPE_FP32", name: str = "X", more: str = "") -> str:
    return f'input [ {{ name: "{name}" data_type: {dtype} dims: [ {dims} ]{more} }} ]\n'


def y(dims: str, dtype: str = "TYPE_FP32", name: str = "Y", more: str = "") -> str:
    return f'output [ {{ name: "{name}" data_type: {dtype} dims: [ {dims} ]{more} }} ]\n'


def doubled(shape: list[int | str], out: list[int | str] | None = None, dtype: int = FLOAT) -> bytes:
    """X → Y = X + X."""
    return tiny.model(
        [node("Add", ["X", "X"], ["Y"])], [tensor("X", shape, dtype)], [tensor("Y", out or shape, dtype)]
    )


def flattened() -> bytes:
    """X [4, 3] → Y [4, 3] through a Reshape to the fixed batch: no other batch runs."""
    nodes = [node("Reshape", ["X", "flat"], ["F"]), node("Reshape", ["F", "whole"], ["Y"])]
    values = [tiny.constant("flat", INT64, [1], [12]), tiny.constant("whole", INT64, [2], [4, 3])]
    return tiny.model(nodes, [tensor("X", [4, 3])], [tensor("Y", [4, 3])], initializers=values)


def detections() -> bytes:
    """X [batch, 4] → Y [found, 2]: the places of large numbers, not one row for each row."""
    nodes = [node("NonZero", ["X"], ["P"]), node("Transpose", ["P"], ["Y"], perm=[1, 0])]
    return tiny.model(nodes, [tensor("X", ["batch", 4])], [tensor("Y", ["found", 2], INT64)])


def running_sum() -> bytes:
    """X [steps, 4] → Y, summed along the first axis, which is time and not the batch."""
    nodes = [node("CumSum", ["X", "axis"], ["Y"])]
    axis = [tiny.constant("axis", INT64, [], [0])]
    return tiny.model(nodes, [tensor("X", ["steps", 4])], [tensor("Y", ["steps", 4])], initializers=axis)


def tokens() -> bytes:
    """input_ids and attention_mask [batch, sequence] of INT64 → logits [batch, 1]."""
    nodes = [
        node("Mul", ["input_ids", "attention_mask"], ["masked"]),
        node("ReduceSum", ["masked", "one"], ["sums"], keepdims=1),
        node("Cast", ["sums"], ["logits"], to=FLOAT),
    ]
    shape: list[int | str] = ["batch", "sequence"]
    return tiny.model(
        nodes,
        [tensor("input_ids", shape, INT64), tensor("attention_mask", shape, INT64)],
        [tensor("logits", ["batch", 1])],
        initializers=[tiny.constant("one", INT64, [1], [1])],
    )


def forest() -> bytes:
    """A classifier as skl2onnx writes it: X [batch, 2] → label, and a ZipMap of probabilities."""
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["X"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            classlabels_ints=[0, 1],
            coefficients=[-1.0, 0.5, 1.0, -0.5],
            intercepts=[0.1, -0.1],
            post_transform="SOFTMAX",
            multi_class=0,
        ),
        helper.make_node(
            "ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        ),
    ]
    value = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    maps = helper.make_value_info("probabilities", helper.make_sequence_type_proto(value))
    inner = helper.make_graph(
        nodes, "forest", [tensor("X", ["batch", 2])], [tensor("label", ["batch"], INT64), maps]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(inner, opset_imports=opsets)
    proto.ir_version = 8
    return bytes(proto.SerializeToString())


def newer() -> bytes:
    """A graph with an IR version that 24.10 does not read."""
    proto = onnx.load_from_string(doubled(["batch", 4]))
    proto.ir_version = 11
    return bytes(proto.SerializeToString())


def ensemble(root: Path, name: str, steps: list[str], more: str = "", rows: int = 8, dims: str = "4") -> None:
    """X → each step in turn → Y."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / ".gitkeep").touch()
    names = ["X", *(f"T{number}" for number in range(1, len(steps))), "Y"]
    maps = ", ".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "X" value: "{names[n]}" }} '
        f'output_map {{ key: "Y" value: "{names[n + 1]}" }} }}'
        for n, step in enumerate(steps)
    )
    (root / name / "config.pbtxt").write_text(
        f'platform: "ensemble"\nmax_batch_size: {rows}\n{x(dims)}{y(dims)}{more}'
        f"ensemble_scheduling {{ step [ {maps} ] }}\n"
    )


BATCHED = "dynamic_batching { }\n"


def _t270(root: Path) -> None:
    python(root, "t270_rnn", SLOW, f"max_batch_size: 16\n{x('-1')}{y('1')}{BATCHED}{CPU}")


def _t3395(root: Path) -> None:
    inputs = x("-1", more=" allow_ragged_batch: true") + x("-1", name="M")
    code = SLOW.replace(
        "y = x.sum",
        'x = x * pb_utils.get_input_tensor_by_name(request, "M").as_numpy()\n            y = x.sum',
    )
    python(root, "t3395_two", code, f"max_batch_size: 16\n{inputs}{y('1')}{BATCHED}{CPU}")


def _t8156(root: Path) -> None:
    delay = "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    python(root, "t8156_audio", SLOW, f"max_batch_size: 8\n{x('-1')}{y('1')}{delay}{CPU}")


def _t5721(root: Path) -> None:
    names = [("input_ids", "TYPE_INT64"), ("attention_mask", "TYPE_INT64")]
    inputs = "".join(x("-1, -1", dtype, name) for name, dtype in names)
    graph(root, "t5721_bert", f"max_batch_size: 0\n{inputs}{y('-1, 1', name='logits')}{BATCHED}", tokens())


def _t5215(root: Path) -> None:
    graph(root, "t5215_idle", f"max_batch_size: 0\n{x('-1, 4')}{y('-1, 4')}{BATCHED}", doubled(["batch", 4]))


def _t3116(root: Path) -> None:
    sizes = "dynamic_batching { preferred_batch_size: [ 1, 2 ] max_queue_delay_microseconds: 1000 }\n"
    python(root, "t3116_preferred", SLOW, f"max_batch_size: 16\n{x('4')}{y('1')}{sizes}{CPU}")


def _t3741(root: Path) -> None:
    ragged = " allow_ragged_batch: true"
    inputs = "".join(x("-1", "TYPE_INT64", name, ragged) for name in ("input_ids", "attention_mask"))
    lengths = (
        'batch_input [ { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "index" data_type: TYPE_FP32 '
        'source_input: "input_ids" } ]\n'
    )
    graph(
        root,
        "t3741_ragged",
        f"max_batch_size: 8\n{inputs}{lengths}{y('1', name='logits')}{BATCHED}",
        tokens(),
    )


def _o111(root: Path) -> None:
    graph(
        root, "o111_segment", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", doubled(["batch", 4], [1, 4])
    )


def _o220(root: Path) -> None:
    content = doubled([1, 4])
    graph(root, "o220_text", f"max_batch_size: 256\n{x('4')}{y('-1, 4')}{BATCHED}", content)


def _o109(root: Path) -> None:
    graph(root, "o109_yolo", f"max_batch_size: 128\n{x('4')}{y('2', 'TYPE_INT64')}{BATCHED}", detections())


def _t7462(root: Path) -> None:
    nodes = [node("Add", ["X", "X"], ["Y"]), node("Mul", ["X", "X"], ["Z"])]
    content = tiny.model(nodes, [tensor("X", ["batch", 4])], [tensor("Y", ["batch", 4]), tensor("Z", [1, 4])])
    outputs = y("4") + y("4", name="Z")
    graph(root, "t7462_crnn", f"max_batch_size: 4\n{x('4')}{outputs}{BATCHED}", content)


def _t2387(root: Path) -> None:
    graph(root, "t2387_arcface", f"max_batch_size: 4\n{x('3')}{y('3')}", flattened())


def _t2192(root: Path) -> None:
    graph(root, "t2192_dims", f"max_batch_size: 8\n{x('-1, 4')}{y('-1, 4')}{BATCHED}", doubled(["batch", 4]))


def _t8001(root: Path) -> None:
    graph(root, "t8001_ir", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", newer())


def _t7307(root: Path) -> None:
    io = x("4", "TYPE_INT32") + y("4", "TYPE_INT32")
    graph(root, "t7307_int32", f"max_batch_size: 8\n{io}{BATCHED}", doubled(["batch", 4], dtype=INT64))


def _td154(root: Path) -> None:
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = "".join(x("-1", "TYPE_INT64", name) for name in names)
    graph(root, "td154_types", f"max_batch_size: 8\n{inputs}{y('1', name='logits')}{BATCHED}", tokens())


def _t4767(root: Path) -> None:
    graph(
        root,
        "t4767_name",
        f"max_batch_size: 8\n{x('4')}{y('4', name='model_output')}{BATCHED}",
        doubled(["batch", 4]),
    )


def _t6326(root: Path) -> None:
    sample = (
        'model_warmup [ { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] '
        "zero_data: true } } } ]\n"
    )
    code = LATE.replace("if self.weights is None:\n            self.weights = self.load()", "pass")
    python(
        root,
        "t6326_step",
        code.replace("(1, 1)", "(1, 4)"),
        f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}{CPU}",
    )
    ensemble(root, "t6326_pipeline", ["t6326_step"], sample)


def _t7161(root: Path) -> None:
    python(root, "t7161_late", LATE, f"max_batch_size: 8\n{x('4')}{y('1')}{BATCHED}{CPU}")


def _t3701(root: Path) -> None:
    fast = (
        'optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" '
        'parameters { key: "precision_mode" value: "FP32" } } ] } }\n'
    )
    graph(root, "t3701_engine", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}{fast}", doubled(["batch", 4]))


def _t7541(root: Path) -> None:
    fast = (
        'optimization { execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt" '
        'parameters { key: "precision_mode" value: "FP16" } } ] } }\n'
    )
    graph(root, "t7541_half", f"max_batch_size: 64\n{x('4')}{y('4')}{BATCHED}{fast}", doubled(["batch", 4]))


def _t6969(root: Path) -> None:
    graph(root, "t6969_time", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", running_sum())


def _t3798(root: Path) -> None:
    outputs = y("1", "TYPE_INT64", "label", " reshape { shape: [ ] }") + y("2", name="probabilities")
    graph(root, "t3798_iris", f"max_batch_size: 8\n{x('2')}{outputs}", forest())


def _t6195(root: Path) -> None:
    python(root, "t6195_tokenize", BIG, f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}")


def _t4869(root: Path) -> None:
    for number in (1, 2):
        two = "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
        python(root, f"t4869_model{number}", BIG, f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}{two}")


def _t5681(root: Path) -> None:
    python(root, "t5681_video", BIG, f"max_batch_size: 16\n{x('3, 512, 512')}{y('3, 512, 512')}{CPU}")


def _t3912(root: Path) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 8\n{x("4")}{y("4")}{BATCHED}'
    tiny.write(
        root,
        "t3912_gpu",
        f"{config}instance_group [ {{ count: 1 kind: KIND_GPU }} ]\n",
        doubled(["batch", 4]),
    )


def _t5317(root: Path) -> None:
    code = SLOW.replace("y = x.sum(axis=tuple(range(1, x.ndim))).reshape(-1, 1).astype(np.float32)", "y = x")
    python(root, "t5317_pre", code, f"max_batch_size: 8\n{x('4')}{y('4')}{CPU}")
    graph(root, "t5317_net", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", doubled(["batch", 4]))
    ensemble(root, "t5317_all", ["t5317_pre", "t5317_net"])


def _region(name: str, number: int) -> str:
    return (
        f"E0816 01:21:41.000001 1 model_lifecycle.cc:597] failed to load '{name}' version 1: Internal: "
        "Unable to "
        f"initialize shared memory key 'triton_python_backend_shm_region_{number}' to requested size "
        "(67108864 bytes). "
        "If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region "
        "size. Each "
        "Python backend model instance requires at least 64MBs of shared memory. Error: No space left on "
        "device\n"
    )


GROWTH = (
    "E0421 10:00:00.000001 1 infer_handler.cc:1] Failed to increase the shared memory pool size for key "
    "'triton_python_backend_shm_region_2' to 100663296 bytes. If you are running Triton inside docker, use "
    "'--shm-size' "
    "flag to control the shared memory region size. Error: No space left on device\n"
)
VARIED = ((1, 3), (1, 5), (1, 8), (1, 13))
THREADS: dict[str, Thread] = {
    "server#270": Thread(
        question="batching",
        code="batching-lengths",
        model="t270_rnn",
        lay=_t270,
        seen="merges",
        shapes=VARIED,
    ),
    "server#3395": Thread(
        question="batching",
        code="batching-lengths",
        model="t3395_two",
        lay=_t3395,
        seen="merges",
        shapes=VARIED,
    ),
    "server#8156": Thread(
        question="batching",
        code="batching-lengths",
        model="t8156_audio",
        lay=_t8156,
        seen="merges",
        shapes=VARIED,
    ),
    "server#5721": Thread(
        question="batching",
        code="batching-no-rows",
        model="t5721_bert",
        left="batching-lengths",
        lay=_t5721,
        seen="rows",
        shapes=((2, 5),),
    ),
    "server#5215": Thread(
        question="batching",
        code="batching-no-rows",
        model="t5215_idle",
        lay=_t5215,
        seen="rows",
        shapes=((2, 4),),
    ),
    "server#3116": Thread(
        question="batching", code="batching-preferred", model="t3116_preferred", lay=_t3116, seen="merges"
    ),
    "server#3741": Thread(
        question="batching",
        code="onnx-ragged",
        model="t3741_ragged",
        left="batching-lengths",
        lay=_t3741,
        seen="rows",
        shapes=((2, 5),),
    ),
    "onnxruntime_backend#111": Thread(
        question="batching",
        code="onnx-batch-axis",
        model="o111_segment",
        lay=_o111,
        seen="rows",
        shapes=((3, 4),),
    ),
    "onnxruntime_backend#220": Thread(
        question="ready", code="onnx-batch-axis", model="o220_text", lay=_o220, seen="rows", shapes=((3, 4),)
    ),
    "onnxruntime_backend#109": Thread(
        question="answers", code="answers-rows-mix", model="o109_yolo", lay=_o109
    ),
    "server#7462": Thread(
        question="ready",
        code="onnx-batch-axis",
        model="t7462_crnn",
        lay=_t7462,
        seen="rows",
        shapes=((3, 4),),
    ),
    "server#2387": Thread(
        question="batching",
        code="onnx-batch-axis",
        model="t2387_arcface",
        left="batching-fixed-graph",
        lay=_t2387,
        shapes=((4, 3),),
    ),
    "server#2192": Thread(
        question="ready", code="onnx-shape", model="t2192_dims", lay=_t2192, seen="rows", shapes=((3, 4),)
    ),
    "server#8001": Thread(
        question="ready", code="onnx-ir", model="t8001_ir", lay=_t8001, seen="rows", shapes=((3, 4),)
    ),
    "server#7307": Thread(
        question="ready", code="onnx-type", model="t7307_int32", lay=_t7307, seen="rows", shapes=((3, 4),)
    ),
    "transformer-deploy#154": Thread(
        question="ready",
        code="onnx-input-count",
        model="td154_types",
        lay=_td154,
        seen="rows",
        shapes=((2, 5),),
    ),
    "server#4767": Thread(
        question="ready", code="onnx-name", model="t4767_name", lay=_t4767, seen="rows", shapes=((3, 4),)
    ),
    "server#3798": Thread(
        question="ready", code="onnx-kind", model="t3798_iris", lay=_t3798, seen="rows", shapes=((3, 2),)
    ),
    "server#6326": Thread(
        question="first-request", code="ensemble-forbidden", model="t6326_pipeline", lay=_t6326, seen="warm"
    ),
    "server#7161": Thread(
        question="first-request", code="first-late-load", model="t7161_late", lay=_t7161, seen="warm"
    ),
    "server#3701": Thread(question="first-request", code="first-engine", model="t3701_engine", lay=_t3701),
    "server#6195": Thread(
        question="shared-memory",
        code="shared-memory-start",
        model="t6195_tokenize",
        lay=_t6195,
        log=_region("t6195_tokenize", 3),
        arguments=("--gpus", "2"),
    ),
    "server#4869": Thread(
        question="shared-memory",
        code="shared-memory-start",
        model="t4869_model2",
        lay=_t4869,
        log=_region("t4869_model2", 2),
    ),
    "server#5681": Thread(
        question="shared-memory",
        code="shared-memory-growth",
        model="t5681_video",
        lay=_t5681,
        log=GROWTH,
        shapes=((1, 3, 512, 512),),
    ),
    "server#3912": Thread(
        question="gpu", code="instance-gpus", model="t3912_gpu", lay=_t3912, arguments=("--gpus", "0")
    ),
    "server#5317": Thread(
        question="gpu", code="gpu-waits-for-step", model="t5317_pre", lay=_t5317, seen="merges"
    ),
    "server#6969": Thread(
        question="answers",
        code="answers-rows-mix",
        model="t6969_time",
        lay=_t6969,
        seen="rows",
        shapes=((1, 4),),
    ),
    "server#7541": Thread(question="answers", code="answers-precision", model="t7541_half", lay=_t7541),
}


# --- healthy repositories

DECOUPLED = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for part in range(2):
                tensor = pb_utils.Tensor("Y", np.array([part], np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def built(root: Path) -> None:
    """A text classifier that ``trb build`` wrote."""
    tiny_text.put(tiny_text.classifier(root.parent / "source"), root, name="healthy_text", batching="on")


def image(root: Path) -> None:
    """An image classifier that ``trb build`` wrote."""
    source = tiny_images.folder(root.parent / "pictures")
    tiny_text.put(source, root, name="healthy_image", batching="on")


def plain(root: Path) -> None:
    """A graph and a configuration that somebody wrote by hand."""
    io = x("4", name="A") + x("4", name="B") + y("4", name="S") + y("4", name="D")
    graph(root, "healthy_plain", f"max_batch_size: 8\n{io}{BATCHED}", tiny.add_subtract())


def decoupled(root: Path) -> None:
    """A model that answers a request several times."""
    policy = "model_transaction_policy { decoupled: true }\n"
    python(root, "healthy_stream", DECOUPLED, f"max_batch_size: 0\n{x('1')}{y('1')}{policy}{CPU}")


def steps(root: Path) -> None:
    """An ensemble of two steps that both batch."""
    python(root, "healthy_first", BIG, f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}{CPU}")
    graph(root, "healthy_second", f"max_batch_size: 8\n{x('4')}{y('4')}{BATCHED}", doubled(["batch", 4]))
    ensemble(root, "healthy_chain", ["healthy_first", "healthy_second"])


HEALTHY = {"built": built, "image": image, "plain": plain, "decoupled": decoupled, "ensemble": steps}


def lay_page(folder: Path) -> None:
    """The repositories and the log of docs/doctor.md."""
    for repository, thread, name in (
        ("model_repository", "server#8156", "audio"),
        ("model_repository", "server#5215", "scores"),
        ("other", "server#4869", "tokenizer"),
    ):
        THREADS[thread].lay(folder / repository)
        (folder / repository / THREADS[thread].model).rename(folder / repository / name)
    shutil.rmtree(folder / "other" / "t4869_model1")
    (folder / "server.log").write_text(_region("tokenizer", 2))
