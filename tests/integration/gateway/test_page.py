"""The page, the documentation, and every documented example on a real server."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import gateways
from triton_repo_builder.base import resources
from triton_repo_builder.run import serve
from triton_repo_builder.run.gateway import openapi, routes

pytestmark = [pytest.mark.server, pytest.mark.gateway]
DESCRIBED = [route for route in routes.ALL if route.summary]


def id_of(route: Any) -> str:
    return f"{route.method} {openapi.template(route)}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples name."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "photo.jpg").write_bytes(resources.samples(resources.IMAGE)["photo.jpg"])
    (folder / "speech.wav").write_bytes(resources.samples(resources.AUDIO)["phone.wav"])
    return folder


@pytest.mark.parametrize("route", DESCRIBED, ids=id_of)
def test_every_curl_line_of_the_docs_works_when_pasted(api: httpx.Client, files: Path, route: Any) -> None:
    text = api.get("/docs").text
    section = text.split(f"<code>{id_of(route)}</code></h3>")[1].split("<h")[0]
    lines = [html.unescape(line) for line in re.findall("<pre[^>]*><code>(.*?)</code>", section, re.DOTALL)]
    assert lines
    for line in lines:
        assert line.startswith(f"curl {api.base_url}"), line
        done = subprocess.run(
            ["bash", "-c", f"{line} -sS -o answer -w '%{{http_code}}'"],
            cwd=files,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "200", (line, done.stdout, done.stderr, (files / "answer").read_text())


@pytest.mark.parametrize("route", [route for route in DESCRIBED if route.method == "POST"], ids=id_of)
def test_every_example_of_the_openapi_document_is_answered(api: httpx.Client, route: Any) -> None:
    operation = api.get("/openapi.json").json()["paths"][openapi.template(route)]["post"]
    content = operation["requestBody"]["content"]
    assert content
    if "*" in route.path:  # the examples of several endpoints: pasted above
        return
    for example in content.get("application/json", {}).get("examples", {}).values():
        reply = api.post(route.path, json=example["value"])
        assert reply.status_code == 200, (example, reply.text)


def test_page_and_its_policy_arrive(api: httpx.Client) -> None:
    reply = api.get("/")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    again = api.get("/", headers={"If-None-Match": reply.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert api.get("/v1/models").status_code == 200  # on the same connection


def test_page_lists_every_endpoint(api: httpx.Client) -> None:
    names = {one["name"] for one in api.get("/try").json()["endpoints"]}
    assert names == {one["id"] for one in api.get("/v1/models").json()["data"]}


def test_page_can_be_switched_off(server: serve.RunningServer, repository: Path, tmp_path: Path) -> None:
    options = ("--repo", str(repository), "--no-page")
    with gateways.running(tmp_path, server.urls.grpc, *options) as url, httpx.Client(base_url=url) as api:
        assert api.get("/").status_code == 404
        assert api.get("/try").status_code == 404
        assert api.get("/docs").status_code == 200
        assert json.loads(api.get("/openapi.json").content)["openapi"] == "3.1.0"
