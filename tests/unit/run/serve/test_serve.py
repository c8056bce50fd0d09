"""What serving decides without a server: what to load, which causes to show, which curl line to print."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cli import call, kind
from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.cli.serve import show_endpoints
from triton_repo_builder.repository.interface import Endpoint, Tensor
from triton_repo_builder.run import serve
from triton_repo_builder.run.codegen import snippets
from triton_repo_builder.run.options import ServeOptions
from triton_repo_builder.run.serve import log_lines
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.run.serve.embedded import engine, install, supervisor
from triton_repo_builder.run.serve.engine import Failure
from triton_repo_builder.run.serve.loading import failure_causes, load_unload, select, start
from triton_repo_builder.run.serve.processes import ports, proc, stubs

PYTHON = 'backend: "python"\n'


def model(root: Path, name: str, config: str | None = PYTHON, *files: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    for file in files or ("1/model.py",):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


def ensemble(root: Path, name: str, *steps: str) -> None:
    listed = ", ".join(f'{{ model_name: "{step}" model_version: -1 }}' for step in steps)
    model(root, name, f'platform: "ensemble"\nensemble_scheduling {{ step [ {listed} ] }}\n', "1/.gitkeep")


# --- what to load


def test_loads_the_tops_and_warns_of_strangers(tmp_path: Path) -> None:
    ensemble(tmp_path, "top", "middle", "leaf")
    ensemble(tmp_path, "middle", "leaf")
    model(tmp_path, "leaf")
    model(tmp_path, "alone", None, "3/model.py")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    chosen = select.choose(repository.read(tmp_path))
    assert chosen.load == chosen.endpoints == ("alone", "top")
    assert sorted(chosen.members) == ["alone", "leaf", "middle", "top"]
    assert chosen.not_models == ("docs",)
    assert chosen.failures == ()
    assert repository.read(tmp_path).needing("leaf") == ("middle", "top")


def test_loads_only_what_is_wanted(tmp_path: Path) -> None:
    ensemble(tmp_path, "top", "leaf")
    model(tmp_path, "leaf")
    model(tmp_path, "other")
    repo = repository.read(tmp_path)
    chosen = select.choose(repo, ("top",))
    assert (chosen.load, chosen.members) == (("top",), ("top", "leaf"))
    with pytest.raises(TrbError, match="did you mean 'other'") as error:
        select.choose(repo, ("othre",))
    assert error.value.code == Code.NOT_FOUND


def test_ensembles_in_a_circle_are_loaded_for_their_error(tmp_path: Path) -> None:
    ensemble(tmp_path, "a", "b")
    ensemble(tmp_path, "b", "a")
    assert select.choose(repository.read(tmp_path)).load == ("a", "b")


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        (PYTHON, ("1/other.py",), "1/model.py is missing"),
        (PYTHON, ("1/model.py", "2/other.py"), "2/model.py is missing"),
        (PYTHON, ("1/other.py", "2/model.py"), None),
        (PYTHON + "version_policy { all { } }", ("1/other.py", "2/model.py"), "1/model.py is missing"),
        (PYTHON + "version_policy { specific { versions: [1] } }", ("1/model.py", "2/x"), None),
        (
            PYTHON + "version_policy { latest { num_versions: 2 } }",
            ("1/x", "2/model.py"),
            "1/model.py is missing",
        ),
        (PYTHON + 'default_model_filename: "net.py"', ("1/net.py",), None),
        (PYTHON + 'default_model_filename: "net.py"', ("1/model.py",), "1/net.py is missing"),
        ('backend: "onnxruntime"', ("1/x",), None),
        ("backend: python", ("1/x",), None),
        (PYTHON, ("9223372036854775808/model.py",), "too large a number"),
    ],
)
def test_knows_before_the_start_what_would_hang(
    tmp_path: Path, config: str, files: tuple[str, ...], expected: str | None
) -> None:
    model(tmp_path, "m", config, *files)
    ensemble(tmp_path, "e", "m")
    chosen = select.choose(repository.read(tmp_path))
    if expected is None:
        assert chosen.failures == ()
        assert chosen.load == ("e",)
    else:
        assert [failure.model for failure in chosen.failures] == ["m"]
        assert expected in chosen.failures[0].cause
        assert chosen.load == ()


def test_an_empty_repository_and_a_model_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    with pytest.raises(TrbError, match=r"no model\n.*folder of model directories"):
        select.choose(repository.read(tmp_path))
    model(tmp_path, "m")
    with pytest.raises(TrbError, match=f"trb serve {tmp_path} --load m"):
        select.choose(repository.read(tmp_path / "m"))


# --- causes

LOG = """\
I1121 03:25:55.305309 6084 model_lifecycle.cc:472] "loading: imp:1"
[libprotobuf ERROR /tmp/tritonbuild/a.cc:335] Error parsing text-format inference.ModelConfig: 2:17: Expected integer, got: two
E1121 03:26:00.960599 6084 model_repository_manager.cc:1460] "Poll failed for model directory 'syn': failed to read text proto from /r/syn/config.pbtxt"
E1121 03:26:00.960599 6084 model_repository_manager.cc:1460] "Poll failed for model directory 'kind': unexpected platform type 'x' for kind"
E1121 03:26:00.970599 6084 ensemble_scheduler.cc:1468] "unable to create stream for e: CUDA driver version is insufficient"
Error: Failed to initialize NVML
| table |
 stub said this
