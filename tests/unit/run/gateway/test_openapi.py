"""The OpenAPI document, and the examples in it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from triton_repo_builder.repository.interface import Endpoint
from triton_repo_builder.run.gateway import openapi, recognition, refusal, routes
from triton_repo_builder.run.gateway.call import Call, Reply, Route
from triton_repo_builder.run.gateway.catalogue import Catalogue, Routing, Served
from triton_repo_builder.run.gateway.examples import SPECIAL, Example, examples


async def nothing(call: Call) -> Reply:
    return Reply(b"")


def served(name: str, task: str, **facts: Any) -> Served:
    endpoint = Endpoint(name=name, inputs=(), outputs=())
    return Served(name=name, model=name, task=task, endpoint=endpoint, facts=facts)


EMBED = Route(
    path="/embed",
    handler=nothing,
    api="tei",
    tasks=(recognition.EMBEDDING,),
    errors=refusal.tei,
    summary="Embeddings",
    request={"model": "MODEL", "inputs": ["it's a text"], "normalize": True, "n": 1, "x": None},
)
NAMED = Route(
    path="/named/*",
    handler=nothing,
    api="huggingface",
    tasks=(recognition.FILL_MASK,),
    request={"inputs": "a [MASK]"},
)
HEALTH = Route(path="/health", handler=nothing, api="tei", method="GET", summary="Health", open=True)
CATALOGUE = Catalogue(
    [
        served("one", recognition.EMBEDDING),
        served("two", recognition.EMBEDDING),
        served("m k", recognition.FILL_MASK, mask="<mask>"),
    ],
    Routing(routes={"/embed": "two"}),
)


def of(route: Route, **options: Any) -> Example:
    [one] = examples(route, CATALOGUE, **options)
    return one


def test_example_names_the_endpoint_that_the_route_is_mapped_to() -> None:
    assert of(EMBED).sample.body["model"] == "two"
    assert of(EMBED).models == ["one", "two"]


def test_example_has_the_models_own_mask_and_a_path_with_its_name() -> None:
    assert of(NAMED).sample.body == {"inputs": "a <mask>"}
    assert of(NAMED).sample.path == "/named/m%20k"


def test_example_without_an_endpoint_is_not_possible() -> None:
    assert not examples(EMBED, Catalogue())[0].possible
    assert examples(HEALTH, Catalogue())[0].possible


def test_curl_line_is_quoted_for_the_shell() -> None:
    words = shlex.split(of(EMBED).curl("http://h:1", keyed=False).replace("\\\n", ""))
    assert words[:2] == ["curl", "http://h:1/embed"]
    assert json.loads(words[-1]) == of(EMBED).sample.body


def test_curl_line_takes_the_key_only_where_one_is_needed() -> None:
    assert "$API_KEY" in of(EMBED).curl("http://h:1", keyed=True)
    assert of(HEALTH).curl("http://h:1", keyed=True) == "curl http://h:1/health"


def test_document_has_a_schema_and_an_example_for_every_body() -> None:
    document = openapi.document([EMBED, NAMED, HEALTH], CATALOGUE, keyed=False)
    media = document["paths"]["/embed"]["post"]["requestBody"]["content"]["application/json"]
    assert media["examples"] == {"embedding": {"value": of(EMBED).sample.body}}
    [schema] = media["schema"]["anyOf"]
    assert schema == {
        "type": "object",
        "properties": {
            "model": {"type": "string", "enum": ["one", "two"]},
            "inputs": {"type": "array", "items": {"type": "string"}},
            "normalize": {"type": "boolean"},
            "n": {"type": "integer"},
            "x": {},
        },
    }


def test_document_lists_the_names_that_can_stand_in_a_path() -> None:
    document = openapi.document([NAMED], CATALOGUE, keyed=False)
    [parameter] = document["paths"]["/named/{name}"]["post"]["parameters"]
    assert parameter["schema"]["enum"] == ["m k"]


def test_document_has_each_apis_own_error() -> None:
    document = openapi.document([EMBED, NAMED, HEALTH], CATALOGUE, keyed=False)
    assert set(document["components"]["schemas"]["TeiError"]["properties"]) == {"error", "error_type"}
    assert set(document["components"]["schemas"]["OpenaiError"]["properties"]) == {"error"}
    statuses = {"200", "400", "404", "413", "422", "424", "429", "503", "504"}
    assert set(document["paths"]["/embed"]["post"]["responses"]) == statuses
    assert set(document["paths"]["/health"]["get"]["responses"]) == {"200"}


def test_document_says_where_a_key_is_needed() -> None:
    document = openapi.document([EMBED, HEALTH], CATALOGUE, keyed=True)
    assert document["security"] == [{"key": []}]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "401" in document["paths"]["/embed"]["post"]["responses"]
    assert "security" not in openapi.document([EMBED], CATALOGUE, keyed=False)


@pytest.mark.parametrize("catalogue", [Catalogue(), CATALOGUE])
@pytest.mark.parametrize("keyed", [False, True])
def test_document_of_all_routes_is_whole(catalogue: Catalogue, keyed: bool) -> None:
    document = json.loads(json.dumps(openapi.document(routes.ALL, catalogue, keyed=keyed)))
    operations = [(path, one) for path, item in document["paths"].items() for one in item.values()]
    assert len(operations) == len(routes.ALL)
    names = [one["operationId"] for _, one in operations]
    assert len(set(names)) == len(names)
    for path, one in operations:
        assert ("{name}" in path) == bool(one.get("parameters")), path
        assert set(one["tags"]) <= {tag["name"] for tag in document["tags"]}
        for reply in one["responses"].values():
            for media in reply.get("content", {}).values():
                assert media["schema"]["$ref"].rpartition("/")[2] in document["components"]["schemas"]


# ---- routes whose requests depend on the endpoint

PIPELINES = Route(path="/models/*", handler=nothing, api="huggingface", summary="Any task")
SPEECH = Route(path="/v1/audio/transcriptions", handler=nothing, api="openai", summary="Speech")


def test_route_for_any_task_has_an_example_for_each_task_here() -> None:
    catalogue = Catalogue(
        [served("m", recognition.FILL_MASK, mask="<mask>"), served("v", recognition.IMAGE_CLASSIFICATION)]
    )
    mask, image = examples(PIPELINES, catalogue)
    assert (mask.task, mask.models, mask.sample.path) == ("fill-mask", ["m"], "/models/m")
    assert mask.sample.body == {"inputs": "Paris is the <mask> of France."}
    assert image.curl("http://h", keyed=False).endswith(
        "-H 'Content-Type: image/jpeg' \\\n  --data-binary @photo.jpg"
    )


def test_examples_without_names_tell_nothing_of_the_endpoints() -> None:
    listed = examples(PIPELINES, CATALOGUE, named=False)
    assert len(listed) == len(SPECIAL["POST", "/models/*"])
    assert {one.sample.path for one in listed} == {"/models/MODEL"}
    assert not any(one.models for one in listed)
    assert "[MASK]" in str([one.sample.body for one in listed])


def test_form_is_described_and_written_as_curl_sends_it() -> None:
    catalogue = Catalogue([served("s", recognition.SPEECH)])
    [one] = examples(SPEECH, catalogue)
    assert (
        one.curl("http://h", keyed=False)
        == "curl http://h/v1/audio/transcriptions \\\n  -F model=s \\\n  -F file=@speech.wav"
    )
    content = openapi.document([SPEECH], catalogue, keyed=False)["paths"][SPEECH.path]["post"]["requestBody"][
        "content"
    ]
    [schema] = content["multipart/form-data"]["schema"]["anyOf"]
    assert schema["properties"]["file"] == {"type": "string", "format": "binary"}
    assert schema["properties"]["model"] == {"type": "string", "enum": ["s"]}


@pytest.mark.parametrize("key", SPECIAL, ids=" ".join)
def test_special_example_is_of_tasks_that_there_are(key: tuple[str, str]) -> None:
    for sample in SPECIAL[key]:
        assert sample.tasks
        assert set(sample.tasks) <= set(recognition.BY_TASK)
