"""Every bad input: the whole message, its exit code, no traceback, and the old repository untouched.

Each case is a function that lays the input out in an empty folder and returns the arguments of
``trb build``; its expected message is written with ``{folder}`` for that folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import tiny
import tiny_images
import tiny_onnx as t

from triton_repo_builder import cli
from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code
from triton_repo_builder.produce.limits import OPSET_OPTIONS

Case = Callable[[Path], list[str]]
CASES: dict[str, tuple[Case, Code, str]] = {}
SAFETENSORS = b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"a": {"dtype": "F32"}}' + bytes(99)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n"
OPTIMUM = "export the model to ONNX first, e.g. optimum-cli export onnx --model NAME FOLDER"
SIZES_AGAIN = "copy or download the model again and compare sizes"


def case(name: str, code: Code, message: str, remedy: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        assert name not in CASES
        first, *more = message.split("\n", 1)
        text = "\n".join((f"error: {first} [{code.kind}]", *more))
        CASES[name] = function, code, f"{text}\n  fix: {remedy}\n"
        return function

    return add


def model(path: Path, *options: str) -> list[str]:
    return ["--model", str(path), "--no-golden", *options]


# --- files that are no model -------------------------------------------------------------------------

FOREIGN = {
    "text": (b"These are my notes.\n" * 40, ""),
    "zip": (
        b"PK\x03\x04\x14\x00" + bytes(400),
        ": it looks like a zip archive, perhaps a PyTorch checkpoint (.pt, .bin)",
    ),
    "safetensors": (SAFETENSORS, ": it looks like a safetensors file, weights without a graph"),
    "gguf": (b"GGUF\x03\x00\x00\x00" + bytes(99), ": it looks like a GGUF file, weights for llama.cpp"),
    "html": (b"<!DOCTYPE html>\n<html>", ": it looks like an HTML or XML page, perhaps a failed download"),
    "json": (b'{"error": "not found"}', ": it looks like a JSON file"),
    "pickle": (b"\x80\x02}q\x00." * 9, ": it looks like a Python pickle"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(99), ": it looks like an HDF5 file, perhaps a Keras model"),
}


def _foreign(content: bytes) -> Case:
    def write(folder: Path) -> list[str]:
        (folder / "m.onnx").write_bytes(content)
        return model(folder / "m.onnx")

    return write


for _name, (_content, _looks) in FOREIGN.items():
    case(_name, Code.NOT_ONNX, f"{{folder}}/m.onnx: this is not an ONNX model{_looks}", OPTIMUM)(
        _foreign(_content)
    )

CONVERTED = {
    "ort": (b"\x18\x00\x00\x00ORTM" + bytes(99), "a model in ONNX Runtime's own format (.ort)"),
    "engine": (b"ftrt" + bytes(99), "a TensorRT engine"),
}
for _name, (_content, _looks) in CONVERTED.items():
    case(
        _name,
        Code.NOT_ONNX,
        f"{{folder}}/m.onnx: this is not an ONNX model: it looks like {_looks}",
        "name the .onnx file that it was made from: it cannot be made an ONNX model again",
    )(_foreign(_content))


case(
    "tflite",
    Code.NOT_ONNX,
    "{folder}/m.onnx: this is not an ONNX model: it looks like a TensorFlow Lite model",
    "convert it: pip install tf2onnx && python -m tf2onnx.convert --tflite {folder}/m.onnx --output "
    "{folder}/m.tf.onnx",
)(_foreign(b"\x1c\x00\x00\x00TFL3" + bytes(99)))


@case(
    "archive",
    Code.NOT_ONNX,
    "{folder}/my model.tar.gz: this is not an ONNX model: it looks like a gzip archive (.tar.gz), perhaps "
    "one of SageMaker",
    "unpack it: mkdir '{folder}/my model-unpacked' && tar -xf '{folder}/my model.tar.gz' -C "
    "'{folder}/my model-unpacked' && trb build --model '{folder}/my model-unpacked'",
)
def archive(folder: Path) -> list[str]:
    with tarfile.open(folder / "my model.tar.gz", "w:gz") as file:
        file.add(tiny.tensor_model(folder / "m.onnx"), "model/1/model.onnx")
    return model(folder / "my model.tar.gz")


@case(
    "archive-in-the-folder",
    Code.NOT_FOUND,
    "{folder}/in: no .onnx file in this folder; m.tar looks like a tar archive",
    "unpack it: mkdir {folder}/in/m-unpacked && tar -xf {folder}/in/m.tar -C {folder}/in/m-unpacked && "
    "trb build --model {folder}/in/m-unpacked",
)
def archive_in_the_folder(folder: Path) -> list[str]:
    (folder / "in").mkdir()
    with tarfile.open(folder / "in" / "m.tar", "w") as file:
        file.add(tiny.tensor_model(folder / "m.onnx"), "m.onnx")
    return model(folder / "in")


@case(
    "model-further-down",
    Code.NOT_FOUND,
    "{folder}/in: no .onnx file in this folder, but net/1/model.onnx below it",
    "name one, e.g. --model {folder}/in/net/1",
)
def model_further_down(folder: Path) -> list[str]:
    tiny.tensor_model(folder / "in" / "net" / "1" / "model.onnx")
    return model(folder / "in")


@case(
    "weights-of-a-model",
    Code.NOT_FOUND,
    "{folder}/ner: no .onnx file in this folder; model.safetensors looks like a safetensors file, weights "
    "without a graph",
    "convert it: trb convert {folder}/ner -o ner-onnx; or trb build --convert",
)
def weights_of_a_model(folder: Path) -> list[str]:
    (folder / "ner").mkdir()
    (folder / "ner" / "config.json").write_text('{"architectures": ["BertForTokenClassification"]}')
    (folder / "ner" / "model.safetensors").write_bytes(SAFETENSORS)
    return model(folder / "ner")


@case(
    "weights-with-a-damaged-config",
    Code.NOT_FOUND,
    "{folder}: no .onnx file in this folder; m.gguf looks like a GGUF file, weights for llama.cpp",
    "export it: optimum-cli export onnx --model {folder} --task feature-extraction in-onnx",
)
def weights_with_a_damaged_config(folder: Path) -> list[str]:
    (folder / "config.json").write_text('{"architectures": 5}')
    (folder / "m.gguf").write_bytes(b"GGUF")
    return model(folder)


@case(
    "encoder-and-decoder",
    Code.UNSUPPORTED_MODEL,
    "{folder}/whisper: this model (whisper) is an encoder and a decoder in several graphs, and generates "
    "text: trb builds no text generation",
    "serve it with vLLM or TensorRT-LLM, or one graph as plain tensors with "
    "--file onnx/encoder_model.onnx --task tensor",
)
def encoder_and_decoder(folder: Path) -> list[str]:
    for name in ("encoder_model", "decoder_model", "decoder_model_merged"):
        tiny.tensor_model(folder / "whisper" / "onnx" / f"{name}.onnx")
    (folder / "whisper" / "config.json").write_text('{"model_type": "whisper"}')
    return model(folder / "whisper")


@case(
    "decoder-in-two-graphs",
    Code.UNSUPPORTED_MODEL,
    "{folder}/gpt2: this model is a decoder in several graphs, and generates text: trb builds no text "
    "generation",
    "serve it with vLLM or TensorRT-LLM, or one graph as plain tensors with "
    "--file decoder_model.onnx --task tensor",
)
def decoder_in_two_graphs(folder: Path) -> list[str]:
    for name in ("decoder_model", "decoder_with_past_model"):
        tiny.tensor_model(folder / "gpt2" / f"{name}.onnx")
    return model(folder / "gpt2")


@case(
    "encoder-and-decoder-by-config",
    Code.UNSUPPORTED_MODEL,
    "{folder}/t5: this model (t5) is an encoder and a decoder in several graphs, and generates "
    "text: trb builds no text generation",
    "serve it with vLLM or TensorRT-LLM, or one graph as plain tensors with "
    "--file t5-encoder.onnx --task tensor",
)
def encoder_and_decoder_by_config(folder: Path) -> list[str]:
    for name in ("t5-encoder", "t5-decoder"):
        tiny.tensor_model(folder / "t5" / f"{name}.onnx")
    (folder / "t5" / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    return model(folder / "t5")


case("empty", Code.NOT_ONNX, "{folder}/m.onnx: the file is empty", "export the model again")(_foreign(b""))
case(
    "lfs-model",
    Code.LFS_POINTER,
    "{folder}/m.onnx: this is a git-LFS pointer, not the model",
    "run 'git lfs pull' in that repository, then build again",
)(_foreign(LFS))


@case("truncated", Code.TRUNCATED, "{folder}/m.onnx: the file is cut off after 3,000 bytes", SIZES_AGAIN)
def truncated(folder: Path) -> list[str]:
    path = tiny.tensor_model(folder / "m.onnx")
    path.write_bytes(path.read_bytes()[:3000])
    return model(path)


@case(
    "truncated-after-the-graph",
    Code.TRUNCATED,
    "{folder}/m.onnx: the file does not say which version of the operator set 'ai.onnx' it uses: "
    "it is cut off or damaged",
    SIZES_AGAIN,
)
def truncated_after_the_graph(folder: Path) -> list[str]:
    path = tiny.tensor_model(folder / "m.onnx")
    path.write_bytes(path.read_bytes()[:-6])  # the one operator set: 42 04 0a 00 10 11
    return model(path)


@case("absent", Code.NOT_FOUND, "{folder}/m.onnx: no such file or folder", "check the path")
def absent(folder: Path) -> list[str]:
    return model(folder / "m.onnx")


@case(
    "no-model-in-the-folder",
    Code.NOT_FOUND,
    "{folder}/export: no .onnx file in this folder",
    "export the model first, e.g. optimum-cli export onnx --model NAME FOLDER",
)
def no_model(folder: Path) -> list[str]:
    tiny.describe(folder / "export")
    return model(folder / "export")


@case(
    "several-models",
    Code.NOT_FOUND,
    "{folder}: several ONNX files: decoder.onnx, encoder.onnx",
    "name one, e.g. --file decoder.onnx",
)
def several(folder: Path) -> list[str]:
    for name in ("encoder", "decoder"):
        tiny.tensor_model(folder / f"{name}.onnx")
    return model(folder)


# --- axes and names that do not go together ----------------------------------------------------------


@case(
    "one-input-of-fixed-length",
    Code.UNSUPPORTED_MODEL,
    "{folder}/bert/model.onnx: input 'attention_mask' takes exactly 16 tokens and 'input_ids' any number, "
    "but they are of one text",
    "export again with the same axes on every input (torch: dynamic_axes on each), or use --task tensor",
)
def one_input_of_fixed_length(folder: Path) -> list[str]:
    file = tiny.embedder(folder / "bert") / "model.onnx"
    document = onnx.load(file)
    document.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 16
    file.write_bytes(document.SerializeToString())
    return ["--model", str(folder / "bert")]


@case(
    "raw-output-called-like-the-input",
    Code.UNSUPPORTED_MODEL,
    "{folder}/bert/model.onnx: --raw-output: the model's output 'TEXT' has the name of the endpoint's input",
    "rename the output and export again, or leave out --raw-output",
)
def raw_output_called_like_the_input(folder: Path) -> list[str]:
    return model(tiny.embedder(folder / "bert", output="TEXT"), "--raw-output")


@case(
    "padding-of-a-task-that-needs-none",
    Code.USAGE,
    "--padding: rows: the task question-answering needs rows of any length in a batch",
    "leave it out",
)
def padding_of_a_task_that_needs_none(folder: Path) -> list[str]:
    shape: list[int | str] = ["batch", "sequence"]
    content = t.model(
        [t.node("Cast", ["input_ids"], [name], to=t.FLOAT) for name in ("start_logits", "end_logits")],
        [t.tensor(name, shape, t.INT64) for name in ("input_ids", "attention_mask")],
        [t.tensor(name, shape) for name in ("start_logits", "end_logits")],
    )
    tiny.describe(folder / "qa")
    (folder / "qa" / "model.onnx").write_bytes(content)
    return model(folder / "qa", "--task", "question-answering", "--padding", "rows")


# --- external data -----------------------------------------------------------------------------------


@case(
    "external-missing",
    Code.EXTERNAL_DATA,
    "{folder}/m.onnx: its weights are in 'm.onnx_data', which is not there",
    "copy 'm.onnx_data' beside the model, under that name",
)
def external_missing(folder: Path) -> list[str]:
    path = tiny.externalise(tiny.tensor_model(folder / "m.onnx"), "m.onnx_data")
    (folder / "m.onnx_data").unlink()
    return model(path)


@case(
    "external-truncated",
    Code.TRUNCATED,
    "{folder}/m.onnx_data: the file is cut off: 4,000 bytes of at least 4,096",
    "copy or download it again and compare sizes",
)
def external_truncated(folder: Path) -> list[str]:
    path = tiny.externalise(tiny.tensor_model(folder / "m.onnx"), "m.onnx_data")
    os.truncate(folder / "m.onnx_data", 4000)
    return model(path)


@case(
    "external-outside",
    Code.EXTERNAL_DATA,
    "{folder}/m.onnx: its external data is outside its folder: '../x.bin'",
    "save the model again with its data beside it",
)
def external_outside(folder: Path) -> list[str]:
    return model(_relocated(folder, "../x.bin"))


@case(
    "external-absolute",
    Code.EXTERNAL_DATA,
    "{folder}/m.onnx: its external data is outside its folder: '/etc/passwd'",
    "save the model again with its data beside it",
)
def external_absolute(folder: Path) -> list[str]:
    return model(_relocated(folder, "/etc/passwd"))


def _relocated(folder: Path, location: str) -> Path:
    import onnx

    path = tiny.externalise(tiny.tensor_model(folder / "m.onnx"), "w.bin")
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(proto.SerializeToString())
    return path


@case(
    "lfs-external",
    Code.LFS_POINTER,
    "{folder}/m.onnx_data: this is a git-LFS pointer, not the weights",
    "run 'git lfs pull' in that repository, then build again",
)
def lfs_external(folder: Path) -> list[str]:
    path = tiny.externalise(tiny.tensor_model(folder / "m.onnx"), "m.onnx_data")
    (folder / "m.onnx_data").write_bytes(LFS)
    return model(path)


# --- graphs that cannot be served as asked -----------------------------------------------------------


@case(
    "bfloat16-input",
    Code.UNSUPPORTED_TYPE,
    "{folder}/m.onnx: input 'X' has type bfloat16, which Triton's onnxruntime backend cannot carry",
    "export with a Cast of 'X' to float16 or float32 at the graph's edge",
)
def bfloat16(folder: Path) -> list[str]:
    (folder / "m.onnx").write_bytes(t.identity(["n", 2], t.BF16))
    return model(folder / "m.onnx")


@case(
    "sequence-output",
    Code.UNSUPPORTED_TYPE,
    "{folder}/m.onnx: output 'Y' is a sequence; Triton carries only tensors",
    "export the model with plain tensor outputs",
)
def sequence(folder: Path) -> list[str]:
    nodes = [t.node("SequenceConstruct", ["X"], ["Y"])]
    (folder / "m.onnx").write_bytes(t.model(nodes, [t.tensor("X", ["n"])], [t.sequence("Y")]))
    return model(folder / "m.onnx")


@case(
    "fixed-input",
    Code.NOT_BATCHABLE,
    "{folder}/m.onnx: cannot batch (--batching on): the first axis of input 'X' is fixed at 4",
    "export again with a dynamic first axis on 'X' (torch: dynamic_axes), or use --batching off",
)
def fixed_input(folder: Path) -> list[str]:
    return model(tiny.tensor_model(folder / "m.onnx", batch=4), "--batching", "on")


@case(
    "fixed-output",
    Code.NOT_BATCHABLE,
    "{folder}/m.onnx: cannot batch (--batching on): the first axis of output 'Y' is fixed at 1",
    "export again with a dynamic first axis on 'Y' (torch: dynamic_axes), or use --batching off",
)
def fixed_output(folder: Path) -> list[str]:
    return model(tiny.tensor_model(folder / "m.onnx", out=[1, 32]), "--batching", "on")


@case(
    "rows-depend",
    Code.NOT_BATCHABLE,
    "{folder}/m.onnx: cannot batch (--batching on): rows of output 'Y' depend on each other",
    "leave that option out",
)
def rows_depend(folder: Path) -> list[str]:
    nodes = [t.node("Softmax", ["X"], ["Y"], axis=0)]
    (folder / "m.onnx").write_bytes(t.model(nodes, [t.tensor("X", ["n", 2])], [t.tensor("Y", ["n", 2])]))
    return ["--model", str(folder / "m.onnx"), "--batching", "on"]


@case(
    "preferred-size-of-a-model-without-batches",
    Code.NOT_BATCHABLE,
    "{folder}/m.onnx: cannot batch (--preferred-batch-size): the first axis of input 'X' is fixed at 4",
    "export again with a dynamic first axis on 'X' (torch: dynamic_axes), or use --batching off",
)
def preferred_without_batches(folder: Path) -> list[str]:
    return model(tiny.tensor_model(folder / "m.onnx", batch=4), "--preferred-batch-size", "8")


@case(
    "opset-too-new",
    Code.TOO_NEW,
    "{folder}/m.onnx: opset 23 is too new for Triton 24.10, whose ONNX Runtime 1.19.2 takes up to 21",
    f"export with opset 21 or older ({OPSET_OPTIONS}), or target --triton-release 25.09",
)
def too_new(folder: Path) -> list[str]:
    return model(tiny.tensor_model(folder / "m.onnx", opset=23))


@case(
    "unknown-operator",
    Code.GOLDEN_FAILED,
    "{folder}/m.onnx: ONNX Runtime cannot load the model: This is an invalid model. In Node, "
    '("", NoSuchOp, "", -1) : ("X": tensor(float),) -> ("Y": tensor(float),) , '
    "Error No Op registered for NoSuchOp with domain_version of 17",
    "repair or re-export the model; --no-golden builds without proving its answers",
)
def unknown_operator(folder: Path) -> list[str]:
    nodes = [t.node("NoSuchOp", ["X"], ["Y"])]
    (folder / "m.onnx").write_bytes(t.model(nodes, [t.tensor("X", ["n", 2])], [t.tensor("Y", ["n", 2])]))
    return ["--model", str(folder / "m.onnx")]


def _of_domain(domain: str, *options: str) -> Case:
    def write(folder: Path) -> list[str]:
        nodes = [t.node("Op", ["X"], ["Y"], domain=domain)]
        tensors = [t.tensor("X", ["n", 2])], [t.tensor("Y", ["n", 2])]
        (folder / "m.onnx").write_bytes(t.model(nodes, *tensors, domains=[domain]))
        return ["--model", str(folder / "m.onnx"), *options]

    return write


for _domain, _library, _file in (
    ("ai.onnx.contrib", "the library of onnxruntime-extensions", "libortextensions.so"),
    ("my.ops", "a library of their own", "LIBRARY.so"),
):
    for _options in ((), ("--no-golden",), ("--task", "tensor")):
        case(
            " ".join(("operators-of", _domain, *_options)),
            Code.UNSUPPORTED_MODEL,
            f"{{folder}}/m.onnx: its operators {_domain}:Op need {_library}, which trb does not put into a "
            "repository",
            "export the model without them (a tokenizer or image steps in the graph: trb adds them), or "
            f"write its config.pbtxt by hand with "
            f'model_operations {{ op_library_filename: "/opt/{_file}" }}, '
            "the path in the server",
        )(_of_domain(_domain, *_options))


# --- tokenizers --------------------------------------------------------------------------------------


@case(
    "tokenizer-of-another-model",
    Code.TOKENIZER_MISMATCH,
    "{folder}/bert/tokenizer.json: the tokenizer's ids go up to 58, "
    "but its embedding table has 40 rows (0 to 39)",
    "use the tokenizer that model.onnx was trained with (--tokenizer)",
)
def other_tokenizer(folder: Path) -> list[str]:
    return model(tiny.embedder(folder / "bert", rows=40))


@case(
    "tokenizer-slow-only",
    Code.SLOW_TOKENIZER,
    "{folder}/bert: the tokenizer has 'vocab.txt' but no tokenizer.json (a slow-only tokenizer): "
    "transformers cannot convert it: Couldn't instantiate the backend tokenizer",
    "put config.json and tokenizer_config.json beside it, or write a tokenizer.json with transformers 4: "
    'python -c "from transformers import AutoTokenizer as A; '
    "A.from_pretrained('{folder}/bert').save_pretrained('{folder}/bert')\"",
)
def slow_only(folder: Path) -> list[str]:
    tiny.embedder(folder / "bert")
    (folder / "bert" / "tokenizer.json").unlink()
    (folder / "bert" / "vocab.txt").write_text("[PAD]\n")
    return model(folder / "bert")


@case(
    "tokenizer-absent", Code.NOT_FOUND, "{folder}/tok: no such tokenizer",
    "give --tokenizer a tokenizer.json or a folder that holds one",
)  # fmt: skip
def no_tokenizer(folder: Path) -> list[str]:
    return model(tiny.embedder(folder / "bert"), "--tokenizer", str(folder / "tok"))


@case(
    "lfs-tokenizer",
    Code.LFS_POINTER,
    "{folder}/bert/tokenizer.json: this is a git-LFS pointer, not the tokenizer",
    "run 'git lfs pull' in that repository, then build again",
)
def lfs_tokenizer(folder: Path) -> list[str]:
    tiny.embedder(folder / "bert")
    (folder / "bert" / "tokenizer.json").write_bytes(LFS)
    return model(folder / "bert")


# --- options -----------------------------------------------------------------------------------------


def option(name: str, code: Code, message: str, remedy: str, *given: str) -> None:
    @case(name, code, message, remedy)
    def build(folder: Path) -> list[str]:
        return model(tiny.tensor_model(folder / "m.onnx"), *(word.format(folder=folder) for word in given))


for _bad, _clean in (
    ("a/b", "a_b"),
    ("my model", "my_model"),
    ("", "model"),
    ("..", "model"),
    ("a" * 129, "a" * 128),
):
    option(
        f"name-{_bad[:9]}",
        Code.BAD_NAME,
        f"--name: '{_bad}' cannot be the name of a Triton model",
        f"use letters, digits, '_', '-' and '.', at most 128 characters, e.g. --name {_clean}",
        "--name",
        _bad,
    )
for _bad in ("abc", "-1", "5 hours", "nan"):
    option(
        f"delay-{_bad}",
        Code.USAGE,
        f"--max-queue-delay: '{_bad}' is not a duration",
        "write a number and a unit: 200us, 5ms, 0.1s",
        f"--max-queue-delay={_bad}",
    )
option(
    "preferred-above-max",
    Code.USAGE,
    "--preferred-batch-size: 64 is larger than the maximum batch size 16",
    "lower it, or raise --max-batch-size to 64",
    *("--preferred-batch-size", "8,64", "--max-batch-size", "16"),
)
option(
    "unknown-release",
    Code.USAGE,
    "unknown Triton release '23.01'",
    "known releases: {releases}",
    *("--triton-release", "23.01"),
)
option(
    "output-below-a-file",
    Code.OUTPUT_NOT_WRITABLE,
    "{folder}/m.onnx: cannot be written: File exists",
    "choose a folder that you may write to with --output, or change its permissions",
    *("--output", "{folder}/m.onnx/repo"),
)
option(
    "output-is-a-file",
    Code.OUTPUT_FOREIGN,
    "{folder}/m.onnx: is a file, not a folder",
    "choose another folder with --output",
    *("--output", "{folder}/m.onnx"),
)
option(
    "output-not-ours",
    Code.OUTPUT_FOREIGN,
    "{folder}: holds files but no manifest.json of trb; nothing was touched",
    "choose an empty or a new folder with --output",
    *("--output", "{folder}"),
)
option(
    "directory-not-ours",
    Code.OUTPUT_FOREIGN,
    "{output}/old_model: the directory belongs to the endpoint 'old'; nothing was touched",
    "choose another name with --name, or move it away",
    *("--name", "old_model"),
)


@case(
    "unknown-key",
    Code.USAGE,
    "{folder}/trb.toml: unknown option 'max_batch' in [build]",
    "did you mean 'max_batch_size'?",
)
def unknown_key(folder: Path) -> list[str]:
    (folder / "trb.toml").write_text("[build]\nmax_batch = 8\n")
    return model(tiny.tensor_model(folder / "m.onnx"), "--config", str(folder / "trb.toml"))


@case(
    "no-toml",
    Code.USAGE,
    "{folder}/trb.toml: unknown table 'bild'",
    "options of trb build go into a table called [build]",
)
def unknown_table(folder: Path) -> list[str]:
    (folder / "trb.toml").write_text("[bild]\n")
    return model(tiny.tensor_model(folder / "m.onnx"), "--config", str(folder / "trb.toml"))


# --- inputs that no request gives, images, static embeddings --------------------------------------------


def with_number(folder: Path, shape: list[int | str]) -> Path:
    """X times the input ``scale``."""
    content = t.model(
        [t.node("Mul", ["X", "scale"], ["Y"])],
        [t.tensor("X", ["batch", 2]), t.tensor("scale", shape)],
        [t.tensor("Y", ["batch", 2])],
    )
    (folder / "m.onnx").write_bytes(content)
    return folder / "m.onnx"


@case(
    "constant-unknown",
    Code.USAGE,
    "--constant: the model has no input 'factor'",
    "its inputs are X, scale",
)
def constant_unknown(folder: Path) -> list[str]:
    return model(with_number(folder, []), "--constant", "factor=1")


@case(
    "constant-value",
    Code.USAGE,
    "--constant: 'many' is not a value of input scale float[]",
    "give a number of type float",
)
def constant_value(folder: Path) -> list[str]:
    return model(with_number(folder, []), "--constant", "scale=many")


@case(
    "constant-rank",
    Code.USAGE,
    "--constant: input scale float[batch, 1] is not a single number: a scalar, or one for each row",
    "export the model with it as a constant, or use --task tensor",
)
def constant_rank(folder: Path) -> list[str]:
    return model(with_number(folder, ["batch", 1]), "--constant", "scale=2")


@case(
    "constant-form",
    Code.USAGE,
    "--constant: 'scale' is not of the form input=value",
    "write for example task_id=1, each key once",
)
def constant_form(folder: Path) -> list[str]:
    return model(with_number(folder, []), "--constant", "scale")


OWN_STEPS = (
    "use --task tensor and send pixel_values, or describe the steps in a file of your own (docs/images.md) "
    "and name it with --preprocessor"
)


@case(
    "timm-border",
    Code.UNSUPPORTED_MODEL,
    "{folder}/m/config.json: timm's preprocessing cannot be followed: the crop_mode 'border' is not "
    "supported",
    OWN_STEPS,
)
def timm_border(folder: Path) -> list[str]:
    place = tiny_images.folder(folder / "m")
    (place / "preprocessor_config.json").unlink()
    config = {"architecture": "resnet18", "num_classes": 4, "pretrained_cfg": {"crop_mode": "border"}}
    tiny.put_json(place / "config.json", config)
    return model(place)


@case(
    "grey-images",
    Code.UNSUPPORTED_MODEL,
    "{folder}/m/config.json: num_channels is 1, and an image file gives three channels: red, green and blue",
    "use --task tensor and send 'pixel_values'",
)
def grey_images(folder: Path) -> list[str]:
    place = tiny_images.folder(folder / "m", config={"id2label": {"0": "a", "1": "b"}, "num_channels": 1})
    pixels = t.tensor("pixel_values", ["n", "num_channels", "h", "w"])
    (place / "model.onnx").write_bytes(t.model([], [pixels], [t.tensor("logits", ["n", 2])]))
    return model(place)


@case(
    "pages",
    Code.UNSUPPORTED_MODEL,
    "{folder}/model.onnx: this is layoutlmv3: it reads pages ('bbox': where each word is, as OCR finds it), "
    "and trb has no OCR",
    "use --task tensor, and make its inputs in the client with transformers' processor",
)
def pages(folder: Path) -> list[str]:
    tiny.describe(folder, model_type="layoutlmv3")
    inputs = [t.tensor("input_ids", ["b", "n"], t.INT64), t.tensor("bbox", ["b", "n", 4], t.INT64)]
    inputs.append(t.tensor("pixel_values", ["b", 3, 8, 8]))
    (folder / "model.onnx").write_bytes(t.model([], inputs, [t.tensor("logits", ["b", "n", 5])]))
    return model(folder)


@case(
    "task-id",
    Code.TASK_UNCLEAR,
    "{folder}/model.onnx: a tokenizer cannot fill its inputs (input_ids, task_id)",
    "give it once, --constant task_id=VALUE, or use --task tensor",
)
def task_id(folder: Path) -> list[str]:
    tiny.describe(folder)
    inputs = [t.tensor("input_ids", ["b", "n"], t.INT64), t.tensor("task_id", [], t.INT64)]
    (folder / "model.onnx").write_bytes(t.model([], inputs, [t.tensor("embeddings", ["b", 8])]))
    return model(folder, "--task", "embedding")


# --- the test ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one endpoint, to be copied."""
    folder = tmp_path_factory.mktemp("old")
    tiny.put(tiny.classifier(folder / "old"), folder / "model_repository")
    return folder / "model_repository"


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(["build", *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    return int(caught.value.code or 0), printed.err


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out, code, expected = CASES[name]
    folder, place = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    argv = lay_out(folder)
    output = place / "model_repository"
    shutil.copytree(repository, output)
    before = tiny.tree(tmp_path)
    given = argv if "--output" in argv else [*argv, "--output", str(output)]
    got = run(given, capsys)
    assert got == (int(code.exit), _filled(expected, folder, output))
    assert tiny.tree(tmp_path) == before


def _filled(text: str, folder: Path, output: Path) -> str:
    from triton_repo_builder.base import releases

    values: dict[str, Any] = {"folder": folder, "output": output, "releases": ", ".join(releases.load())}
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root may write everywhere, but for a read-only file system; where none can be mounted, it is played."""
    path = tiny.tensor_model(tmp_path / "m.onnx")
    place = tmp_path / "place"
    place.mkdir()
    output = place / "repo"
    mounted = tiny.mount_tmpfs(place, "ro")
    if not mounted:
        place.chmod(0o500)
    reason = os.strerror(errno.EROFS if mounted else errno.EACCES)
    try:
        code, err = run([*model(path), "--output", str(output)], capsys)
    finally:
        if mounted:
            tiny.unmount(place)
        else:
            place.chmod(0o700)
    assert code == Code.OUTPUT_NOT_WRITABLE.exit
    assert err == (
        f"error: {output}: cannot be written: {reason} [output-not-writable]\n"
        "  fix: choose a folder that you may write to with --output, or change its permissions\n"
    )


@pytest.mark.parametrize("left", [0, 2_000_000])
def test_a_disk_that_is_full_half_way(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny.classifier(tmp_path / "new")
    with tiny.small_disk(tmp_path / "disk", "30m") as mounted:
        output = tmp_path / "disk" / "sub" / "model_repository"
        tiny.put(tiny.tensor_model(tmp_path / "old.onnx"), output)
        before = tiny.tree(output.parent)
        if mounted:
            disk = os.statvfs(output)
            (tmp_path / "disk" / "filler").write_bytes(bytes(disk.f_bavail * disk.f_frsize - left))
        else:
            monkeypatch.setattr(files, "put", _full)
        code, err = run([*model(folder), "--output", str(output)], capsys)
        assert tiny.tree(output.parent) == before
    assert (code, err) == (
        int(Code.DISK_FULL.exit),
        f"error: {output}: the disk is full; the repository is unchanged [disk-full]\n"
        "  fix: free some space, or choose another disk with --output\n",
    )


def _full(file: files.File, root: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
