"""The onnxruntime backend's modules by themselves: settings, providers, batching of requests, its errors."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import triton_python_backend_utils as pb_utils
from tiny_onnx import INT64, STRING, add_subtract, identity, lookup, model, node, segment_sums, tensor

FOLDER = Path(__file__).parents[3] / "triton_repo_builder" / "runtime" / "onnxruntime_backend"
# As Triton's stub does: the modules are top-level ones there, not a package's.
sys.path.append(str(FOLDER))
errors = importlib.import_module("ort_errors")
settings = importlib.import_module("ort_settings")
providers = importlib.import_module("ort_providers")
kinds = importlib.import_module("ort_batch_inputs")
runner = importlib.import_module("ort_runner")

complete = importlib.import_module("ort_complete")
rules = importlib.import_module("ort_rules")
session = importlib.import_module("ort_session")
gpu = importlib.import_module("ort_gpu")

LEVEL = ort.GraphOptimizationLevel


def config(**given: Any) -> dict[str, Any]:
    base = {"name": "m", "max_batch_size": 8, "input": [], "output": []}
    return base | given


def parameters(**given: str) -> dict[str, Any]:
    return config(parameters={key: {"string_value": value} for key, value in given.items()})


def io(name: str, dims: list[int], dtype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{dtype}", "dims": dims, **more}


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (None, LEVEL.ORT_ENABLE_ALL),
        (0, LEVEL.ORT_ENABLE_ALL),
        (3, LEVEL.ORT_ENABLE_ALL),
        (1, LEVEL.ORT_ENABLE_EXTENDED),
        (-1, LEVEL.ORT_ENABLE_BASIC),
        (2, LEVEL.ORT_DISABLE_ALL),
    ],
)
def test_graph_level(level: int | None, expected: Any) -> None:
    given = config() if level is None else config(optimization={"graph": {"level": level}})
    assert settings.session_options(given).graph_optimization_level == expected


@pytest.mark.parametrize(("given", "threads"), [("2", 2), ("2x", 2), (" 3", 3), ("-3", 0), ("0", 0)])
def test_threads(given: str, threads: int) -> None:
    options = settings.session_options(parameters(intra_op_thread_count=given, inter_op_thread_count=given))
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, threads)


def test_threads_are_the_sessions_default_when_not_given() -> None:
    options = settings.session_options(config())
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (0, 0)


def test_memory_and_mode() -> None:
    given = parameters(enable_mem_arena="0", enable_mem_pattern="False", execution_mode="1")
    options = settings.session_options(given)
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (False, False)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    options = settings.session_options(parameters(enable_mem_arena="TRUE", enable_mem_pattern="1"))
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (True, True)
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL


def test_device_initializers_and_shrinkage_are_passed_on() -> None:
    key = "session.use_device_allocator_for_initializers"
    assert settings.session_options(parameters(**{key: "1"})).get_session_config_entry(key) == "1"
    key = "memory.enable_memory_arena_shrinkage"
    assert settings.run_options(parameters(**{key: "cpu:0"})).get_run_config_entry(key) == "cpu:0"
    assert settings.run_options(config()) is None


@pytest.mark.parametrize("text", ["", "abc", "x2", "99999999999"])
def test_no_number(text: str) -> None:
    with pytest.raises(errors.Refused, match=f"^failed to convert '{text}' to integral number$"):
        settings.to_int(text)


ALL = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


def accelerated(device: str, name: str, **given: str) -> dict[str, Any]:
    key = f"{device}_execution_accelerator"
    accelerator = {"name": name, "parameters": given}
    return config(optimization={"execution_accelerators": {key: [accelerator]}})


def test_cpu_instance_ignores_gpu_accelerators() -> None:
    assert providers.providers(accelerated("gpu", "tensorrt"), "CPU", "0", ALL) == [
        ("CPUExecutionProvider", {})
    ]


CUBLAS = "libcublasLt.so.13: cannot open shared object file: No such file or directory"
NEEDS = "a GPU instance needs CUDA: "
UPGRADE = "install CUDA and cuDNN: pip install -U 'onnxruntime-gpu[cuda,cudnn]'"
DRIVER = "install an NVIDIA driver for CUDA 13 or newer (nvidia-smi shows what it takes)"


class Onnxruntime:
    """ONNX Runtime of a machine on which CUDA does not work: what it has, can load and raises."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, available: list[str], opened: list[str] | Exception
    ) -> None:
        self.opened = opened
        self.options: dict[str, Any] = {}
        monkeypatch.setattr(ort, "__version__", "1.31.1")
        monkeypatch.setattr(ort, "cuda_version", "13.0", raising=False)
        monkeypatch.setattr(ort, "get_available_providers", lambda: available)
        monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
        monkeypatch.setattr(ort, "InferenceSession", self.open)

    def open(self, path: str, options: Any, **given: Any) -> Any:
        self.options = given
        if isinstance(self.opened, Exception):
            raise self.opened
        return self

    def get_providers(self) -> list[str]:
        assert isinstance(self.opened, list)
        return self.opened

    def refusal(self, folder: Path) -> Any:
        (folder / "model.onnx").touch()
        with pytest.raises(errors.Refused) as caught:
            session.open_session(config(), folder, "GPU", "0")
        return caught.value


