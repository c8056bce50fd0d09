"""How a registry's challenge is answered: with what ``docker login`` stored, over real HTTP on loopback."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores.location import Image
from triton_repo_builder.ship.stores.oci_client import Client

BASIC = base64.b64encode(b"anna:secret").decode()


class Registry:
    """One blob behind a login, and the token service of it."""

    def __init__(self, kind: str) -> None:
        outer = self
        self.stored: dict[str, bytes] = {}

        class Handler(BaseHTTPRequestHandler):
            def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                given = self.headers.get("Authorization", "")
                if parts.path == "/token":
                    known = given == f"Basic {BASIC}"
                    token = json.dumps({"token": query["scope"].split(":")[-1]}).encode()
                    return self.answer(200, token) if known else self.answer(401)
                needed = "pull,push" if self.command == "POST" else "pull"
                scope = f"repository:team/m:{needed}"
                challenge = (
                    'Basic realm="x"'
                    if kind == "basic"
                    else f'Bearer realm="http://{outer.address}/token",service="s",scope="{scope}"'
                )
                allowed = [f"Basic {BASIC}"] if kind == "basic" else ["Bearer pull,push"]
                allowed += ["Bearer pull"] if kind == "bearer" and needed == "pull" else []
                if self.command != "PUT" and given not in allowed:
                    return self.answer(401, WWW_Authenticate=challenge)
                if self.command == "POST":
                    return self.answer(202, Location="/upload?state=1")
                if self.command == "PUT":
                    if given not in (f"Basic {BASIC}", "Bearer pull,push"):
                        return self.answer(403)
                    outer.stored[query["digest"]] = body
                    return self.answer(201)
                blob = outer.stored.get(parts.path.rsplit("/", 1)[1])
                return self.answer(404) if blob is None else self.answer(200, blob)

            do_GET = do_HEAD = do_PUT = do_POST = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@pytest.fixture(params=["basic", "bearer"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    made = Registry(request.param)
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def login(folder: Path, registry: str, auth: str) -> None:
    (folder / "config.json").write_text(json.dumps({"auths": {registry: {"auth": auth}}}))


def test_logs_in_with_what_docker_stored(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    login(tmp_path, registry.address, BASIC)
    image = stores.parse(f"oci://{registry.address}/team/m:1")
    assert isinstance(image, Image)
    client = Client(image)
    assert client.size("sha256:12") is None
    client.put_blob("sha256:12", iter([b"abc", b"", b"de"]), 5)
    assert registry.stored == {"sha256:12": b"abcde"}
    assert client.size("sha256:12") == 5
    assert b"".join(client.blob("sha256:12")) == b"abcde"


def test_says_what_to_do_without_a_login(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    image = stores.parse(f"oci://{registry.address}/team/m:1")
    assert isinstance(image, Image)
    with pytest.raises(TrbError) as caught:
        Client(image).size("sha256:12")
    assert caught.value.code == Code.ACCESS_DENIED
    assert "docker login" in caught.value.remedy


@pytest.mark.parametrize(
    ("registry", "scheme"),
    [
        ("localhost", "http"),
        ("localhost:5000", "http"),
        ("127.0.0.1:5000", "http"),
        ("localhost.example.com", "https"),
        ("127.example.com:5000", "https"),
        ("registry.example.com", "https"),
    ],
)
def test_only_this_machine_is_spoken_to_in_the_clear(registry: str, scheme: str) -> None:
    image = stores.parse(f"oci://{registry}/team/m:1")
    assert isinstance(image, Image)
    assert Client(image)._base == f"{scheme}://{registry}/v2/team/m/"
