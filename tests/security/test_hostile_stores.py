"""Stores that lie about sizes, never end, send elsewhere or pack too well: one clear error each."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import keys, s3_server
from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Manifest
from triton_repo_builder.run.client import HttpClient, NoAnswer
from triton_repo_builder.run.client import http as client_http
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import (
    external_weights,
    oci_client,
    oci_layers,
    registry_tags,
    signing_keys,
)
from triton_repo_builder.ship.stores.s3 import S3Store

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BLOCK = bytes(1 << 16)
SENT = 64 << 20
"""Bytes that nobody may have taken of an answer that never ends: the limit, and what lies in buffers."""
Act = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Does what a test says for each path; remembers what it was asked, and how much it could send."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: dict[str, Act] = {}
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and ``Authorization``."""
        self.encodings: set[str] = set()
        self.sent = 0
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def act(self) -> None:
        self.close_connection = True
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.asked.append((self.command, path, self.headers.get("Authorization", "")))
        self.server.encodings.add(self.headers.get("Accept-Encoding", ""))
        act = self.server.acts.get(path) or self.server.acts.get("")
        with contextlib.suppress(OSError):  # the client had enough
            act(self) if act else reply(b"", 404)(self)

    do_GET = do_HEAD = do_POST = do_PUT = act

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def reply(body: bytes, status: int = 200, length: int | None = None, **headers: str) -> Act:
    def act(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return act


def endless(status: int = 200, **headers: str) -> Act:
    def act(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        while not handler.server.over.is_set():
            handler.wfile.write(BLOCK)
            handler.server.sent += len(BLOCK)

    return act


def drip(handler: Handler) -> None:
    """A byte now and then: no socket's time limit ever ends."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b" ")


def drip_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b"x")


def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


server = pytest.fixture(name="server")(serving)
other = pytest.fixture(name="other")(serving)


@pytest.fixture(autouse=True)
def nobodys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login of this machine's; a ``~/.netrc`` with one for every host."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("default login me password secret\n")
    s3_server.use(monkeypatch)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def file(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def header(kind: bytes, size: int) -> bytes:
    """A header alone, of any size."""
    info = tarfile.TarInfo("models/m/1/x")
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    block[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(block))[0]
    return bytes(block)


def image(server: Server, layer: bytes, size: int | None = None, digest: str = "") -> str:
    """The image ``m:1`` of one layer; its digest."""
    digest = digest or sha256(layer)
    described = {"digest": digest, "size": len(layer) if size is None else size}
    manifest = json.dumps({"layers": [described]}).encode()
    server.acts["/v2/m/manifests/1"] = reply(manifest)
    server.acts[f"/v2/m/blobs/{digest}"] = reply(layer)
    return sha256(manifest)


def pull(url: str, target: Path) -> TrbError:
    with pytest.raises(TrbError) as caught:
        stores.pull(stores.parse(url), target, lambda name, done, total: None)
    assert not target.exists() or not any(target.iterdir())
    assert caught.value.remedy
    return caught.value


def pull_image(server: Server, tmp_path: Path) -> TrbError:
    return pull(f"oci://{server.address}/m:1", tmp_path / "pulled")


# --- registries: documents


def test_a_manifest_without_end(server: Server, tmp_path: Path) -> None:
    server.acts["/v2/m/manifests/1"] = endless()
    assert pull_image(server, tmp_path).code is Code.DIGEST_MISMATCH
    assert server.sent < SENT


def test_an_error_without_end(server: Server, tmp_path: Path) -> None:
    server.acts["/v2/m/manifests/1"] = endless(403)
    assert pull_image(server, tmp_path).code is Code.ACCESS_DENIED
    assert server.sent < SENT


def test_a_packed_manifest_is_not_unpacked(server: Server, tmp_path: Path) -> None:
    packed = gzip.compress(bytes(400 << 20), 1)
    server.acts["/v2/m/manifests/1"] = reply(packed, Content_Encoding="gzip")
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED
    assert server.encodings == {"identity"}


@pytest.mark.parametrize("slow", [drip, drip_headers])
def test_a_manifest_that_drips(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Act
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    server.acts["/v2/m/manifests/1"] = slow
    assert pull_image(server, tmp_path).code is Code.STORAGE_UNREACHABLE


def test_a_list_of_tags_without_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_client, "PAGES", 5)
    server.acts["/v2/m/tags/list"] = reply(b'{"tags": ["a"]}', Link='</v2/m/tags/list?n=1>; rel="next"')
    with pytest.raises(TrbError) as caught:
        stores.revisions(stores.parse(f"oci://{server.address}/m:1"))
    assert (caught.value.code, len(server.asked)) == (Code.STORAGE_FAILED, 5)


@pytest.mark.parametrize("document", [b"[]", b'{"tags": 5}', b"no", b"[" * 100_000])
def test_a_list_of_tags_of_another_shape(server: Server, document: bytes) -> None:
    server.acts["/v2/m/tags/list"] = reply(document)
    with pytest.raises(TrbError) as caught:
        stores.revisions(stores.parse(f"oci://{server.address}/m:1"))
    assert caught.value.code is Code.STORAGE_FAILED


# --- registries: logins and redirects


def challenge(realm: str) -> Act:
    return reply(b"", 401, WWW_Authenticate=f'Bearer {realm},service="s",scope="repository:m:pull"')


def login(server: Server, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    auths = {"auths": {server.address: {"auth": "bWU6c2VjcmV0"}}}
    (tmp_path / "docker" / "config.json").write_text(json.dumps(auths))


@pytest.mark.parametrize(
    ("realm", "code"),
    [
        ('realm="file:///etc/passwd"', Code.STORAGE_FAILED),
        ('realm="ftp://127.0.0.1/x"', Code.STORAGE_FAILED),
        ('realm="http://{here}/token"', Code.DIGEST_MISMATCH),
        ('realm="http://{here}/odd"', Code.STORAGE_FAILED),
        ('realm="http://{here}/list"', Code.STORAGE_FAILED),
        ('nothing="x"', Code.ACCESS_DENIED),
    ],
)
def test_a_hostile_token_service(server: Server, tmp_path: Path, realm: str, code: Code) -> None:
    server.acts["/v2/m/manifests/1"] = challenge(realm.replace("{here}", server.address))
    server.acts["/token"] = endless()
    server.acts["/odd"] = reply(b"{}")
    server.acts["/list"] = reply(b"[1]")
    assert pull_image(server, tmp_path).code is code
    assert server.sent < SENT


def test_a_login_goes_to_no_other_host(server: Server, other: Server, tmp_path: Path) -> None:
    login(server, tmp_path)
    layer = tar(file("models/m/config.pbtxt"))
    image(server, layer)
    served = server.acts["/v2/m/manifests/1"]
    server.acts["/v2/m/manifests/1"] = lambda handler: (
        served if handler.headers.get("Authorization") else reply(b"", 401, WWW_Authenticate="Basic realm=x")
    )(handler)
    moved = f"http://{other.address}/somewhere"
    server.acts[f"/v2/m/blobs/{sha256(layer)}"] = endless(307, Location=moved)
    other.acts["/somewhere"] = reply(layer)
    stores.pull(stores.parse(f"oci://{server.address}/m:1"), tmp_path / "pulled", lambda *facts: None)
    assert (tmp_path / "pulled" / "m" / "config.pbtxt").read_bytes() == b"x"
    assert server.asked[-1][2].startswith("Basic ")
    assert other.asked == [("GET", "/somewhere", "")]


def test_an_upload_elsewhere_goes_without_the_login(server: Server, other: Server, tmp_path: Path) -> None:
    login(server, tmp_path)
    server.acts["/v2/m/blobs/uploads/"] = lambda handler: (
        reply(b"", 202, Location=f"http://{other.address}/up")
        if handler.headers.get("Authorization")
        else reply(b"", 401, WWW_Authenticate="Basic realm=x")
    )(handler)
    other.acts["/up"] = reply(b"", 201)
    location: Any = stores.parse(f"oci://{server.address}/m:1")
    oci_client.Client(location).put_blob("sha256:12", iter([b"ab"]), 2)
    assert other.asked == [("PUT", "/up", "")]


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/v2/m/manifests/1", "//[", "gopher://x"]
)
def test_a_redirect_to_nowhere(server: Server, tmp_path: Path, place: str) -> None:
    server.acts["/v2/m/manifests/1"] = endless(302, Location=place)
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED
    assert server.sent < SENT


# --- registries: layers


def test_a_blob_larger_than_its_descriptor_says(server: Server, tmp_path: Path) -> None:
    layer = tar(file("models/m/config.pbtxt"))
    image(server, layer, size=len(layer) - 1)
    assert pull_image(server, tmp_path).code is Code.DIGEST_MISMATCH
    server.acts[f"/v2/m/blobs/{sha256(layer)}"] = endless()
    assert pull_image(server, tmp_path).code is Code.DIGEST_MISMATCH
    assert server.sent < SENT


@pytest.mark.parametrize("size", [10**6, -1, 2**70, "x", None, True, [1]])
def test_a_size_that_does_not_hold(server: Server, tmp_path: Path, size: Any) -> None:
    layer = tar(file("models/m/config.pbtxt"))
    image(server, layer)
    described = {"digest": sha256(layer), "size": size}
    server.acts["/v2/m/manifests/1"] = reply(json.dumps({"layers": [described]}).encode())
    code = Code.DIGEST_MISMATCH if size == 10**6 else Code.STORAGE_FAILED
    assert pull_image(server, tmp_path).code is code


LAYERS = {
    "a header of 3 GB": lambda: header(tarfile.XHDTYPE, 3 << 30) + bytes(4096),
    "a global header of 3 GB": lambda: header(tarfile.XGLTYPE, 3 << 30) + bytes(4096),
    "a name of 3 GB": lambda: header(tarfile.GNUTYPE_LONGNAME, 3 << 30) + bytes(4096),
    "a name of 3 GB, packed": lambda: gzip.compress(header(tarfile.GNUTYPE_LONGLINK, 3 << 30) + bytes(99999)),
    "names of names": lambda: (header(tarfile.GNUTYPE_LONGNAME, 1) + bytes(512)) * 20_000,
    "a size below zero": lambda: header(tarfile.REGTYPE, -5000) + bytes(4096),
    "a sparse file of 1 TB": lambda: sparse(1 << 40),
    "a file that ends early": lambda: header(tarfile.REGTYPE, 1 << 40) + bytes(4096),
    "no tar": lambda: b"no tar at all" * 100,
    "half of a gzip": lambda: gzip.compress(os.urandom(9999))[:5000],
    "bzip2": lambda: __import__("bz2").compress(tar(file("models/m/config.pbtxt"))),
}


def sparse(size: int) -> bytes:
    block = bytearray(header(tarfile.GNUTYPE_SPARSE, 512))
    block[386:398] = tarfile.itn(size - 512, 12, tarfile.GNU_FORMAT)
    block[398:410] = tarfile.itn(512, 12, tarfile.GNU_FORMAT)
    block[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    block[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(block))[0]
    return bytes(block) + bytes(512 * 3)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_hostile_layer(server: Server, tmp_path: Path, kind: str) -> None:
    image(server, LAYERS[kind]())
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED


def test_a_layer_that_unpacks_too_well(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = gzip.compress(tar(file("models/m/1/x", bytes(32 << 20))))
    image(server, layer)
    monkeypatch.setattr(oci_layers, "ANYWAY", 1 << 20)
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED
    # What is beside the models is not written, and counts as well.
    image(server, gzip.compress(tar(file("else/x", bytes(32 << 20)), file("models/m/1/x"))))
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED
    monkeypatch.undo()
    image(server, layer)
    stores.pull(stores.parse(f"oci://{server.address}/m:1"), tmp_path / "pulled", lambda *facts: None)
    assert (tmp_path / "pulled" / "m" / "1" / "x").stat().st_size == 32 << 20


def layers(server: Server, *each: bytes) -> None:
    """One image of these layers."""
    described = [{"digest": sha256(layer), "size": len(layer)} for layer in each]
    server.acts |= {f"/v2/m/blobs/{sha256(layer)}": reply(layer) for layer in each}
    server.acts["/v2/m/manifests/1"] = reply(json.dumps({"layers": described}).encode())


def test_layers_that_unpack_too_well_together(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oci_layers, "ANYWAY", 40 << 20)
    packed = [gzip.compress(tar(file(f"models/m/1/{number}", bytes(16 << 20)))) for number in range(3)]
    layers(server, *packed[:2])
    stores.pull(stores.parse(f"oci://{server.address}/m:1"), tmp_path / "two", lambda *facts: None)
    layers(server, *packed)
    error = pull_image(server, tmp_path)
    assert error.code is Code.STORAGE_FAILED and "holds more than" in error.message


def test_an_image_of_too_many_layers(server: Server, tmp_path: Path) -> None:
    layer = tar(file("models/m/1/x"))
    layers(server, *[layer] * 128)
    assert "128 layers, at most 127" in pull_image(server, tmp_path).message
    assert len(server.asked) == 1
    layers(server, *[layer] * 127)
    stores.pull(stores.parse(f"oci://{server.address}/m:1"), tmp_path / "pulled", lambda *facts: None)


def test_layers_of_too_many_files(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_layers, "MEMBERS", 10)
    image(server, tar(*(file(f"models/m/1/{number}") for number in range(11))))
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED
    layers(server, *(tar(*(file(f"models/m/{i}/{j}") for j in range(6))) for i in range(2)))
    assert pull_image(server, tmp_path).code is Code.STORAGE_FAILED


@pytest.mark.parametrize("name", ["models/../../marker", "models//marker", "models/m/../../../marker"])
def test_a_layer_that_leads_outside(server: Server, tmp_path: Path, name: str) -> None:
    image(server, tar(file(name)))
    assert pull_image(server, tmp_path).code is Code.DIGEST_MISMATCH
    assert not list(tmp_path.rglob("marker")) and not Path("/marker").exists()


@pytest.mark.parametrize("name", [".git/config", "m/.GIT/config", ".models.trb-x/.undo.json", "m/\x1b[2J"])
def test_a_layer_with_what_no_push_sends(server: Server, tmp_path: Path, name: str) -> None:
    """git runs what a .git says; a name of ours might be taken for what a killed trb left."""
    image(server, tar(file(f"models/{name}")))
    assert pull_image(server, tmp_path).code is Code.DIGEST_MISMATCH


# --- registries: signatures


ELSEWHERE = "../../other/blobs/sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("blob", "act", "code"),
    [
        (sha256(b""), endless(), Code.DIGEST_MISMATCH),
        (sha256(b""), drip, Code.STORAGE_UNREACHABLE),
        (sha256(b""), reply(b"[" * 100_000), Code.BAD_SIGNATURE),
        (sha256(b""), reply(b"", 404), Code.BAD_SIGNATURE),
        (ELSEWHERE, reply(b"{}"), Code.BAD_SIGNATURE),
    ],
    ids=["endless", "drip", "deep", "missing", "elsewhere"],
)
def test_a_hostile_signature(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blob: str, act: Act, code: Code
) -> None:
    if act is drip:
        monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    trust = signing_keys.read_trust(keys.pair(tmp_path, "key").public)
    digest = image(server, tar(file("models/m/config.pbtxt")))
    tag = registry_tags.signature_tag(digest, trust.keys[0].id)
    server.acts[f"/v2/m/manifests/{tag}"] = reply(json.dumps({"layers": [{"digest": blob}]}).encode())
    server.acts[f"/v2/m/blobs/{blob}"] = act
    with pytest.raises(TrbError) as caught:
        stores.verified(stores.parse(f"oci://{server.address}/m:1"), trust)
    assert caught.value.code is code
    assert server.sent < SENT
    assert not any("other" in path for _, path, _ in server.asked)


# --- buckets


def bucket(server: Server, entry: dict[str, Any] | None = None) -> None:
    """A revision with one file ``m/1/x`` of 10 bytes, as the index says."""
    facts = entry or {"sha256": hashlib.sha256(b"0123456789").hexdigest(), "bytes": 10}
    index = json.dumps({"schema": 1, "files": {"m/1/x": facts}}).encode()
    digest = hashlib.sha256(index).hexdigest()
    server.acts["/bucket/p/current.json"] = reply(json.dumps({"revision": f"sha256:{digest}"}).encode())
    server.acts[f"/bucket/p/revisions/{digest}.json"] = reply(index)
    server.acts[f"/bucket/p/revisions/{digest}/m/1/x"] = reply(b"0123456789")


def object_of(server: Server) -> str:
    return next(path for path in server.acts if path.endswith("/m/1/x"))


def pull_bucket(server: Server, tmp_path: Path) -> TrbError:
    return pull(f"s3://{server.address}/bucket/p", tmp_path / "pulled")


def test_a_bucket_that_is_honest(server: Server, tmp_path: Path) -> None:
    bucket(server)
    stores.pull(stores.parse(f"s3://{server.address}/bucket/p"), tmp_path / "pulled", lambda *facts: None)
    assert (tmp_path / "pulled" / "m" / "1" / "x").read_bytes() == b"0123456789"


def test_an_object_larger_than_the_index_says(server: Server, tmp_path: Path) -> None:
    bucket(server)
    server.acts[object_of(server)] = reply(bytes(20 << 20))
    assert pull_bucket(server, tmp_path).code is Code.DIGEST_MISMATCH


def test_an_object_larger_than_its_own_size(server: Server, tmp_path: Path) -> None:
    bucket(server)
    server.acts[object_of(server)] = lambda handler: (
        reply(b"0123456789") if handler.command == "HEAD" else reply(bytes(20 << 20))
    )(handler)
    assert pull_bucket(server, tmp_path).code is Code.DIGEST_MISMATCH


@pytest.mark.parametrize("which", ["current.json", "index"])
def test_a_document_of_a_bucket_that_is_too_large(server: Server, tmp_path: Path, which: str) -> None:
    bucket(server)
    path = next(
        path for path in server.acts if path.endswith(".json") and ("current" in path) == (which[0] == "c")
    )
    server.acts[path] = reply(bytes(transfer.DOCUMENT + 5))
    assert pull_bucket(server, tmp_path).code is Code.DIGEST_MISMATCH


def test_a_document_of_a_bucket_that_drips(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    server.acts["/bucket/p/current.json"] = lambda handler: (
        reply(b"12") if handler.command == "HEAD" else drip
    )(handler)
    assert pull_bucket(server, tmp_path).code is Code.STORAGE_UNREACHABLE


class Listed:
    """A file system with one object, of which a listing says another size."""

    def __init__(self, key: str, size: int, data: bytes) -> None:
        self.key, self.stated, self.data = key, size, data

    def find(self, root: str, detail: bool) -> dict[str, dict[str, int]]:
        return {self.key: {"size": self.stated}}

    def info(self, path: str) -> dict[str, int]:
        return {"size": len(self.data)}

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self.data[start:end]


@pytest.mark.parametrize(
    ("key", "size"), [("bucket/p/m/1/x", 3), ("bucket/p//marker", 4), ("bucket/p/../marker", 4)]
)
def test_a_bucket_of_somebody_else(tmp_path: Path, key: str, size: int) -> None:
    location: Any = stores.parse("s3://bucket/p")
    key = key.replace("//marker", f"/{tmp_path}/marker")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(TrbError) as caught:
        S3Store(location, Listed(key, size, b"data")).copy_all(target, lambda *facts: None)
    assert caught.value.code is Code.DIGEST_MISMATCH
    assert not list(tmp_path.rglob("marker"))


# --- trb fetch


def fetch(root: Path, url: str, size: int = 10) -> TrbError:
    record = {"sha256": hashlib.sha256(b"0123456789").hexdigest(), "bytes": size, "url": url}
    manifest = Manifest.of_json({"endpoints": {}, "files": {"m/1/w": record}})
    with pytest.raises(TrbError) as caught:
        external_weights.fetch(root, manifest, lambda text: None)
    assert not list(root.rglob("w"))
    return caught.value


def test_weights_without_end(server: Server, tmp_path: Path) -> None:
    server.acts["/w"] = endless()
    assert fetch(tmp_path, f"http://{server.address}/w").code is Code.DIGEST_MISMATCH
    assert server.sent < SENT


def test_weights_of_another_size(server: Server, tmp_path: Path) -> None:
    server.acts["/w"] = reply(b"0123456789")
    assert fetch(tmp_path, f"http://{server.address}/w", size=11).code is Code.DIGEST_MISMATCH


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/w", "/w", "data:,0123456789"])
def test_weights_that_are_elsewhere(server: Server, tmp_path: Path, place: str) -> None:
    server.acts["/w"] = endless(302, Location=place)
    assert fetch(tmp_path, f"http://{server.address}/w").code is Code.DOWNLOAD_FAILED
    assert server.sent < SENT


def test_weights_that_moved(server: Server, other: Server, tmp_path: Path) -> None:
    server.acts["/w"] = endless(302, Location=f"http://{other.address}/there")
    other.acts["/there"] = reply(b"0123456789")
    record = {
        "sha256": hashlib.sha256(b"0123456789").hexdigest(),
        "bytes": 10,
        "url": f"http://{server.address}/w",
    }
    manifest = Manifest.of_json({"endpoints": {}, "files": {"m/1/w": record}})
    assert external_weights.fetch(tmp_path, manifest, lambda text: None) == (["m/1/w"], 0)


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_weights_that_are_no_file(tmp_path: Path, kind: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    place = pipe if kind == "pipe" else Path("/dev/zero")
    assert fetch(tmp_path, place.as_uri()).code is Code.DOWNLOAD_FAILED


@pytest.mark.parametrize(
    "url",
    ["reference::http://127.0.0.1:1/x", "zip::http://127.0.0.1:1/x", "local:///etc/passwd", "git://x/y"],
)
def test_weights_by_a_scheme_that_trb_does_not_write(tmp_path: Path, url: str) -> None:
    assert fetch(tmp_path, url).code is Code.USAGE


# --- a server


def test_a_server_whose_answer_has_no_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.acts[""] = endless()
    with pytest.raises(NoAnswer):
        HttpClient(f"http://{server.address}").call("GET", "/v2")
    assert server.sent < 2 * client_http.DOCUMENT
    server.acts[""] = drip
    monkeypatch.setattr(client_http, "PATIENCE", 0.1)
    with pytest.raises(NoAnswer):
        HttpClient(f"http://{server.address}", timeout=2).call("GET", "/v2")
