"""A certificate that nobody trusts, made with openssl, and TLS in front of a server that speaks none."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from needs import unavailable


@dataclass(frozen=True)
class Certificate:
    """Self-signed, so its own CA; for ``localhost`` and 127.0.0.1 unless another name is given."""

    file: Path
    key: Path


def make(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    openssl = shutil.which("openssl") or unavailable("openssl is not installed (apt-get install openssl)")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    argv = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=trb test"]
    argv += ["-addext", f"subjectAltName={names}", "-out", str(made.file), "-keyout", str(made.key)]
    subprocess.run([openssl, *argv], check=True, capture_output=True)
    return made


@contextlib.contextmanager
def in_front_of(target: tuple[str, int], certificate: Certificate) -> Iterator[str]:
    """``127.0.0.1:PORT`` that speaks TLS and hands everything on in the clear."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    def serve(near: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(near, server_side=True) as clear,
            socket.create_connection(target) as far,
        ):
            back = threading.Thread(target=pump, args=(far, clear), daemon=True)
            back.start()
            pump(clear, far)
            back.join(10)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