def loader(monkeypatch: pytest.MonkeyPatch, error: str, provider: str = "cuda") -> None:
    def load(name: str) -> None:
        assert name.endswith(f"/onnxruntime/capi/libonnxruntime_providers_{provider}.so")
        if error:
            raise OSError(error)

    monkeypatch.setattr("ctypes.CDLL", load)


def wheel(monkeypatch: pytest.MonkeyPatch, *extras: str) -> None:
    about = Message()
    for extra in extras:
        about["Provides-Extra"] = extra
    monkeypatch.setattr(metadata, "metadata", lambda name: about)
    monkeypatch.setattr(metadata, "version", lambda name: "1.31.1")


@pytest.mark.parametrize(
    ("error", "extras", "expected"),
    [
        (
            CUBLAS,
            ("symbolic", "cuda", "cudnn"),
            f"ONNX Runtime 1.31.1 cannot load it: {CUBLAS}; install CUDA and cuDNN: "
            "pip install 'onnxruntime-gpu[cuda,cudnn]==1.31.1'",
        ),
        (CUBLAS, ("symbolic",), f"ONNX Runtime 1.31.1 cannot load it: {CUBLAS}; {UPGRADE}"),
        (
            "libcuda.so.1: cannot open",
            (),
            f"ONNX Runtime 1.31.1 cannot load it: libcuda.so.1: cannot open; {DRIVER}",
        ),
        (
            "x.so: undefined symbol: cuTensorMapEncodeTiled",
            (),
            "ONNX Runtime 1.31.1 cannot load it: x.so: undefined symbol: cuTensorMapEncodeTiled; " + DRIVER,
        ),
        ("", (), "ONNX Runtime 1.31.1 left it out; its reason is in the server's log"),
    ],
)
def test_gpu_instance_is_refused_where_a_library_is_missing(
    error: str, extras: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader(monkeypatch, error)
    wheel(monkeypatch, *extras)
    refused = Onnxruntime(monkeypatch, ALL, ["CPUExecutionProvider"]).refusal(tmp_path)
    assert (str(refused), refused.code) == (NEEDS + expected, errors.INTERNAL)


def test_gpu_instance_is_refused_where_onnx_runtime_has_no_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Onnxruntime(monkeypatch, ["CPUExecutionProvider"], []).refusal(tmp_path)
    assert str(refused) == (
        f"{NEEDS}the installed ONNX Runtime 1.31.1 has no CUDA; pip uninstall -y onnxruntime "
        "onnxruntime-gpu, then pip install 'onnxruntime-gpu[cuda,cudnn]'"
    )


def test_gpu_instance_is_refused_where_the_driver_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As seen with a libcuda.so.1 that knows no call of CUDA 13.
    raised = RuntimeError(
        "/onnxruntime_src/x.cc:63 static FromProviderOptions(const ProviderOptions&) "
        '[ONNXRuntimeError] : 1 : FAIL : Parse Failed to parse provider option "device_id": CUDA failure 36: '
        "API call is not supported in the installed CUDA driver ; GPU=-1 ; file=x.cc ; expr=y; \n"
    )
    runtime = Onnxruntime(monkeypatch, ALL, raised)
    assert str(runtime.refusal(tmp_path)) == (
        f"{NEEDS}CUDA failure 36: API call is not supported in the installed CUDA driver; {DRIVER}"
    )
    assert runtime.options["enable_fallback"] == 0
    runtime.opened = Exception("[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : broken")
    assert str(runtime.refusal(tmp_path)) == "onnx runtime error 7: broken"
    runtime.opened = RuntimeError("x.cc:9 CUDA failure 2: out of memory ; GPU=0 ; \n")
    assert str(runtime.refusal(tmp_path)).startswith(
        "onnx runtime error 1: x.cc:9 CUDA failure 2: out of mem"
    )


def test_gpu_instance_with_cuda_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").touch()
    runtime = Onnxruntime(monkeypatch, ALL, ["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.open_session(config(), tmp_path, "GPU", "1") is runtime
    assert runtime.options["providers"][0][1]["device_id"] == "1"
    assert runtime.options["disabled_optimizers"] == []


@pytest.mark.parametrize("available", [ALL, ALL[1:]])
@pytest.mark.parametrize("error", ["libnvinfer.so.10: cannot open shared object file", ""])
def test_tensorrt_is_not_left_out_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, available: list[str]
) -> None:
    (tmp_path / "model.onnx").touch()
    loader(monkeypatch, error, "tensorrt")
    runtime = Onnxruntime(monkeypatch, available, ALL[1:])
    wanted = accelerated("gpu", "tensorrt", precision_mode="FP16")
    with pytest.raises(errors.Refused) as caught:
        session.open_session(wanted, tmp_path, "GPU", "0")
    reason = error or "ONNX Runtime left it out; its reason is in the server's log"
    assert str(caught.value) == (
        f"the accelerator needs TensorRT: {reason}; put the libraries of TensorRT 10 on LD_LIBRARY_PATH, "
        "or build without --accelerator"
    )
    runtime.opened = ALL
    assert session.open_session(wanted, tmp_path, "GPU", "0") is runtime


def test_a_kernel_that_is_slower_on_a_cpu_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").touch()
    runtime = Onnxruntime(monkeypatch, ALL, ["CPUExecutionProvider"])
    assert session.open_session(config(), tmp_path, "CPU", "0") is runtime
    assert runtime.options["disabled_optimizers"] == ["SkipLayerNormFusion"]


def test_the_wheel_has_the_extras_that_the_refusal_names() -> None:
    try:
        extras = metadata.metadata("onnxruntime-gpu").get_all("Provides-Extra")
    except metadata.PackageNotFoundError:
        pytest.skip("onnxruntime-gpu is not installed here")
    assert set(extras) >= gpu.WANTED


def test_gpu_instance() -> None:
    given = accelerated("gpu", "cuda", use_tf32="0", cudnn_conv_algo_search="HEURISTIC")
    given["parameters"] = {"gpu_mem_limit": {"string_value": "1000"}}
    first, last = providers.providers(given, "GPU", "1", ALL)
    assert first == (
        "CUDAExecutionProvider",
        {
            "use_tf32": "0",
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "arena_extend_strategy": "kNextPowerOfTwo",
            "gpu_mem_limit": "1000",
            "device_id": "1",
        },
    )
    assert last == ("CPUExecutionProvider", {})


def test_tensorrt() -> None:
    given = accelerated(
        "gpu", "tensorrt", precision_mode="FP16", max_workspace_size_bytes="9", trt_engine_cache_enable="1"
    )
    name, options = providers.providers(given, "GPU", "0", ALL)[0]
    assert name == "TensorrtExecutionProvider"
    assert options == {
        "device_id": "0",
        "trt_fp16_enable": "True",
        "trt_max_workspace_size": "9",
        "trt_engine_cache_enable": "True",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (accelerated("gpu", "warp"), "unknown Execution Accelerator 'warp' is requested"),
        (accelerated("cpu", "warp"), "unknown Execution Accelerator 'warp' is requested"),
        (
            accelerated("gpu", "tensorrt", precision="FP16"),
            "unknown parameter 'precision' is provided for TensorRT Execution Accelerator",
        ),
        (
            accelerated("gpu", "tensorrt", precision_mode="FP4"),
            "unsupported precision mode 'FP4' is requested",
        ),
        (parameters(cudnn_conv_algo_search="7"), "unsupported cudnn_conv_algo_search value '7' is requested"),
        (parameters(arena_extend_strategy="2"), "unsupported arena_extend_strategy value '2' is requested"),
    ],
)
def test_refused_accelerators(given: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.Refused) as caught:
        providers.providers(given, "GPU", "0", ALL)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [6, 4]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [6, 10]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 10]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0] * 6),
        ("BATCH_ITEM_SHAPE", [[3], [3], [4]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 3, 4]),
    ],
)
@pytest.mark.parametrize("dtype", ["FP32", "INT32"])
def test_batch_input_kinds(kind: str, dtype: str, expected: list[Any]) -> None:
    entry = {"kind": kind, "data_type": f"TYPE_{dtype}", "target_name": ["T"], "source_input": ["X"]}
    [(targets, source, make, numpy_type)] = kinds.batch_inputs(config(batch_input=[entry]))
    made = make([(2, 3), (1, 4)], numpy_type)
    assert (targets, source, made.tolist()) == (["T"], "X", expected)
    assert made.dtype == {"FP32": np.float32, "INT32": np.int32}[dtype]


