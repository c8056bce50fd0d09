"""Every kind of finding: severity, meaning, remedy. docs/checks.md is generated from this table."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.check.finding import Severity


@dataclass(frozen=True, kw_only=True)
class Code:
    """One kind of finding; ``remedy`` is the default for findings without their own."""

    severity: Severity
    group: str
    meaning: str
    remedy: str


def _group(name: str, *rows: tuple[Severity, str, str, str]) -> dict[str, Code]:
    return {
        code: Code(severity=severity, group=name, meaning=meaning, remedy=remedy)
        for severity, code, meaning, remedy in rows
    }


_TEXT = _group(
    "Text of config.pbtxt",
    ("error", "config-syntax", "No ModelConfig: bad syntax, an unknown field or value, a field given twice.",
     "correct it at that line and column; the fields are those of Triton's model_config.proto"),
    ("error", "field-too-new", "The release does not know the field yet and refuses the whole file.",
     "remove the field, or serve with a newer release"),
    ("warning", "parameter-ignored", "The backend of the release does not know the parameter, ignores it.",
     "remove it, or serve with a newer release"),
    ("warning", "ignore-unknown", "`# trb: ignore CODE` with a code that no finding has: it hides nothing.",
     "correct the code, or remove it; a reason stands behind a colon: # trb: ignore CODE: reason"),
    ("error", "config-folder", "`config.pbtxt` is a folder, which kills the server.",
     "put the file itself there"),
    ("error", "repository-empty", "No model in the repository: a wrong path passes any check.",
     "name the folder that holds the model directories; --allow-empty accepts it"),
    ("error", "file-unreadable", "A file or folder that cannot be read, or a pipe, a socket, a device.",
     "make it readable, or remove it"),
    ("error", "metrics", "`model_metrics` without a field that it needs, or a wrong name in `metric_tags`.",
     "write metric_control { metric_identifier { family } histogram_options { buckets } }"),
    ("error", "repository-agents", "`model_repository_agents` without an agent (the server dies), or a name.",
     'write agents [ { name: "checksum" … } ], or drop model_repository_agents'),
)  # fmt: skip

_LAYOUT = _group(
    "Directories and files",
    ("error", "not-a-model", "A directory that is not a model: Triton tries to load it and by default exits.",
     "move it out of the repository: every directory in it counts as a model"),
    ("error", "name-mismatch", "`name` is not the directory's name.",
     "make the two equal, or leave name out"),
    ("error", "platform-unknown", "No backend follows from `backend`, `platform` or the files.",
     'set backend: "onnxruntime" or "python", or platform: "ensemble"'),
    ("error", "platform-backend-pair", "`platform` belongs to another backend.",
     "keep the one of the two that fits the model's file"),
    ("error", "backend-unknown", "A name that is not a backend.",
     "use the backend's own name"),
    ("warning", "backend-custom", "A backend that the stock image does not have.",
     "serve it with an image that has this backend"),
    ("error", "runtime-unknown", "`runtime` names a library that is not there.",
     "drop runtime"),
    ("error", "version-missing", "No version directory is selected.",
     "make a directory 1/ with the model's files"),
    ("error", "version-overflow", "A numeric directory name too large for an integer kills the server.",
     "rename or remove the directory"),
    ("warning", "version-ignored", "A directory that looks like a version but is not one (`v1`, `01`).",
     "name it with an integer without leading zeros, or remove it"),
    ("error", "version-misread", "A directory name that starts with a number counts as that version.",
     "name it with the number alone, or remove it"),
    ("warning", "version-absent", "`version_policy` names a version that does not exist.",
     "add the version, or take it out of version_policy"),
    ("warning", "version-empty", "An ensemble's version directory without a file in it.",
     "put a placeholder file in it, such as .gitkeep"),
    ("error", "model-file-missing", "The version directory has no model file of the expected name.",
     "put the file there, or set default_model_filename"),
    ("error", "model-filename", "`default_model_filename`, or an entry of `cc_model_filenames`, of no use.",
     "name a file of the version's folder; a Python model is one module: name.py"),
    ("error", "link-dangling", "A link that leads nowhere, at the top or among a model's own entries.",
     "remove the link, or put its target there"),
    ("error", "lfs-pointer", "A git-LFS pointer in place of the file.",
     "run 'git lfs pull'"),
    ("error", "case-clash", "Two names in a folder that differ only in case; a warning outside models.",
     "rename one of them"),
    ("error", "labels-missing", "`label_filename` names no file of the model, or one tensor has two.",
     "the path is relative to the model directory, beside config.pbtxt"),
)  # fmt: skip

_BATCHING = _group(
    "Batching, queue, cache, instances",
    ("error", "max-batch-size", "`max_batch_size` is negative.",
     "0 for none, else the largest batch"),
    ("error", "preferred-size", "A preferred batch size is not in 1 … `max_batch_size`.",
     "keep each preferred size between 1 and max_batch_size"),
    ("warning", "batching-idle", "`dynamic_batching` on a model without a batch axis.",
     "set max_batch_size, or drop dynamic_batching"),
    ("warning", "queue-delay-long", "The batcher holds a lone request for more than a second.",
     "the unit is microseconds; most loads are best without a delay"),
    ("warning", "queue-delay-unused", "A preferred size of 1 sends each request at once.",
     "drop 1 from preferred_batch_size, or drop the delay"),
    ("error", "priority-range", "A priority level outside 1 … `priority_levels`.",
     "set default_priority_level, and keep the keys of priority_queue_policy in range"),
    ("error", "preserve-ordering", "`preserve_ordering` with priorities or with timeout action DELAY.",
     "drop preserve_ordering, or the priorities, or use REJECT"),
    ("error", "cache-unsupported", "`response_cache` on a decoupled or sequence model.",
     "drop response_cache"),
    ("error", "batch-strategy",
     "`TRITON_BATCH_STRATEGY_PATH` with sequence batching, or not there (a warning).",
     "put the library at that path"),
    ("error", "sequence-control", "A control of `sequence_batching` that the server refuses.",
     "each kind once, each tensor once, with its two values (a type for CONTROL_SEQUENCE_CORRID)"),
    ("error", "sequence-slot", "`minimum_slot_utilization` is not in 0 … 1.",
     "a share of the slots: 0 to 1"),
    ("error", "sequence-state", "An `initial_state` that does not fit its state, or has no data.",
     "the state's type, concrete dims, a name, and zero_data: true or a data_file in <model>/initial_state/"),
    ("error", "instance-gpus", "`gpus` of a kind that takes none, or that are not there; an unknown kind.",
     "drop gpus, or write kind: KIND_GPU"),
    ("error", "instance-profile", "`profile` outside TensorRT.",
     "drop profile"),
    ("error", "instance-passive", "Only `passive` instances: the first request kills the server.",
     "drop passive, or add a group without it"),
    ("warning", "instance-count", "No instance count on an ONNX model that may run on a CPU.",
     "write instance_group [ { count: 1 kind: KIND_CPU } ], KIND_GPU for a GPU, and intra_op_thread_count"),
)  # fmt: skip

_WARMUP = _group(
    "Warm-up",
    ("error", "warmup-batch-size", "A sample larger than `max_batch_size`, which often kills the server.",
     "keep batch_size within max_batch_size"),
    ("error", "warmup-inputs", "A sample that lacks an input, or names one that the model does not have.",
     "give each input of the model, under its own name"),
    ("error", "warmup-shape", "A sample whose dims are variable or do not fit the input.",
     "write the concrete dims of one item, without the batch axis"),
    ("error", "warmup-type", "A sample of another type than the input.",
     "write the input's data_type"),
    ("error", "warmup-data", "A sample input without a kind of data.",
     "write zero_data: true, random_data: true or input_data_file"),
    ("error", "warmup-file", "The sample's data file is missing, too short, or holds no strings.",
     "put it in <model>/warmup/, with as many bytes as the shape takes"),
)  # fmt: skip

_TENSORS = _group(
    "Inputs and outputs",
    ("error", "tensor-incomplete", "`name`, `data_type` or `dims` is missing.",
     "write all three; a scalar per item is dims: [ 1 ] reshape { shape: [] }"),
    ("error", "tensor-dims", "A dimension that is 0 or below -1.",
     "write a size, or -1 for a variable one"),
    ("error", "tensor-reshape", "`reshape` has another number of elements than `dims`.",
     "keep the product of the sizes, and the variable dimensions one by one"),
    ("error", "tensor-format", "An image format on other than 3 dims.",
     "three dims without the batch axis, or no format"),
    ("error", "tensor-shape-tensor", "A shape tensor outside TensorRT.",
     "drop is_shape_tensor"),
    ("error", "tensor-non-linear", "`is_non_linear_format_io` outside TensorRT, or without 3 dims.",
     "drop is_non_linear_format_io"),
    ("error", "tensor-duplicate", "An input declared twice: every request fails; an output: a warning.",
     "declare each tensor once; no request can send it twice"),
    ("error", "batch-input", "A `batch_input` with a wrong source, type or target.",
     "one source_input that is an input, TYPE_INT32 or TYPE_FP32, and a target that is not an input"),
    ("error", "batch-output", "A `batch_output` with a wrong source or target.",
     "one source_input that is an input, and each target an output, once"),
    ("warning", "ragged-alone", "`allow_ragged_batch` without the settings that it needs.",
     "set max_batch_size and add a batch_input of kind BATCH_ITEM_SHAPE, or drop it"),
)  # fmt: skip

_ONNX = _group(
    "ONNX models",
    ("error", "onnx-unreadable", "The file is not a complete ONNX model.",
     "export or copy it again"),
    ("error", "onnx-external-data", "A file with the model's weights is not beside it.",
     "copy it beside the model, under the recorded name"),
    ("error", "onnx-ir", "The file's IR version is newer than the release's ONNX Runtime accepts.",
     "lower ir_version (trb build --triton-release RELEASE does it), or serve with a newer release (trb "
     "inspect FILE names those that load it)"),
    ("error", "onnx-opset", "The graph's opset is newer than the release's ONNX Runtime accepts.",
     "export with an older opset, or serve with a newer release"),
    ("error", "onnx-option", "A parameter that the backend cannot convert, or that makes requests fail.",
     "correct the parameter's value"),
    ("error", "onnx-accelerator", "An execution accelerator, or its setting, that the backend does not have.",
     "openvino for the CPU; cuda or tensorrt for GPUs"),
    ("error", "onnx-graph",
     "A node that ONNX Runtime refuses: an unknown operator, an unwritten input, sizes that do not fit.",
     "export the model again; an operator of your own needs model_operations { op_library_filename }"),
    ("error", "onnx-kernel",
     "An operator without a CPU kernel in the release's ONNX Runtime; a warning if a GPU may run it.",
     "serve with a release whose ONNX Runtime has it, export without it, or run it on a GPU"),
    ("error", "onnx-library",
     "A library of operators that is not there; one outside of the repository: a warning.",
     "put it at that path in the image"),
    ("warning", "onnx-decoupled", "`decoupled` on an ONNX model.",
     "drop model_transaction_policy"),
    ("error", "onnx-kind", "A graph input or output that is a sequence or a map.",
     "export tensors only (skl2onnx, onnxmltools: without ZipMap; else trb build --model FILE prints a line "
     "that takes it out)"),
    ("error", "onnx-batch-axis", "Batching is on and the graph fixes the first axis of a tensor.",
     "export with a dynamic first axis on every tensor, or set max_batch_size: 0 and write full dims"),
    ("warning", "onnx-completed", "The server completes the config in a way that may surprise.",
     "declare max_batch_size and every input and output"),
    ("error", "onnx-input-count", "The config feeds more or fewer inputs than the graph has.",
     "list every graph input that is not an initializer"),
    ("error", "onnx-name", "A name that the graph does not have.",
     "copy the names from 'trb inspect'"),
    ("error", "onnx-optional", "An optional input on a model that batches.",
     "drop the input, or set max_batch_size: 0"),
    ("error", "onnx-type", "Another type than the graph's.",
     "copy the type from the graph"),
    ("error", "onnx-type-unsupported", "A type that the release's backend cannot carry.",
     "cast at the graph's edge"),
    ("error", "onnx-shape", "`dims` do not fit the graph's shape.",
     "copy the dims from the graph, without the first one if max_batch_size is above 0"),
    ("error", "onnx-scalar", "A scalar tensor with other dims than [1].",
     "write dims: [ 1 ] and max_batch_size: 0"),
    ("warning", "onnx-scalar-batch", "A scalar tensor on a model that batches.",
     "set max_batch_size: 0, or give the tensor a batch axis"),
    ("error", "onnx-ragged", "`allow_ragged_batch` on a graph input that is not of rank 1.",
     "the graph must take a flat [-1] tensor and lengths ('trb build' makes one), or drop the flag"),
)  # fmt: skip

_BACKENDS = _group(
    "Other backends",
    ("error", "backend-option",
     "A parameter of a TensorRT, OpenVINO or PyTorch model with a value that its backend refuses.",
     "correct the parameter's value"),
)  # fmt: skip

_PYTHON = _group(
    "Python models",
    ("error", "python-syntax", "`model.py` does not parse as the release's Python.",
     "correct it at that line"),
    ("error", "python-class-missing", "`model.py` defines no class TritonPythonModel.",
     "define class TritonPythonModel with execute(self, requests)"),
    ("error", "python-execute-missing", "The class cannot answer a request.",
     "define execute(self, requests)"),
    ("warning", "python-io-missing", "No inputs or outputs, in the config or by `auto_complete_config`.",
     "declare input and output in config.pbtxt"),
    ("error", "python-signature",
     "A method that cannot be called as the backend does, or that gives nothing back.",
     "write initialize(self, args), execute(self, requests); auto_complete_config returns its argument"),
    ("error", "python-completion", "`auto_complete_config` sets something else than config.pbtxt states.",
     "make the two equal, or leave it to one of them"),
    ("error", "python-raises",
     "A `raise` that always runs when the model loads, or `args` used as what it is not.",
     "correct or remove it; a condition may stand before it"),
    ("warning", "python-import", "A module that neither the image nor the folder has.",
     "put it beside model.py, build an image with it, or set EXECUTION_ENV_PATH"),
    ("error", "python-name", "A name that the Python backend cannot take: it goes through a shell and ASCII.",
     "use letters, digits, '_', '-' and '.' only"),
    ("error", "python-parameter", "A parameter with a value that the backend does not take.",
     "write yes or no"),
    ("error", "python-environment",
     "`EXECUTION_ENV_PATH` that is not in the model's folder (outside of it: a warning), or no environment.",
     "put the archive of conda-pack into the model's folder and write $$TRITON_MODEL_DIRECTORY/env.tar.gz"),
)  # fmt: skip

_ENSEMBLES = _group(
    "Ensembles",
    ("error", "ensemble-platform", "An ensemble with another platform or backend.",
     'write platform: "ensemble" and no backend'),
    ("error", "ensemble-forbidden", "A field that an ensemble may not have.",
     "put it on the steps' models"),
    ("error", "ensemble-scheduling", "No steps, or a step without model or maps.",
     "write ensemble_scheduling { step [ { model_name model_version: -1 input_map output_map } ] }"),
    ("error", "ensemble-unused", "A tensor that nobody reads or writes.",
     "map it, or drop it; a map's key is the step's name for the tensor, its value the ensemble's"),
    ("error", "ensemble-unconnected", "A tensor that is read and never written.",
     "use one ensemble-wide name (the map's value) where it is written and where it is read"),
    ("error", "ensemble-written-twice", "A tensor with two writers.",
     "give each output_map value its own name"),
    ("error", "ensemble-step-unknown", "A step names a model that is not in the repository.",
     "correct model_name, or add the model"),
    ("error", "ensemble-step-version", "A step asks for a version that is not loaded; none given means 0.",
     "write model_version: -1"),
    ("error", "ensemble-batch-size", "`max_batch_size` above that of a step.",
     "use the smallest max_batch_size of the steps that batch"),
    ("error", "ensemble-key", "A map's key is not a tensor of the step's model.",
     "the key is the step's own tensor name"),
    ("error", "ensemble-input-unmapped", "A step's input gets no tensor.",
     "map it in input_map"),
    ("error", "ensemble-type", "A tensor has two types.",
     "give both models the same data_type"),
    ("error", "ensemble-shape", "A tensor has two shapes.",
     "give both models the same dims, -1 for a size that varies"),
    ("error", "ensemble-batch-axis", "A tensor with a batch axis in one model and without in another.",
     "write max_batch_size: 1 (or 0) on the ensemble, or the step's batch axis into its dims: [ -1, … ]"),
    ("error", "ensemble-decoupled", "A step whose inputs stem from different decoupled models.",
     "join the streams inside a model, or give the step the tensors of one of them"),
    ("warning", "ensemble-inflight", "A `max_inflight_requests` so small that steps may wait for each other.",
     "write more than 8, or leave it out; max_queue_size of a step refuses requests instead of waiting"),
    ("error", "ensemble-cycle", "An ensemble that is a step of itself.",
     "take one of the steps out"),
)  # fmt: skip

_MANIFEST = _group(
    "Manifest",
    ("error", "manifest-changed", "A file differs from what `trb build` wrote.",
     "record an edit of your own with trb accept --why REASON, which later builds keep; else restore the "
     "file (git checkout), or build again with --force, which writes it again"),
    ("error", "manifest-content", "Content digests in config.pbtxt, manifest.json and of the files differ.",
     "record an edit of your own with trb accept; else restore the files (git checkout, trb fetch), or build "
     "the endpoint again"),
    ("error", "manifest-missing", "A file that `trb build` wrote is gone.",
     "restore it (git checkout), or build again"),
    ("error", "manifest-sources", "A config.pbtxt names other source files than the manifest.",
     "restore both (git checkout), or build again with --force"),
    ("error", "manifest-unreadable", "manifest.json is no manifest.",
     "restore it (git checkout), or build again"),
    ("error", "manifest-lost", "A model that `trb build` wrote, without the manifest.",
     "restore manifest.json (git checkout), or build again"),
    ("warning", "manifest-extra", "A file that `trb build` did not write, inside a model that it did.",
     "remove it if it is not yours, else record it (trb accept); a build leaves it alone"),
)  # fmt: skip

_LIVE = _group(
    "A running server (--live)",
    ("error", "live-unreachable", "No server answers at that URL.",
     "start it, or correct the URL: that of its HTTP port"),
    ("error", "live-not-ready", "The server, or a model that it has loaded, says that it is not ready.",
     "wait until it has loaded its models, or look at its log"),
    ("error", "live-missing", "A model, or a version that the policy selects, is not served.",
     "load it ('trb load', 'trb apply'), or see the server's reason in its log"),
    ("warning", "live-extra", "The server serves what the repository does not have.",
     "unload it, or add it to the repository"),
    ("error", "live-config", "The server's configuration of a model is another than the file's.",
     "load the model again ('trb load', 'trb apply')"),
)  # fmt: skip

CODES: dict[str, Code] = {
    **_TEXT, **_LAYOUT, **_BATCHING, **_WARMUP, **_TENSORS, **_ONNX, **_BACKENDS, **_PYTHON,
    **_ENSEMBLES, **_MANIFEST, **_LIVE,
}  # fmt: skip


def document() -> str:
    """The tables of docs/checks.md."""
    lines: list[str] = []
    group = ""
    for name, code in CODES.items():
        if code.group != group:
            group = code.group
            lines += ["", f"## {group}", "", "| code | | meaning | what to do |", "|---|---|---|---|"]
        lines.append(f"| `{name}` | {code.severity} | {code.meaning} | {code.remedy} |")
    return "\n".join(lines).lstrip("\n") + "\n"