"""  # noqa: E501


def test_a_failing_warm_up_is_the_cause_of_the_servers_death() -> None:
    said = "warm-up of model 'm' failed: onnx runtime error 2: no\n"
    assert failure_causes.warmups(f"I1 x\n{said}{said}Signal (11) received.\n") == (
        Failure(
            model="m", cause="its warm-up failed, and tritonserver died of that: onnx runtime error 2: no"
        ),
    )
    assert failure_causes.warmups("Signal (11) received.\n") == ()


def test_remedies_of_gpu_instances() -> None:
    none = Failure(
        model="a", cause="instance group a_0 of model a has kind KIND_GPU but no GPUs are available"
    )
    cuda = Failure(model="b", cause="a GPU instance needs CUDA: it cannot be loaded; pip install x")
    other = Failure(model="c", cause="ValueError: boom")
    or_cpu = "or build it with --device cpu (in a config.pbtxt made by hand: kind: KIND_CPU)"
    here = f"serve it on a machine with an NVIDIA GPU, {or_cpu}"
    install = f"install what is missing and start again, {or_cpu}"
    assert failure_causes.remedy([none, none], "correct that") == here
    assert failure_causes.remedy([other], "correct that") == "correct that"
    assert failure_causes.remedy([none, cuda, other], "correct that") == f"{here}; {install}; correct that"


def test_configurations_are_completed_unless_trb_wrote_all(tmp_path: Path) -> None:
    made = 'parameters { key: "trb.version" value { string_value: "1" } }\n'
    tensors = "".join(
        f'{way} {{ name: "{way}" data_type: TYPE_FP32 dims: 1 }}\n' for way in ("input", "output")
    )

    def flags(*extra: str) -> tuple[str, ...]:
        return start.as_written(repository.read(tmp_path), ServeOptions(extra=extra)).extra

    model(tmp_path, "ours", PYTHON + made + tensors)
    (tmp_path / "docs").mkdir()
    assert flags("--x") == ("--x", start.AS_THEY_STAND)
    assert flags(start.AS_THEY_STAND) == (start.AS_THEY_STAND,)
    model(tmp_path, "other", PYTHON + made)
    assert flags("--x") == ("--x",)
    (tmp_path / "other" / "config.pbtxt").write_text(PYTHON + tensors)
    assert flags() == ()
    (tmp_path / "other" / "config.pbtxt").unlink()
    assert flags() == ()


def test_causes_come_from_log_index_and_answers(tmp_path: Path) -> None:
    for name in ("imp", "syn", "kind", "unhealthy", "shape"):
        model(tmp_path, name)
    ensemble(tmp_path, "e", "imp")
    ensemble(tmp_path, "outer", "e")
    answers = {
        "outer": "load failed for model 'outer': ensemble 'outer' depends on 'e'.",
        "syn": "failed to load 'syn', failed to poll from model repository",
        "shape": "load failed for model 'shape': version 1 is at UNAVAILABLE state: Internal: bad dims;\n",
        "fine": "",
    }
    index = {
        "imp": (
            "UNAVAILABLE",
            "Internal: ModuleNotFoundError: No module named 'x'\n\nAt:\n  /r/imp/1/model.py(1): <module>\n"
            "  <frozen importlib._bootstrap>(241): _call\n",
        ),
        "unhealthy": ("UNAVAILABLE", "Internal: Stub process 'unhealthy_0_0' is not healthy."),
        "gone": ("UNAVAILABLE", "unloaded"),
        "fine": ("READY", ""),
    }
    found = failure_causes.failures(
        repository.read(tmp_path),
        answers,
        index,
        LOG,
        ends={"unhealthy": "exit code 3", "imp": "exit code 1"},
    )
    assert found == (
        Failure(
            model="imp",
            cause="ModuleNotFoundError: No module named 'x'",
            detail="/r/imp/1/model.py(1): <module>",
        ),
        Failure(model="kind", cause="unexpected platform type 'x' for kind"),
        Failure(model="shape", cause="bad dims"),
        Failure(model="syn", cause="config.pbtxt:2:17: Expected integer, got: two"),
        Failure(model="unhealthy", cause="its Python process ended while loading (exit code 3)"),
    )


def test_last_errors_leave_out_what_every_start_says() -> None:
    assert (
        failure_causes.last_errors("Error: Failed to initialize NVML\nout of disk\n| x |\n") == "out of disk"
    )
    crash = "Signal (11) received.\n 0# 0x0000558 in /x/tritonserver\n10# 0x00007F in /lib/libc.so.6\n"
    assert failure_causes.last_errors(crash) == "Signal (11) received."
    named = "what():  broken\nSignal (6) received.\n 4# abort in /lib/libc.so.6\n"
    assert failure_causes.last_errors(named) == "what():  broken\nSignal (6) received."
    assert log_lines.unquote('"a\\nb \\"c\\""') == 'a\nb "c"'


def test_a_known_fault_of_tritonserver_is_named() -> None:
    thrown = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'\n"
    assert "server issue 8882" in failure_causes.death_remedy(f"{thrown}Signal (6) received.\n")
    assert failure_causes.death_remedy("Signal (6) received.\n") == ""


def test_pointers_of_git_lfs_are_named_before_a_server_starts(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    for name in ("one", "two"):
        model(tmp_path, name, PYTHON, "1/model.py", "1/weights.bin", "2/model.py")
    (tmp_path / "one" / "1" / "weights.bin").write_text(pointer)  # only version 2 is served
    (tmp_path / "two" / "2" / "model.py").write_text(pointer)
    start.read(tmp_path, ServeOptions(models=("one",)), lambda text: None)
    with pytest.raises(TrbError) as error:
        start.read(tmp_path, ServeOptions(), lambda text: None)
    assert error.value.code is Code.LFS_POINTER
    assert error.value.message.endswith(": two/2/model.py")
    assert "git lfs pull" in error.value.remedy


# --- endpoints and curl


def body_of(curl: str) -> Any:
    """What the line sends: the argument, or what its program prints."""
    words = shlex.split(curl)
    if words[0] == "curl":
        return json.loads(words[words.index("-d") + 1])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(words[2])
    assert words[3:5] == ["|", "curl"]
    assert words[-1] == "@-"
    return json.loads(out.getvalue())


@pytest.fixture
def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    """A web server of canned JSON answers: its url and the answers by path."""
    canned: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/json"
            self.respond()

        def respond(self) -> None:
            status, answer = canned.get(self.path, (404, {"error": "no such thing"}))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", canned
        server.shutdown()


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


def test_curl_line_of_zeros(answers: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, canned = answers
    inputs = [tensor("T", "BYTES", -1, 1), tensor("X", "FP32", -1, 3, -1), tensor("O", "INT64", -1, 1)]
    inputs.append(tensor("B", "BOOL", -1, 2))
    canned["/v2/models/m"] = (200, {"inputs": inputs, "outputs": [tensor("Y", "FP32", -1, 2)]})
    canned["/v2/models/m/config"] = (200, {"input": [{"name": "O", "optional": True}, {"name": "X"}]})
    endpoint = snippets.usage(url, "m", tmp_path)
    assert endpoint.endpoint.inputs[1] == Tensor(name="X", datatype="FP32", shape=(-1, 3, -1))
    assert "| " not in endpoint.curl
    assert body_of(endpoint.curl) == {
        "inputs": [
            {"name": "T", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]},
            {"name": "X", "datatype": "FP32", "shape": [1, 3, 1], "data": [0.0, 0.0, 0.0]},
            {"name": "B", "datatype": "BOOL", "shape": [1, 2], "data": [False, False]},
        ]
    }


def endpoint(*inputs: Tensor, output: str = "FP32", max_batch_size: int = 8) -> Endpoint:
    outputs = (Tensor(name="Y", datatype=output, shape=(-1, 2)),)
    return Endpoint(name="a b", inputs=inputs, outputs=outputs, max_batch_size=max_batch_size)


def test_the_short_call_has_names_and_values_only() -> None:
    text = Tensor(name="TEXT", datatype="BYTES", shape=(-1, 1))
    vector = Tensor(name="X", datatype="FP32", shape=(-1, 2))
    item = {"name": "TEXT", "shape": [1, 1], "data": ["it's"]}
    line = snippets.curl_generate("http://h:1/", endpoint(text), [item])
    assert shlex.split(line) == [
        "curl",
        "-s",
        "http://h:1/v2/models/a%20b/generate",
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"TEXT": "it\'s"}',
    ]
    line = snippets.curl_generate(
        "h", endpoint(text, vector), [item, {"name": "X", "shape": [1, 2], "data": 0.5}]
    )
    assert body_of(line) == {"TEXT": "it's", "X": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("served", "shape"),
    [
        (endpoint(Tensor(name="X", datatype="FP32", shape=(-1, -1))), [1, 2]),
        (endpoint(Tensor(name="X", datatype="FP32", shape=(-1, 1))), [2, 1]),
        (endpoint(Tensor(name="X", datatype="FP32", shape=(-1, 1000))), [1, 1000]),
        (endpoint(Tensor(name="X", datatype="FP32", shape=(-1, 1)), output="FP16"), [1, 1]),
        (endpoint(Tensor(name="id", datatype="FP32", shape=(-1, 1))), [1, 1]),
    ],
    ids=["two free axes", "two items", "too long", "no JSON", "a field of the protocol"],
)
def test_no_short_call_that_the_server_would_refuse(served: Endpoint, shape: list[int]) -> None:
    item = {"name": served.inputs[0].name, "shape": shape, "data": 0.5}
    assert snippets.curl_generate("h", served, [item]) == ""


def test_curl_line_of_a_large_input_makes_it(answers: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, canned = answers
    canned["/v2/models/m"] = (
        200,
        {
            "inputs": [tensor('it\'s "X"', "UINT8", 1, 224, 224, 3), tensor("ON", "BOOL", 1)],
            "outputs": [tensor("Y", "FP16", 1), tensor("Z", "FP32", 1)],
        },
    )
    canned["/v2/models/m/config"] = (200, {})
    curl = snippets.usage(url, "m", tmp_path).curl
    assert len(curl) < 1200
    body = body_of(curl)
    assert body["inputs"][0] == {
        "name": 'it\'s "X"',
        "datatype": "UINT8",
        "shape": [1, 224, 224, 3],
        "data": [0] * 150528,
    }
    assert body["inputs"][1]["data"] == [False]
    assert body["outputs"] == [{"name": "Y", "parameters": {"binary_data": True}}, {"name": "Z"}]


def test_curl_line_of_the_shortest_telling_golden_case(
    answers: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    url, canned = answers
    canned["/v2/models/m"] = (200, {"inputs": [tensor("T", "BYTES", -1, 1)], "outputs": []})
    canned["/v2/models/m/config"] = (200, {})
    texts = ["a long text that is not the shortest", "", "it's ünique"]
    document = {
        "endpoint": "m",
        "recorded_with": "",
        "tolerance": {"alone": 0, "batched": 0, "reason": ""},
        "cases": [
            {"name": text, "inputs": [tensor("T", "BYTES", 1, 1) | {"data": [text]}], "outputs": []}
            for text in texts
        ],
    }
    (tmp_path / "smoke.json").write_text(json.dumps(document))
    assert body_of(snippets.usage(url, "m", tmp_path).curl)["inputs"][0]["data"] == ["it's ünique"]
    (tmp_path / "smoke.json").write_text("{}")
    assert body_of(snippets.usage(url, "m", tmp_path).curl)["inputs"][0]["data"] == ["hello"]


def test_texts_are_shown_one_and_many(
    answers: tuple[str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, canned = answers
    outputs = [tensor("Y", "FP32", -1, 2)]
    canned["/v2/models/m"] = (200, {"inputs": [tensor("T", "BYTES", -1, 1)], "outputs": outputs})
    canned["/v2/models/m/config"] = (200, {"max_batch_size": 8})
    usage = snippets.usage(url, "m", tmp_path)
    assert body_of(usage.generate) == {"T": "hello"}
    assert body_of(usage.curl)["inputs"][0]["data"] == ["hello", "hello"]
    show_endpoints([usage.to_json()])
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0::2] == [
        "# m, one text (the answers to several would be one flat list, without a shape):",
        "# m, 1 to 8 texts in a request:",
    ]
    assert lines[1::2] == [usage.generate, usage.curl]
    # As an older trb wrote it to its state file.
    show_endpoints([{**usage.to_json(), "titles": {}}])
    assert capsys.readouterr().out.splitlines()[-1] == usage.curl


def test_endpoints_that_curl_cannot_call_say_why(answers: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, canned = answers
    canned["/v2/models/m"] = (200, {"inputs": [tensor("H", "FP16", 1)], "outputs": []})
    canned["/v2/models/m/config"] = (200, {})
    endpoint = snippets.usage(url, "m", tmp_path)
    assert (endpoint.curl, endpoint.note) == ("", "H cannot travel as JSON: use a Triton client")
    canned["/v2/models/m/config"] = (200, {"model_transaction_policy": {"decoupled": True}})
    assert "decoupled" in snippets.usage(url, "m", tmp_path).note


# --- ports


def test_ports_are_chosen_and_distinct() -> None:
    at = ports.choose(ServeOptions(http_port=0, grpc_port=0, metrics_port=0))
    assert len({at.http, at.grpc, at.metrics}) == 3
    assert at.urls("0.0.0.0").http == f"http://127.0.0.1:{at.http}"
    assert at.urls("::1").grpc == f"[::1]:{at.grpc}"


@pytest.mark.parametrize("kind", ["http", "grpc", "metrics"])
def test_a_busy_port_is_named(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, f"{kind}_port": port}
        with pytest.raises(TrbError, match=f"port {port} is in use by .*process {os.getpid()}") as error:
            ports.choose(ServeOptions(**wanted))
    assert error.value.code == Code.PORT_BUSY
    assert error.value.where == f"--{kind}-port"


def test_the_same_port_twice_and_a_foreign_address() -> None:
    free = ports.choose(ServeOptions(http_port=0, grpc_port=0, metrics_port=0)).http
    with pytest.raises(TrbError) as twice:
        ports.choose(ServeOptions(http_port=free, grpc_port=free, metrics_port=0))
    assert (twice.value.code, twice.value.where) == (Code.PORT_BUSY, "--grpc-port")
    assert "for both http and grpc" in twice.value.message
    with pytest.raises(TrbError) as foreign:
        ports.choose(ServeOptions(host="192.0.2.1", http_port=0, grpc_port=0, metrics_port=0))
    assert (foreign.value.code, foreign.value.where) == (Code.USAGE, "--host")


# --- the installed engine


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the installed wheel and an interpreter that suits it."""
    root = tmp_path / "pytriton"
    stub = root / "tritonserver" / "python_backend_stubs" / "3.10" / "triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.touch()
    (root / "tritonserver" / "bin").mkdir()
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "libpython3.10.so.1.0").touch()
    found = SimpleNamespace(submodule_search_locations=[str(root)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(install.sys, "version_info", SimpleNamespace(major=3, minor=10))
    monkeypatch.setattr(install.sysconfig, "get_config_var", {"LIBDIR": str(lib)}.get)
    monkeypatch.setattr(install.sys, "base_prefix", str(tmp_path / "nowhere"))
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.26.4")
    return root


def test_a_usable_engine_is_found(wheel: Path) -> None:
    found = install.find()
    assert found.binary == wheel / "tritonserver" / "bin" / "tritonserver"
    assert found.libpython == wheel.parent / "lib"


def refusal() -> str:
    with pytest.raises(TrbError) as error:
        install.find()
    assert error.value.code == Code.ENGINE_MISSING
    assert error.value.remedy
    return str(error.value)


def test_an_unusable_engine_says_what_to_do(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel.parent / "lib" / "libpython3.10.so.1.0").unlink()
    assert "no shared library libpython3.10.so.1.0" in refusal()
    monkeypatch.setattr(install.sys, "version_info", SimpleNamespace(major=3, minor=14))
    assert "one of these: 3.10" in refusal()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.1.0")
    assert "pip install 'numpy<2'" in refusal()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    assert "this system has 2.31" in refusal()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'triton_repo_builder[embedded]'" in refusal()


def test_an_engine_of_another_name() -> None:
    with pytest.raises(TrbError, match="no engine 'podman'"):
        serve.start(Path(), engine="podman")


def test_command_line_listens_here_only() -> None:
    at = ports.Ports(http=1, grpc=2, metrics=3)
    options = ServeOptions(verbose=True, extra=("--buffer-manager-thread-count=2",))
    argv = engine.arguments(Path("/bin/t"), "/r", Path("/b"), options, at)
    assert argv[0] == "/bin/t"
    for word in ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"):
        assert word in argv
    assert argv[-2:] == ["--log-verbose=1", "--buffer-manager-thread-count=2"]


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("--trace-file=t.json", "--trace-file={}/t.json"),
        ("--trace-config=triton,file=t.json", "--trace-config=triton,file={}/t.json"),
        ("--model-repository=../more", "--model-repository={}/../more"),
        ("--model-repository=s3://bucket/more", "--model-repository=s3://bucket/more"),
        ("--log-file=/var/log/t", "--log-file=/var/log/t"),
        ("--trace-config=level=TIMESTAMPS", "--trace-config=level=TIMESTAMPS"),
    ],
)
def test_relative_paths_of_options_are_the_users(
    option: str, here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = ports.Ports(http=1, grpc=2, metrics=3)
    argv = engine.arguments(Path("/bin/t"), "/r", Path("/b"), ServeOptions(extra=(option,)), at)
    assert argv[-1] == here.format(tmp_path)


def test_environment_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":src")
    monkeypatch.setenv("AWS_CONFIG_FILE", "aws/config")
    parts = install.Install(
        tritonserver=Path("/t"), libraries=Path("/l"), stub=Path("/s"), libpython=Path("/p")
    )
    found = install.environment(parts, Path("/folder"))
    assert "PYTHONPATH" not in found
    assert found["AWS_CONFIG_FILE"] == str(tmp_path / "aws" / "config")
    assert found["PATH"].startswith("/folder/python/bin:")


