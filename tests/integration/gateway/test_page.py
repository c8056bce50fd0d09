"""The page, the documentation, and every documented example on a real server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from tests.support import gateways
from triton_repo_builder.base import resources
from triton_repo_builder.run import serve
from triton_repo_builder.run.client.grpc import GrpcClient
from triton_repo_builder.run.gateway import routes

pytestmark = pytest.mark.server
EXAMPLES = [route for route in routes.ALL if route.summary]


def operation(api: httpx.Client, method: str, path: str) -> dict[str, Any]:
    document = api.get("/openapi.json").json()
    return document["paths"][path.replace("*", "{name}")][method.lower()]


@pytest.mark.parametrize("route", EXAMPLES, ids=lambda route: f"{route.method} {route.path}")
def test_example_of_every_route_is_answered(api: httpx.Client, route: Any) -> None:
    about = operation(api, route.method, route.path)
    path = route.path
    if "*" in path:
        [parameter] = about["parameters"]
        path = path.replace("*", quote(parameter["schema"]["enum"][0]))
    if route.method == "GET":
        reply = api.get(path)
    else:
        media = about["requestBody"]["content"]["application/json"]
        reply = api.request(route.method, path, json=media["example"])
    assert reply.status_code == 200, reply.text
    assert str(reply.status_code) in about["responses"]


def test_page_and_its_policy_arrive(api: httpx.Client) -> None:
    reply = api.get("/")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    again = api.get("/", headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert api.get("/v1/models").status_code == 200  # on the same connection


def test_page_can_be_switched_off(server: serve.RunningServer, repository: Path, tmp_path: Path) -> None:
    options = ("--repo", str(repository), "--no-page")
    with gateways.running(tmp_path, server.urls.grpc, *options) as url, httpx.Client(base_url=url) as api:
        assert api.get("/").status_code == 404
        assert api.get("/try").status_code == 404
        assert api.get("/docs").status_code == 200


def test_rows_of_images_are_those_of_the_server(api: httpx.Client, grpc: GrpcClient) -> None:
    files = list(resources.samples(resources.IMAGE).values())[:3]
    listed = [__import__("base64").b64encode(file).decode() for file in files]
    rows = api.post("/try/clip_image", json={"IMAGE": listed}).json()["rows"]
    images = np.array([[file] for file in files], dtype=object)
    expected = grpc.infer("clip_image", {"IMAGE": images})["embedding"]
    assert (np.array([row["embedding"] for row in rows], np.float32) == expected).all()
    labels = [["a", "b"]] * 3
    rows = api.post("/try/clip", json={"IMAGE": listed, "LABELS": labels}).json()["rows"]
    answer = grpc.infer("clip", {"IMAGE": images, "LABELS": np.array(labels, dtype=object)})
    assert (np.array([row["scores"] for row in rows], np.float32) == answer["scores"]).all()
    assert [row["labels"] for row in rows] == [[each.decode() for each in row] for row in answer["labels"]]


@pytest.mark.parametrize("line", ["/v1/embeddings", "/v1/models"])
def test_curl_line_of_the_docs_works_when_pasted(api: httpx.Client, gateway: str, line: str) -> None:
    from html import unescape

    text = unescape(api.get("/docs").text)
    start = text.index(f"curl {gateway}{line}")
    pasted = text[start : text.index("</code>", start)]
    done = subprocess.run(
        ["bash", "-c", f"{pasted} -sS --fail"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"object":"list"' in done.stdout
