"""CPU time and memory of a process tree, and the process behind a port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from triton_repo_builder.run.serve.processes import cpu, stubs


def put_process(proc: Path, pid: int, parent: int, ticks: tuple[int, int, int, int]) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 9, *map(str, ticks), "20"]
    (folder / "stat").write_text(f"{pid} (a) name (odd)) {' '.join(fields)}")


def test_cpu_is_that_of_a_process_and_all_below_it(tmp_path: Path) -> None:
    second = os.sysconf("SC_CLK_TCK")
    put_process(tmp_path, 10, 1, (second, second, second // 2, 0))
    put_process(tmp_path, 11, 10, (2 * second, 0, 0, 0))
    put_process(tmp_path, 12, 11, (0, 3 * second, 0, 0))
    put_process(tmp_path, 13, 1, (100 * second, 0, 0, 0))
    (tmp_path / "self").mkdir()
    assert cpu.tree_seconds(10, tmp_path) == 7.5
    assert cpu.tree_seconds(99, tmp_path) is None
    assert (cpu.tree_seconds(os.getpid()) or 0) > 0


def test_a_stub_names_its_model_and_version() -> None:
    argv = ["/b/triton_python_backend_stub", "/r/bert_model/2/model.onnx", *["x"] * 6, "bert_model_0_1"]
    assert stubs.model_of(argv) == ("bert_model", "2")
    assert stubs.model_of(["/bin/sh", *argv[1:]]) is None
    assert stubs.model_of([]) is None


def test_the_share_of_the_machine() -> None:
    before, after = cpu.Busy(busy=100, total=1000), cpu.Busy(busy=150, total=1200)
    assert cpu.share(before, after) == 0.25
    assert cpu.share(before, before) is None
    assert cpu.share(None, after) is None
    assert cpu.machine() is not None


def test_only_a_loopback_url_names_a_process_of_this_machine() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        port = door.getsockname()[1]
        assert cpu.server_process(f"http://127.0.0.1:{port}") == os.getpid()
        assert cpu.server_process(f"http://localhost:{port}/") == os.getpid()
        assert cpu.server_process(f"http://10.0.0.1:{port}") is None
    assert cpu.server_process(f"http://127.0.0.1:{port}") is None
    assert cpu.local("127.0.0.1:8001")
    assert not cpu.local("gpu-7:8001")


def test_a_proxy_that_listens_for_a_container_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 777 1\n"
    )
    (tmp_path / "50" / "fd").mkdir(parents=True)
    (tmp_path / "50" / "fd" / "3").symlink_to("socket:[777]")
    (tmp_path / "50" / "comm").write_text("tritonserver\n")
    assert cpu.server_process("http://127.0.0.1:8000", tmp_path) == 50
    (tmp_path / "50" / "comm").write_text("docker-proxy\n")
    assert cpu.server_process("http://127.0.0.1:8000", tmp_path) is None
