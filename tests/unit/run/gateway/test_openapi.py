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
from triton_repo_builder.run.gateway.examples import Example, example


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
NAMED = Route(path="/models/*", handler=nothing, api="huggingface", tasks=(recognition.FILL_MASK,), request={"inputs": "a [MASK]"})
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
    return example(route, CATALOGUE, **options)


def test_example_names_the_endpoint_that_the_route_is_mapped_to() -> None:
    assert of(EMBED).body["model"] == "two"
    assert of(EMBED).models == ["one", "two"]


def test_example_has_the_models_own_mask_and_a_path_with_its_name() -> None:
    assert of(NAMED).body == {"inputs": "a <mask>"}
    assert of(NAMED).path == "/models/m%20k"


def test_example_without_an_endpoint_is_not_possible() -> None:
    assert not example(EMBED, Catalogue()).possible
    assert example(HEALTH, Catalogue()).possible


def test_curl_line_is_quoted_for_the_shell() -> None:
    words = shlex.split(of(EMBED).curl("http://h:1", keyed=False).replace("\\\n", ""))
    assert words[:2] == ["curl", "http://h:1/embed"]
    assert json.loads(words[-1]) == of(EMBED).body


def test_curl_line_takes_the_key_only_where_one_is_needed() -> None:
    assert "$API_KEY" in of(EMBED).curl("http://h:1", keyed=True)
    assert of(HEALTH).curl("http://h:1", keyed=True) == "curl http://h:1/health"


def test_document_has_a_schema_and_an_example_for_every_body() -> None:
    document = openapi.document([EMBED, NAMED, HEALTH], CATALOGUE, keyed=False)
    media = document["paths"]["/embed"]["post"]["requestBody"]["content"]["application/json"]
    assert media["example"] == of(EMBED).body
    assert media["schema"] == {
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
    [parameter] = document["paths"]["/models/{name}"]["post"]["parameters"]
    assert parameter["schema"]["enum"] == ["m k"]


def test_document_has_each_apis_own_error() -> None:
    document = openapi.document([EMBED, NAMED, HEALTH], CATALOGUE, keyed=False)
    assert set(document["components"]["schemas"]["TeiError"]["properties"]) == {"error", "error_type"}
    assert set(document["components"]["schemas"]["OpenaiError"]["properties"]) == {"error"}
    assert set(document["paths"]["/embed"]["post"]["responses"]) == {"200", "400", "404", "413", "429", "503", "504"}
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