# --- processes


def test_how_a_process_ended() -> None:
    assert stubs.how_ended(3 << 8) == "exit code 3"
    assert stubs.how_ended(9) == "killed by SIGKILL (out of memory?)"
    assert stubs.how_ended(0x80 | 11) == "killed by SIGSEGV"


def test_regions_of_a_process_in_its_maps() -> None:
    line = (
        "7f-8f rw-s 0 00:18 1 /dev/shm/triton_python_backend_shm_region_ab-1\n"
        "7f-8f rw-s 0 00:18 1 /dev/shm/other\n"
        "7f-8f rw-s 0 00:18 1 /dev/shm/triton_onnxruntime_backend_shm_region_cd-2 (deleted)\n"
    )
    assert supervisor.REGION.findall(line) == [
        "/dev/shm/triton_python_backend_shm_region_ab-1",
        "/dev/shm/triton_onnxruntime_backend_shm_region_cd-2",
    ]


# --- servers in the background


def entry(name: str, pid: int, born: str, where: str = "/r") -> registry.Background:
    return registry.Background(
        pid=pid,
        born=born,
        name=name,
        repository=f"{where}/{name}",
        engine="embedded",
        server_pid=pid,
        urls={"http": "h", "grpc": "g", "metrics": "m"},
        log="l",
        started=1.0,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return registry.folder()


def test_the_address_of_a_repositorys_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {
        1: ["/opt/tritonserver", f"--model-repository={tmp_path / 'a'}", "--http-port=81"],
        2: ["/opt/tritonserver", "--model-store", str(tmp_path / "b")],
        3: ["/bin/cat", f"--model-repository={tmp_path / 'c'}"],
        4: ["/opt/tritonserver", "--model-repository=s3://bucket"],
        5: [],
    }
    monkeypatch.setattr(proc, "pids", lambda: iter(commands))
    monkeypatch.setattr(proc, "arguments", commands.__getitem__)
    monkeypatch.setattr(proc, "path", lambda pid, named: Path(named))
    found = {name: load_unload.address(tmp_path / "x" / ".." / name) for name in "abc"}
    assert found == {"a": "http://127.0.0.1:81", "b": "http://127.0.0.1:8000", "c": ""}
    detached = entry("a", os.getpid(), proc.start_time(os.getpid()), str(tmp_path))
    registry.write(folder / "a.json", detached)
    assert load_unload.address(tmp_path / "a") == "h"
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert load_unload.address(tmp_path / "a") == "http://127.0.0.1:81"


def test_state_of_live_servers_stays_and_of_others_goes(folder: Path) -> None:
    mine = entry("live", os.getpid(), proc.start_time(os.getpid()))
    registry.write(folder / "a.json", mine)
    registry.write(folder / "b.json", entry("reused", os.getpid(), "1"))
    registry.write(folder / "c.json", entry("died", 2**22 + 1, "1"))
    (folder / "c.messages").write_text("loading\nerror: it broke\n  fix: mend it\n")
    (folder / "d.json").write_text("{")
    running, ended = registry.sweep()
    assert running == (mine,)
    assert ended == (("reused", "was killed"), ("died", "error: it broke\n  fix: mend it"))
    assert [file.name for file in folder.iterdir()] == ["a.json"]


def test_which_server_is_meant() -> None:
    a, b, c = entry("a", 11, ""), entry("b", 12, ""), entry("b", 13, "", "/other")
    assert registry.select((a,), None) == a
    assert registry.select((a, b), "a") == a
    assert registry.select((a, b), "12") == b
    assert registry.select((a, b, c), "/other/b") == c
    second = replace(a, name="a-2", pid=14)
    assert registry.select((a, second), "a-2") == second
    for servers, wanted, code, words in [
        ((), None, Code.NOT_RUNNING, "trb serve --detach"),
        ((a, b), None, Code.USAGE, "a (11), b (12)"),
        ((a, b, c), "b", Code.USAGE, "b (12), b (13)"),
        ((a, b), "z", Code.NOT_RUNNING, "a (11), b (12)"),
    ]:
        with pytest.raises(TrbError) as error:
            registry.select(servers, wanted)
        assert error.value.code == code
        assert words in error.value.remedy


@pytest.mark.parametrize("command", ["logs", "stop", "status"])
def test_only_trb_stop_offers_all_of_several_servers(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = (entry("a", 2**22 + 1, ""), entry("a", 2**22 + 2, "", "/other"))
    monkeypatch.setattr(registry, "sweep", lambda: (servers, ()))
    done = call(command, "a")
    assert done.returncode == 2
    assert kind(done.stderr) is Code.USAGE
    assert ("--all" in done.stderr) == (command == "stop")


def test_a_server_gets_a_free_name(folder: Path) -> None:
    mine = entry("repo", os.getpid(), proc.start_time(os.getpid()))
    registry.write(folder / "died.json", entry("repo", 2**22 + 1, "1"))
    for name in ("a", "b", "c"):
        registry.add(folder / f"{name}.json", mine)
    registry.add(folder / "d.json", mine, "named")
    names = [str(json.loads((folder / f"{name}.json").read_text())["name"]) for name in "abcd"]
    assert names == ["repo", "repo-2", "repo-3", "named"]
    assert (folder / "died.json").exists(), "trb status has not yet said how that one ended"


def test_of_two_servers_of_a_folder_the_name_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, elsewhere = entry("repo", 11, "", str(tmp_path)), entry("repo", 12, "")
    second, other = replace(first, name="repo-2", pid=13), replace(elsewhere, name="other")
    assert registry.select((first, second), "repo") == first
    with pytest.raises(TrbError, match="2 servers match"):  # the path of one, the name of another
        registry.select((second, elsewhere), "repo")
    assert registry.select((second, other), "repo") == second


def test_two_servers_cannot_have_the_same_name(folder: Path) -> None:
    mine = entry("repo", os.getpid(), proc.start_time(os.getpid()))
    registry.add(folder / "a.json", mine, "mini")
    registry.check_free("repo")
    with pytest.raises(TrbError) as error:
        registry.add(folder / "b.json", mine, "mini")
    assert error.value.code == Code.USAGE
    assert "trb stop mini" in error.value.remedy
    assert not (folder / "b.json").exists()


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("mini-2", True),
        ("7b", True),
        ("größe.x", True),
        ("42", False),
        ("-x", False),
        ("a b", False),
        ("a/b", False),
    ],
)
def test_a_name_is_neither_a_process_id_nor_an_option(name: str, valid: bool) -> None:
    assert bool(registry.NAME.fullmatch(name)) is valid


def test_stubs_of_a_server_that_reads_a_bucket_are_told_apart_by_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path, "bert", PYTHON + 'instance_group [ { name: "pool" count: 2 } ]\n')
    model(tmp_path, "bert_tokenizer")
    owners = stubs.model_of_instance(repository.read(tmp_path))
    looked = stubs.StubProcesses(1, "/downloads", owners)
    for instance, name in {
        "pool_1": "bert",
        "bert": "bert",
        "bert_tokenizer_0_0": "bert_tokenizer",
        "bertha_0": "",
    }.items():
        arguments = ["x/triton_python_backend_stub", "/downloads/folderAb/1/model.py", *"234567", instance]
        line = "\0".join(arguments).encode()
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", lambda self, line=line: line)
            found = looked._describe(7)
        assert found == stubs.Stub(
            pid=7, model=name, version="1", instance=instance, file="/downloads/folderAb/1/model.py"
        )