def test_batch_item_shape_of_several_dims() -> None:
    made = kinds._KINDS["BATCH_ITEM_SHAPE"]([(2, 3, 5), (1, 4, 7)], np.int32)
    assert made.tolist() == [[3, 5], [3, 5], [4, 7]]


def request(wanted: list[str], **arrays: Any) -> pb_utils.InferenceRequest:
    return pb_utils.InferenceRequest([pb_utils.Tensor(name, array) for name, array in arrays.items()], wanted)


class Counting:
    """A session that counts its runs."""

    def __init__(self, content: bytes) -> None:
        self.session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        self.runs = 0

    def run(self, *arguments: Any) -> Any:
        self.runs += 1
        return self.session.run(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def outputs(response: pb_utils.InferenceResponse) -> dict[str, Any]:
    assert not response.has_error(), response.error()
    return {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}


SUMS = config(input=[io("A", [4]), io("B", [4])], output=[io("S", [4]), io("D", [4])])


def test_requests_are_one_run_and_get_what_they_asked_for() -> None:
    counting = Counting(add_subtract())
    made = runner.Runner(SUMS, counting)
    one, two = np.full((1, 4), 1, np.float32), np.full((2, 4), 2, np.float32)
    answers = made.run(
        [request(["S"], A=one, B=one), request(["D", "S"], B=one * 0, A=one), request(["D"], A=two, B=two)]
    )
    assert counting.runs == 1
    assert [outputs(answer) for answer in answers] == [
        {"S": [[2.0] * 4]},
        {"D": [[1.0] * 4], "S": [[1.0] * 4]},
        {"D": [[0.0] * 4] * 2},
    ]


def test_requests_of_other_shapes_are_other_runs_in_their_order() -> None:
    counting = Counting(identity(["batch", "width"]))
    made = runner.Runner(config(input=[io("X", [-1])], output=[io("Y", [-1])]), counting)
    arrays = [np.full((1, width), value, np.float32) for value, width in enumerate((2, 3, 2, 3))]
    answers = made.run([request(["Y"], X=array) for array in arrays])
    assert counting.runs == 2
    assert [outputs(answer)["Y"] for answer in answers] == [array.tolist() for array in arrays]


def test_one_bad_request_fails_alone() -> None:
    made = runner.Runner(config(input=[io("X", [1], "INT64")], output=[io("Y", [1])]), Counting(lookup()))
    good, bad, other = made.run([request(["Y"], X=np.array([[index]])) for index in (1, 9, 3)])
    assert (outputs(good), outputs(other)) == ({"Y": [[11.0]]}, {"Y": [[13.0]]})
    assert bad.error().code() == pb_utils.TritonError.INTERNAL
    assert bad.error().message().startswith("onnx runtime error ")


def test_strings_that_are_not_utf8_reach_the_graph() -> None:
    texts = model(
        [node("Equal", ["X", "X"], ["Y"])],
        [tensor("X", ["n", 2], STRING)],
        [tensor("Y", ["n", 2], 9)],
        opset=19,
    )
    made = runner.Runner(
        config(input=[io("X", [2], "STRING")], output=[io("Y", [2], "BOOL")]), Counting(texts)
    )
    [answer] = made.run([request(["Y"], X=np.array([[b"\xff\xfe", b"ok"]], np.object_))])
    assert outputs(answer) == {"Y": [[True, True]]}


def test_string_answer_that_is_not_utf8_is_that_requests_error() -> None:
    given = config(input=[io("X", [1], "STRING")], output=[io("Y", [1], "STRING")])
    made = runner.Runner(given, Counting(identity(["n", 1], STRING)))
    good, bad = made.run(
        [request(["Y"], X=np.array([[text]], np.object_)) for text in ("é".encode(), b"\xff")]
    )
    assert outputs(good) == {"Y": [["é"]]}
    assert bad.error().code() == pb_utils.TritonError.UNSUPPORTED


def test_ragged_requests_are_one_run() -> None:
    counting = Counting(segment_sums())
    lengths = {"kind": "BATCH_ITEM_SHAPE", "data_type": "TYPE_FP32"}
    given = config(
        input=[io("tokens", [-1], "INT32", allow_ragged_batch=True)],
        batch_input=[{**lengths, "target_name": ["lengths"], "source_input": ["tokens"]}],
        output=[io("Y", [1])],
    )
    arrays = [np.array([[1, 2, 3]], np.int32), np.array([[4], [5]], np.int32)]
    answers = runner.Runner(given, counting).run([request(["Y"], tokens=array) for array in arrays])
    assert counting.runs == 1
    assert [outputs(answer)["Y"] for answer in answers] == [[[6.0]], [[4.0], [5.0]]]


def test_scattered_output_takes_the_shape_of_the_input() -> None:
    given = config(
        input=[io("X", [-1], allow_ragged_batch=True)],
        output=[io("Y", [-1])],
        batch_output=[
            {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["Y"], "source_input": ["X"]}
        ],
    )
    made = runner.Runner(given, Counting(identity(["total"])))
    arrays = [np.array([[1, 2, 3]], np.float32), np.array([[4], [5]], np.float32)]
    answers = made.run([request(["Y"], X=array) for array in arrays])
    assert [outputs(answer)["Y"] for answer in answers] == [array.tolist() for array in arrays]


def test_nothing_requested_and_nothing_batched() -> None:
    made = runner.Runner(
        config(max_batch_size=0, input=[io("X", [-1, 1])], output=[io("Y", [-1, 1])]),
        Counting(identity(["n", 1])),
    )
    first, second = made.run([request(names, X=np.ones((2, 1), np.float32)) for names in ([], ["Y"])])
    assert outputs(first) == {}
    assert outputs(second) == {"Y": [[1.0], [1.0]]}


def test_auto_complete_leaves_a_complete_configuration_alone() -> None:
    assert rules.is_complete(config(input=[io("X", [4])], output=[io("Y", [4])]))
    assert rules.is_complete(config(batch_input=[{}], output=[io("Y", [4])]))
    assert not rules.is_complete(config(output=[io("Y", [4])]))


def test_auto_complete_does_not_add_a_scheduler_to_a_sequence_model() -> None:
    given = config(max_batch_size=0, sequence_batching={})
    opened = ort.InferenceSession(identity(["n", 4], INT64), providers=["CPUExecutionProvider"])
    note = complete.complete(given, opened)
    assert "autofilled max_batch_size to 4 for model 'm'" in note
    assert given["input"] == [io("X", [4], "INT64")]
    assert (given["max_batch_size"], "dynamic_batching" in given) == (4, False)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (errors.INVALID, "model 'm', tensor 'X': no", "Invalid argument: model 'm', tensor 'X': no"),
        (errors.UNSUPPORTED, "Unsupported ONNX Type", "Unsupported: Unsupported ONNX Type"),
        (errors.INTERNAL, "onnx runtime error 7: Load: no", "onnx runtime error 7: Load: no"),
        (errors.INTERNAL, "failed to stat file x", "onnxruntime: failed to stat file x"),
    ],
)
def test_surfaced_error_is_the_sentence_up_to_a_nul(code: str, text: str, expected: str) -> None:
    surfaced = errors.surfaced(errors.Refused(text, code))
    assert f"{type(surfaced).__name__}: {surfaced}\n\nAt: …".split("\0")[0] == expected


