"""An OCI registry of one file for the everyday tests, with the files of docker-registry where it keeps them.

Like that one it keeps the file that it has under a digest whatever is sent, and remembers sizes. The same
tests run against docker-registry itself: make test-docker.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.replies import Replies

ROOT = Path("data", "docker", "registry", "v2")


def blob(folder: Path, digest: str) -> Path:
    """The file of a blob or a manifest in the storage of the registry that runs in this folder."""
    hexed = digest.removeprefix("sha256:")
    return folder / ROOT / "blobs" / "sha256" / hexed[:2] / hexed / "data"


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """``127.0.0.1:PORT`` of a registry that keeps its files below ``folder``."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(Replies):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows the headers in a packet of its own
    folder: Path

    def do_HEAD(self) -> None:
        self.read()

    def do_GET(self) -> None:
        self.read()

    def do_POST(self) -> None:
        self.reply(202, Location=f"{self.path}1?_state=x")

    def do_PUT(self) -> None:
        image, kind, name = self.parts()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if kind == "blobs":
            asked = parse_qs(urlsplit(self.path).query)["digest"][0]
            if asked != digest:
                return self.refuse(400, "DIGEST_INVALID")
        file = blob(self.folder, digest)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.note(image, digest, str(len(data)))
        if kind == "manifests" and not name.startswith("sha256:"):
            self.note(image, f"tag {name}", digest)
        return self.reply(201, Docker_Content_Digest=digest)

    def do_PATCH(self) -> None:
        self.refuse(405, "UNSUPPORTED")

    def do_DELETE(self) -> None:
        """A manifest by its digest, and the tags that name it."""
        image, kind, digest = self.parts()
        if kind != "manifests" or not digest.startswith("sha256:"):
            return self.refuse(405, "UNSUPPORTED")
        if not self.noted(image, digest):
            return self.refuse(404, "MANIFEST_UNKNOWN")
        for tag in self.tags(image):
            if self.noted(image, f"tag {tag}") == digest:
                self.notes(image).joinpath(f"tag {tag}").unlink()
        self.notes(image).joinpath(digest.replace(":", "_")).unlink()
        return self.reply(202)

    def tags(self, image: str) -> list[str]:
        return sorted(file.name.removeprefix("tag ") for file in self.notes(image).glob("tag *"))

    def list_tags(self, image: str) -> None:
        """Two on a page: who lists must turn over."""
        last = parse_qs(urlsplit(self.path).query).get("last", [""])[0]
        tags = [tag for tag in self.tags(image) if tag > last]
        more = {"Link": f'</v2/{image}/tags/list?n=2&last={tags[1]}>; rel="next"'} if len(tags) > 2 else {}
        self.reply(200, json.dumps({"name": image, "tags": tags[:2]}).encode(), **more)

    def read(self) -> None:
        """A blob or a manifest, by its digest or its tag."""
        if listed := re.fullmatch(r"/v2/(.+)/tags/list", urlsplit(self.path).path):
            return self.list_tags(listed[1])
        image, kind, name = self.parts()
        digest = name if name.startswith("sha256:") else self.noted(image, f"tag {name}")
        size = self.noted(image, digest) if digest else ""
        if not size:
            return self.refuse(404, "BLOB_UNKNOWN" if kind == "blobs" else "MANIFEST_UNKNOWN")
        if self.command == "HEAD":
            return self.reply(200, length=int(size), Docker_Content_Digest=digest)
        file = blob(self.folder, digest)
        if not file.exists():
            return self.refuse(404, "BLOB_UNKNOWN")
        data = file.read_bytes()
        length = int(size) if kind == "blobs" else len(data)
        self.close_connection = length != len(data)
        return self.reply(200, data, length=length, Docker_Content_Digest=digest)

    def parts(self) -> tuple[str, str, str]:
        """Image, ``blobs`` or ``manifests``, and the digest, tag or upload."""
        found = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/(.+)", urlsplit(self.path).path)
        assert found, self.path
        return found[1], found[2], found[3]

    def notes(self, image: str) -> Path:
        return self.folder / ROOT / "repositories" / image

    def note(self, image: str, key: str, value: str) -> None:
        file = self.notes(image) / key.replace(":", "_")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value)

    def noted(self, image: str, key: str) -> str:
        file = self.notes(image) / key.replace(":", "_")
        return file.read_text() if file.exists() else ""

    def refuse(self, status: int, code: str) -> None:
        self.reply(status, json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode())
