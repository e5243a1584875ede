"""Unsupported resources of the official libraries: one sentence in the library's error format."""

from __future__ import annotations

from typing import Any, cast

import anthropic
import openai
import pytest

from sixfold.api.gateway import unsupported
from tests.api.gateway import Gateway
from tests.fakes import fault_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


CALLS: dict[str, Any] = {
    "fine_tuning": lambda client: client.fine_tuning.jobs.list(),
    "evals": lambda client: client.evals.list(),
    "containers": lambda client: client.containers.list(),
    "graders": lambda client: client.fine_tuning.alpha.graders.run(grader={}, model_sample=""),
    "realtime": lambda client: client.realtime.calls.hangup("call_1"),
    "assistants": lambda client: client.beta.assistants.list(),
    "threads": lambda client: client.beta.threads.retrieve("thread_1"),
    "variations": lambda client: client.images.create_variation(image=fault_server.image(8, 8)),
    "stored chats": lambda client: client.chat.completions.retrieve("c_1"),
}


@pytest.mark.parametrize("name", list(CALLS))
async def test_openai_resource_is_501_in_one_sentence(gateway: Gateway, name: str) -> None:
    # With its default of two retries, the library must not repeat the request.
    with pytest.raises(openai.InternalServerError) as excinfo:
        await CALLS[name](gateway.openai(max_retries=2))
    assert excinfo.value.status_code == 501
    assert excinfo.value.code == "not_supported"
    assert excinfo.value.response.headers["x-should-retry"] == "false"
    assert "not supported by this server" in cast("Any", excinfo.value.body)["message"]


async def test_anthropic_resource_is_501_in_its_own_format(gateway: Gateway) -> None:
    client = gateway.anthropic()
    with pytest.raises(anthropic.InternalServerError) as excinfo:
        await client.beta.skills.list()
    assert excinfo.value.status_code == 501
    error = cast("Any", excinfo.value.body)
    assert (error["type"], error["error"]["code"]) == ("error", "not_supported")
    assert error["error"]["message"].startswith("The skills API is not supported")
    with pytest.raises(anthropic.APIStatusError) as missing_error:
        await client.post("/v1/nothing", cast_to=object)
    assert missing_error.value.status_code == 404
    assert cast("Any", missing_error.value.body)["error"]["type"] == "not_found_error"


async def test_unknown_path_names_the_list_of_paths(gateway: Gateway) -> None:
    for path in ("/v1/nothing", "/v1/", "/v1/audio", "/v1/images/other", "/v1/fine_tuningx"):
        response = await gateway.app.client.get(path, headers=gateway.headers)
        assert response.status_code == 404, path
        assert "/openapi/gateway.json" in response.json()["error"]["message"]
    for path in ("/v1/evals", "/v1/evals/e/runs/r/output_items", "/v1/chat/completions/c/messages"):
        for method in ("GET", "POST", "DELETE"):
            response = await gateway.app.client.request(method, path, headers=gateway.headers)
            assert response.status_code == 501, (method, path)


async def test_missing_method_of_a_path_is_405(gateway: Gateway) -> None:
    with pytest.raises(openai.APIStatusError) as excinfo:
        await gateway.openai(max_retries=2).chat.completions.list()
    assert (excinfo.value.status_code, excinfo.value.code) == (405, "method_not_allowed")
    assert excinfo.value.response.headers["Allow"] == "POST"
    assert "GET /v1/responses/{id}" in cast("Any", excinfo.value.body)["message"]


async def test_no_unsupported_path_has_a_route(gateway: Gateway) -> None:
    table = cast("Any", gateway.app.asgi).table
    accepted = [
        entry.path
        for entry in table.entries()
        for name in unsupported.OPENAI
        if entry.path.startswith(f"/v1/{name}/") or (entry.path == f"/v1/{name}" and "/" not in name)
    ]
    assert accepted == []


@pytest.mark.parametrize("path", unsupported.RESERVED[1:])
async def test_path_without_v1_names_the_base_url(gateway: Gateway, path: str) -> None:
    response = await gateway.app.client.post(path, json={}, headers=gateway.headers)
    assert response.status_code == 404
    message = response.json()["error"]["message"]
    assert message.startswith(f"No route POST {path}: the OpenAI-compatible API is at /v1")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_base_url_has_the_openai_error_format(gateway: Gateway, method: str) -> None:
    response = await gateway.app.client.request(method, "/v1")
    assert response.status_code == 404
    assert response.json()["error"]["message"].startswith("The path /v1 was not found")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"messages": "hi"}, "messages must be an array (got a string)"),
        ({"messages": [], "model": 5}, "model must be a string (got an integer)"),
    ],
)
async def test_wrong_type_of_a_field_is_one_sentence(
    gateway: Gateway, fields: dict[str, Any], sentence: str
) -> None:
    response = await gateway.app.client.post(
        "/v1/chat/completions", json={"model": "local", **fields}, headers=gateway.headers
    )
    error = response.json()["error"]
    assert (response.status_code, error["message"]) == (400, sentence)
    assert error["param"] == sentence.split()[0]
