"""A Hub of Hugging Face on loopback: the routes that huggingface_hub downloads from, of folders of this disk.

Files in LFS are redirected, as the real one redirects them to its CDN; refusals carry its headers
(``hf_raise_for_status`` reads them). https://huggingface.co/docs/hub/api
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.replies import Replies

TOKEN = "hf_token_of_the_tests"
LFS = (".onnx", ".onnx_data", ".bin", ".safetensors")
"""Ends of files that are in LFS."""


@dataclass
class Hub:
    """A running hub, and what was asked."""

    folder: Path
    """A model is in ``ORG/NAME`` below it."""
    url: str = ""
    cdn: str = ""
    """Another name of the same server: the client follows redirects within a host by itself."""
    gated: set[str] = field(default_factory=set)
    """Models for users with ``TOKEN`` only."""
    cut: set[str] = field(default_factory=set)
    """Files whose next answer ends halfway."""
    status: int = 0
    """Answer everything so."""
    fetched: list[str] = field(default_factory=list)
    """Paths of files that were sent, with their model."""
    ranges: list[str] = field(default_factory=list)
    """Range headers that were followed."""

    def environment(self, cache: Path, **more: str) -> dict[str, str]:
        """Variables for a process that shall ask this hub."""
        empty = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"), "")
        places = {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_HUB_CACHE": str(cache / "hub")}
        return {**empty, **places, **more}

    def commit(self, model: str) -> str:
        """A hash of all files, as a commit has one."""
        return hashlib.sha1("\n".join(map(self._named, self._paths(model))).encode()).hexdigest()

    def _named(self, path: Path) -> str:
        return f"{path.relative_to(self.folder)} {digests(path, path.stat().st_mtime_ns)[0]}"

    def files(self, model: str) -> list[str]:
        """The paths of a model's files in its repository."""
        return [path.relative_to(self.folder / model).as_posix() for path in self._paths(model)]

    def _paths(self, model: str) -> list[Path]:
        return sorted(path for path in (self.folder / model).rglob("*") if path.is_file())


@cache
def digests(path: Path, changed: int) -> tuple[str, str, int]:
    """git's name of a file, its sha256, and its bytes; ``changed`` is its time in nanoseconds."""
    data = path.read_bytes()
    name = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return name, hashlib.sha256(data).hexdigest(), len(data)


@contextmanager
def running(folder: Path) -> Iterator[Hub]:
    """A hub of the models below ``folder``, which may change while it runs."""
    hub = Hub(folder=folder)
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        hub.cdn = hub.url.replace("127.0.0.1", "localhost")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(Replies):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def do_HEAD(self) -> None:
        self.read()

    def do_GET(self) -> None:
        self.read()

    def read(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.hub.status:
            return self.refuse(self.hub.status, "", "not now")
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            return self.api(found[1], found[2] or "revision", found[3] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.file(found[1], found[2], found[3])
        if found := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
            return self.send(found[1], found[2])
        return self.refuse(404, "", "no such route")

    def allowed(self, model: str, revision: str, *, listing: bool) -> bool:
        """Whether model and revision are there for this user; the model's card is for everybody."""
        authorization = self.headers.get("Authorization")
        if authorization not in (None, f"Bearer {TOKEN}"):
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif not (self.hub.folder / model).is_dir():
            self.refuse(401 if authorization is None else 404, "RepoNotFound", "Repository not found")
        elif revision not in ("main", "v1", self.hub.commit(model)):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif model in self.hub.gated and authorization is None and not listing:
            self.refuse(401, "GatedRepo", f"Access to model {model} is restricted")
        else:
            return True
        return False

    def api(self, model: str, kind: str, revision: str) -> None:
        if not self.allowed(model, revision, listing=True):
            return None
        files = self.hub.files(model)
        if kind == "tree":
            return self.reply_json([self.entry(model, name) for name in files])
        return self.reply_json(
            {
                "id": model,
                "modelId": model,
                "sha": self.hub.commit(model),
                "gated": "manual" if model in self.hub.gated else False,
                "private": False,
                "siblings": [{"rfilename": name} for name in files],
            }
        )

    def entry(self, model: str, name: str) -> dict[str, object]:
        path = self.hub.folder / model / name
        git, sha256, size = digests(path, path.stat().st_mtime_ns)
        lfs = {"lfs": {"oid": sha256, "size": size, "pointerSize": 134}} if name.endswith(LFS) else {}
        return {"type": "file", "path": name, "size": size, "oid": git, **lfs}

    def file(self, model: str, revision: str, name: str) -> None:
        if not self.allowed(model, revision, listing=False):
            return None
        path = self.hub.folder / model / name
        commit = {"X-Repo-Commit": self.hub.commit(model)}
        if not path.is_file():
            return self.refuse(404, "EntryNotFound", "Entry not found", **commit)
        git, sha256, size = digests(path, path.stat().st_mtime_ns)
        if not name.endswith(LFS):
            return self.send(model, name, ETag=f'"{git}"', **commit)
        linked = {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(size)}
        return self.reply(302, b"", Location=f"{self.hub.cdn}/cdn/{model}/{name}", **linked, **commit)

    def send(self, model: str, name: str, **headers: str) -> None:
        data = (self.hub.folder / model / name).read_bytes()
        whole, status = len(data), 200
        if found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            first, status = int(found[1]), 206
            self.hub.ranges.append(found[0])
            headers["Content-Range"] = f"bytes {first}-{whole - 1}/{whole}"
            data = data[first:]
        if self.command == "GET":
            self.hub.fetched.append(f"{model}/{name}")
        if self.command == "GET" and name in self.hub.cut:
            self.hub.cut.remove(name)
            self.close_connection = True
            return self.reply(status, data[: len(data) // 2], len(data), **headers)
        return self.reply(status, data, **headers)

    def refuse(self, status: int, code: str, message: str, **headers: str) -> None:
        stated = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self.reply(status, json.dumps({"error": message}).encode(), **stated, **headers)

    def reply_json(self, document: object) -> None:
        self.reply(200, json.dumps(document).encode(), Content_Type="application/json")
