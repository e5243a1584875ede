"""OpenAPI documents agree with the responses (schemathesis), and the reference lists every path."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx
import hypothesis
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.requests import Request

from sixfold.api.platform.openapi_documents import OpenApiRoutes
from sixfold.app.asgi import documents
from sixfold.errors import SixfoldError
from sixfold.web.app import WebApp
from sixfold.web.openapi import documented
from sixfold.web.routing import Entry
from tests.api import described as answers
from tests.api.app_fixture import AppFixture
from tests.api.served_app import ServedApp, served_app
from tests.architecture import source
from tests.harness.processes import PATIENCE_SECONDS

AREAS = ("media", "gateway", "image", "hosting", "replicate", "fal", "memory", "workflows", "platform")
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
DOCUMENTED = frozenset({502, 503})
# The pages, and protocols that are not described by OpenAPI.
UNDESCRIBED = frozenset({"ui", "memory-pages", "mcp", "comfyui"})
STANDARDS = ("/.well-known/", "/oauth/")  # RFC 8414, 9728, 7591 and 7009 describe these
# All tags of a page, whose `next_cursor` is always null.
UNPAGED = frozenset({"/api/tags/{slug}"})
CASES = 50
WRONG_CASES = 15


def operation_paths(app: AppFixture) -> set[tuple[str, str]]:
    result = documents(app.server, cast("WebApp", app.asgi).table.entries).values()
    return {(method, path) for document in result for method, path, _ in document.summaries()}


async def test_every_path_is_in_the_reference(app: AppFixture) -> None:
    text = re.sub(r"\{[^}]*\}", "{}", source.documentation())
    paths = {path for _, path in operation_paths(app)}
    assert [path for path in sorted(paths) if re.sub(r"\{[^}]*\}", "{}", path) not in text] == []


async def test_every_route_of_an_api_is_in_its_document(app: AppFixture) -> None:
    known = operation_paths(app)
    entries = [
        entry for entry in cast("WebApp", app.asgi).table.entries() if entry.method not in {"HEAD", "WS"}
    ]
    missing = [
        f"{entry.method} {entry.path}"
        for entry in entries
        if entry.api not in UNDESCRIBED
        and not entry.path.startswith(STANDARDS)
        and (entry.method, documented(entry.path)) not in known
    ]
    assert missing == []


async def test_an_operation_names_the_right_that_its_route_needs(app: AppFixture) -> None:
    entries = {
        (entry.method.lower(), documented(entry.path)): entry.access
        for entry in cast("WebApp", app.asgi).table.entries()
    }
    for area in AREAS:
        paths = (await app.client.get(f"/openapi/{area}.json")).json()["paths"]
        for path, item in paths.items():
            for method, operation in item.items():
                access = entries[method, path]
                assert access is not None
                needed = [] if access.public else [{"bearer": access.name.split()}]
                assert [each for each in operation["security"] if each] == needed, f"{method} {path}"


async def test_a_list_in_pages_declares_the_parameters_of_its_pages(app: AppFixture) -> None:
    missing: list[str] = []
    for area in AREAS:
        document = (await app.client.get(f"/openapi/{area}.json")).json()
        for path, item in document["paths"].items():
            if "get" not in item or path in UNPAGED:
                continue
            schemas = [
                content["schema"]
                for content in item["get"]["responses"].get("200", {}).get("content", {}).values()
            ]
            names = {each["name"] for each in item["get"].get("parameters", [])}
            if any("next_cursor" in fields_of(schema, document) for schema in schemas):
                missing += [f"{path}: {name}" for name in sorted({"limit", "cursor"} - names)]
    assert missing == []


def fields_of(schema: dict[str, Any], document: dict[str, Any]) -> set[str]:
    """Return the names of the properties of a schema, or of each of its alternatives."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    results = set(schema.get("properties", {}))
    return results.union(*(fields_of(each, document) for each in schema.get("anyOf", [])))


async def test_document_is_built_once_and_off_the_event_loop(app: AppFixture) -> None:
    results: list[bool] = []
    table = cast("WebApp", app.asgi).table.entries

    def routes() -> Iterator[Entry]:
        results.append(threading.current_thread() is threading.main_thread())
        return table()

    reference = OpenApiRoutes(documents(app.server, routes), "http://127.0.0.1")
    request = Request({"type": "http", "headers": [], "path_params": {"area": "media.json"}})
    result = await asyncio.gather(*(reference.show(request) for _ in range(5)))
    assert results == [False]
    assert {response.status_code for response in result} == {200}


