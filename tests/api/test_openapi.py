import json
import re
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from chat_core.api.endpoint import PathCalls
from chat_core.api.routes import ENDPOINTS, api_document, api_routes
from chat_core.workbench import Workbench


@pytest.fixture
def document() -> dict[str, Any]:
    return json.loads(json.dumps(api_document()))  # type: ignore[no-any-return]


def test_every_route_and_method_is_in_the_document(document: dict[str, Any], workbench: Workbench) -> None:
    served = set()
    for route in api_routes(lambda: workbench):
        assert isinstance(route, Route)
        if isinstance(route.endpoint, PathCalls):
            served |= {(route.path, method.lower()) for method in route.endpoint.methods}
    served.add(("/api/chat/runs/{run_id}/stream", "get"))
    served |= {("/api/analytics", "get"), ("/api/analytics/{chart}", "get")}
    documented = {(path, method) for path, item in document["paths"].items() for method in item}
    assert documented == served


def test_every_operation_has_its_own_name_a_summary_and_its_errors(document: dict[str, Any]) -> None:
    operations = [item for path in document["paths"].values() for item in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"].endswith(".") for operation in operations)
    run = document["paths"]["/api/chat/sessions/{session_id}/runs"]["post"]
    assert set(run["responses"]) == {"202", "400", "404", "409", "413", "429", "503"}


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references
    assert references <= set(document["components"]["schemas"])


def test_every_schema_is_a_json_schema(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_id_of_a_path_is_a_parameter(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            named = [entry["name"] for entry in operation["parameters"] if entry["in"] == "path"]
            assert named == re.findall(r"\{(\w+)\}", path)


def test_real_answers_are_what_the_document_says(client: TestClient, document: dict[str, Any]) -> None:
    def schema_of(path: str, method: str, status: str) -> dict[str, Any]:
        content = document["paths"][path][method]["responses"][status]["content"]
        return {**content["application/json"]["schema"], "components": document["components"]}

    created = client.post("/api/chat/sessions", json={"title": "x", "runtime": "echo"})
    jsonschema.validate(created.json(), schema_of("/api/chat/sessions", "post", "201"))
    session_path = "/api/chat/sessions/{session_id}"
    url = session_path.format(**created.json())
    jsonschema.validate(client.get(url).json(), schema_of(session_path, "get", "200"))
    jsonschema.validate(client.get("/api/chat/sessions").json(), schema_of("/api/chat/sessions", "get", "200"))
    refused = client.post("/api/chat/sessions", json={"titel": "x"})
    jsonschema.validate(refused.json(), schema_of("/api/chat/sessions", "post", "400"))


def test_the_document_is_served(client: TestClient, document: dict[str, Any]) -> None:
    answer = client.get("/api/openapi.json")
    assert answer.status_code == 200
    assert answer.json() == document


def test_every_call_says_in_one_line_what_it_does() -> None:
    assert all(endpoint.summary.endswith(".") for endpoint in ENDPOINTS)