def test_errors_of_onnx_runtime_keep_their_number() -> None:
    broken = Exception("[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model failed: x\n")
    assert errors.ort_text(broken) == "onnx runtime error 7: Load model failed: x"
    assert errors.ort_text(ValueError("Required inputs")) == "onnx runtime error 2: Required inputs"


def test_folder_in_place_of_the_model_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(errors.Refused) as caught:
        session.model_file(config(), tmp_path)
    path = tmp_path / "model.onnx" / "model.onnx"
    assert str(caught.value) == f"unable to find '{path}' for model instance 'm'"
    path.touch()
    assert session.model_file(config(default_model_filename=""), tmp_path) == path


def test_decoupled_model_answers_through_the_sender(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(identity(["n", 4]))
    given = config(input=[io("X", [4])], output=[io("Y", [4])], model_transaction_policy={"decoupled": True})
    instance = importlib.import_module("model").TritonPythonModel()
    instance.initialize(
        {
            "model_config": json.dumps(given),
            "model_repository": str(tmp_path),
            "model_version": "1",
            "model_instance_kind": "CPU",
            "model_instance_name": "m_0_0",
            "model_instance_device_id": "0",
        }
    )
    asked = request(["Y"], X=np.ones((1, 4), np.float32))
    assert instance.execute([asked]) is None
    [answer] = asked.get_response_sender().sent
    assert outputs(answer) == {"Y": [[1.0] * 4]}
    instance.finalize()


def test_a_failing_warm_up_is_told_before_the_server_hears_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(lookup())
    warmup = [{"name": "w", "batch_size": 1, "count": 0}, {"name": "v", "batch_size": 1, "count": 1}]
    given = config(input=[io("X", [1], "INT64")], output=[io("Y", [1])], model_warmup=warmup)
    instance = importlib.import_module("model").TritonPythonModel()
    instance.initialize(
        {
            "model_config": json.dumps(given),
            "model_repository": str(tmp_path),
            "model_version": "1",
            "model_instance_kind": "CPU",
            "model_instance_name": "m_0_0",
            "model_instance_device_id": "0",
        }
    )
    for index in (1, 9, 9):  # the third is the first that is no warm-up
        instance.execute([request(["Y"], X=np.array([[index]]))])
    said = capsys.readouterr().err
    assert said.startswith("warm-up of model 'm' failed: onnx runtime error ")
    assert said.count("\n") == 1


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            found.add(str(each.module).partition(".")[0])
    return found


def test_imports_are_those_of_the_server() -> None:
    files = sorted(FOLDER.glob("*.py"))
    siblings = {path.stem for path in files}
    # Our own package appears under TYPE_CHECKING only; an integration test runs without it.
    allowed = {*sys.stdlib_module_names, *siblings, "numpy", "onnxruntime", "triton_python_backend_utils"}
    more = {path.name: imports(path) - allowed - {"triton_repo_builder"} for path in files}
    # Imported only where onnx is: by the embedded server, whose environment is trb's own.
    assert more.pop("ort_hidden.py") == {"onnx"}
    assert more == {key: set() for key in more}