@pytest.mark.parametrize(
    "name", ["", "memory", "memory.yaml", ".json", "..%2fmemory.json", "memory.json/x", "%00.json"]
)
async def test_unknown_document_is_404(app: AppFixture, name: str) -> None:
    response = await app.client.get(f"/openapi/{name}")
    assert response.status_code == 404
    assert response.json()["error"] in {"Not found", "The OpenAPI document was not found"}


async def test_response_that_violates_its_schema_is_detected(app: AppFixture) -> None:
    request = httpx.Request("GET", "http://127.0.0.1/api/pages/people/ada")
    error = {"error": "", "code": "", "status": 404, "request_id": ""}
    full_response = httpx.Response(404, json=error, request=request)
    answers.check(app.server, cast("WebApp", app.asgi), full_response)
    part = httpx.Response(404, json={**error, "status": "404"}, request=request)
    with pytest.raises(jsonschema_rs.ValidationError):
        answers.check(app.server, cast("WebApp", app.asgi), part)


async def test_every_api_has_an_openapi_document(app: AppFixture) -> None:
    for area in AREAS:
        response = await app.client.get(f"/openapi/{area}.json")
        assert response.json()["openapi"] == "3.1.0"
        second_response = await app.client.get(
            f"/openapi/{area}.json", headers={"If-None-Match": response.headers["ETag"]}
        )
        assert second_response.status_code == 304
    image = (await app.client.get("/openapi/image.json")).json()
    assert image["info"]["version"] == "0.1.0"
    operation_paths = {(method, path) for path, item in image["paths"].items() for method in item}
    assert operation_paths == {
        ("get", "/"),
        ("get", "/health"),
        ("get", "/create_image"),
        ("get", "/create_and_upload_image"),
        ("get", "/create_and_upload_image_klein"),
        ("post", "/api/style-transfer"),
    }
    invalid = image["paths"]["/create_image"]["get"]["responses"]["422"]
    assert invalid["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/HTTPValidationError"
    }
    for name in ("media", "media.yaml", "nothing.json"):
        assert (await app.client.get(f"/openapi/{name}")).status_code == 404


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    with served_app(tmp_path_factory.mktemp("served"), inline_seconds=5, queue_limit=100_000) as result:
        yield result


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as result:
        yield result


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("area", AREAS)
def test_no_request_of_an_operation_breaks_its_description(
    shared_app: ServedApp, session: requests.Session, area: str
) -> None:
    """Fifty cases and more of each operation, keyed and not: no undocumented 5xx, answers as described."""
    schema: Any = schemathesis.openapi.from_url(f"{shared_app.url}/openapi/{area}.json")
    request = {
        operation.label: sum(probe(shared_app, session, operation, mode) for mode in GenerationMode)
        for operation in (result.ok() for result in schema.get_all_operations())
    }
    assert request
    assert all(count >= CASES or parameterless(schema, label) for label, count in request.items()), request


def probe(shared_app: ServedApp, session: requests.Session, operation: Any, mode: GenerationMode) -> int:
    """Send generated valid and invalid requests to one operation; return their number."""
    count = 0

    @hypothesis.settings(
        max_examples=CASES if mode is GenerationMode.POSITIVE else WRONG_CASES,
        deadline=None,
        derandomize=True,
        database=None,
        # Failures are reported without shrinking, which takes minutes.
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        nonlocal count
        count += 1
        headers = {"Authorization": f"Bearer {shared_app.key}"} if count % 5 else {}
        how = {"headers": headers, "session": session, "timeout": PATIENCE_SECONDS}
        answer = case.call(base_url=shared_app.url, **how)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code not in DOCUMENTED:
            case.validate_response(answer, checks=[not_a_server_error])

    # Some operations accept every value, so that no invalid request exists.
    with contextlib.suppress(Unsatisfiable):
        ask()
    return count


def parameterless(schema: Any, label: str) -> bool:
    """Return whether an operation has no parameters to vary."""
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.label == label:
            return not operation.body and not list(operation.iter_parameters())
    return False


def test_every_error_of_the_tree_has_a_text_and_a_status() -> None:
    tree = [SixfoldError]
    for kind in tree:
        tree += kind.__subclasses__()
    assert all(400 <= kind.status < 600 and kind.code and kind.__doc__ for kind in tree)
