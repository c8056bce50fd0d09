"""The npm packages of openai and cohere, by Node.js."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from kserve import Server
from texts import MANY, QUERY, TEXTS, wav

ENVIRONMENT = Path(sys.prefix)
"""Where the Makefile puts node_modules; Node.js looks for them from its working directory."""


def node(script: str, **values: Any) -> Any:
    """The JSON that a module prints; ``given`` holds the values."""
    code = f"const given = JSON.parse(process.argv[1]);\n{script}"
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "node"), "--input-type=module", "-e", code, "--", json.dumps(values)],
        cwd=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OPENAI = """
import OpenAI, { toFile } from "openai";
const client = new OpenAI({ baseURL: `${given.url}/v1`, apiKey: "none", maxRetries: 0 });
"""
COHERE = """
import { CohereClientV2 } from "cohere-ai";
const client = new CohereClientV2({ token: "none", environment: given.url });
"""


def test_openai_embeddings(url: str, server: Server) -> None:
    script = (
        OPENAI
        + """
    const encoded = await client.embeddings.create({ model: "minilm", input: given.texts });
    const decimal = await client.embeddings.create({
      model: "minilm", input: given.texts, encoding_format: "float" });
    console.log(JSON.stringify([encoded, decimal].map(answer => answer.data.map(row => row.embedding))));
    """
    )
    expected = server.vectors("minilm", MANY[:100])
    for vectors in node(script, url=url, texts=MANY[:100]):
        assert np.array_equal(np.array(vectors, np.float32), expected)


def test_openai_transcriptions_and_models(url: str, server: Server) -> None:
    script = (
        OPENAI
        + """
    const file = await toFile(Buffer.from(given.sound, "base64"), "noise.wav");
    const spoken = await client.audio.transcriptions.create({ model: "speech", file });
    const models = await client.models.list();
    console.log(JSON.stringify([spoken.text, models.data.map(model => model.id)]));
    """
    )
    text, models = node(script, url=url, sound=base64.b64encode(wav()).decode())
    assert text == server.file("speech", "AUDIO", wav())["text"][0, 0]
    assert "minilm" in models


def test_openai_errors(url: str) -> None:
    script = (
        OPENAI
        + """
    const refused = await client.embeddings.create({ model: "gpt", input: "hello" }).catch(error => error);
    console.log(JSON.stringify([refused instanceof OpenAI.NotFoundError, refused.code]));
    """
    )
    assert node(script, url=url) == [True, "model_not_found"]


def test_cohere_rerank(url: str, server: Server) -> None:
    script = (
        COHERE
        + """
    const answer = await client.rerank({ model: "rerank", query: given.query, documents: given.documents });
    console.log(JSON.stringify(answer.results.map(result => [result.index, result.relevanceScore])));
    """
    )
    answer = node(script, url=url, query=QUERY, documents=TEXTS)
    scores = server.ask("rerank", QUERY=[QUERY] * len(TEXTS), DOCUMENT=TEXTS)["score"].ravel()
    assert [(index, np.float32(score)) for index, score in answer] == sorted(
        enumerate(scores), key=lambda pair: -pair[1]
    )
