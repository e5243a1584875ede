"""Model tools: quotes, runs, results, charges and progress notifications."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import idempotency
from tests.api.app_fixture import AppFixture, running_app
from tests.api.gateway import running_gateway
from tests.fakes import fault_server
from tests.harness import image_files
from tests.mcp.agent import Agent

PIXEL = image_files.data_uri(fault_server.image(2, 2))


async def test_run_returns_an_image_at_the_quoted_cost(app: AppFixture, agent: Agent) -> None:
    quote = await agent.call("quote", model="ra1", input={"prompt": "a cat"})
    assert (quote["cost_usd"], quote["credits"]) == ("0.04", 4)
    assert await app.balance() == ("5.00", "0.00")
    result = await agent.result(
        "tools/call", {"name": "run", "arguments": {"model": "ra1", "input": {"prompt": "a"}}}
    )
    image, link, text = result["content"]
    assert (image["type"], link["type"], text["type"]) == ("image", "resource_link", "text")
    with Image.open(BytesIO(base64.b64decode(image["data"]))) as picture:
        assert Image.MIME[picture.format or ""] == image["mimeType"]
    fetched = await app.client.get(link["uri"])
    assert fetched.content == base64.b64decode(image["data"])
    values = result["structuredContent"]
    assert (values["status"], values["cost_usd"]) == ("succeeded", "0.04")
    assert await app.balance() == ("4.96", "0.00")
    second_result = await agent.call("prediction", id=values["id"])
    assert second_result["status"] == "succeeded"
    assert [row["id"] for row in (await agent.call("prediction"))["predictions"]] == [values["id"]]


RUN = {"name": "run", "arguments": {"model": "ra1", "input": {"prompt": "a cat"}}}
ONCE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": RUN}


@pytest.mark.parametrize("prompt", [ONCE, [ONCE, {**ONCE, "id": 2}]])
async def test_repeated_idempotency_key_is_run_and_charged_once(
    app: AppFixture, agent: Agent, prompt: object
) -> None:
    before, _ = await app.balance()
    responses = [
        await agent.post(prompt, Idempotency_Key="k", Accept="application/json, text/event-stream")
        for _ in range(2)
    ]
    assert responses[0].content == responses[1].content
    assert responses[1].headers["Idempotent-Replayed"] == "true"
    runs = len(prompt) if isinstance(prompt, list) else 1
    assert float(before) - float((await app.balance())[0]) == pytest.approx(0.04 * runs)


async def test_repeated_call_after_a_kill_finds_its_run(app: AppFixture, agent: Agent) -> None:
    first = await agent.post(ONCE, Idempotency_Key="k")
    scope = idempotency.scope_id(app.account.id, "POST", "/mcp", "k")
    await app.database.write(idempotency.forget(scope))
    second_response = await agent.post(ONCE, Idempotency_Key="k")
    assert second_response.json() == first.json()
    assert await app.balance() == ("4.96", "0.00")


async def test_refused_call_is_not_replayed(app: AppFixture) -> None:
    poor = Agent(app, app.poor)
    responses = [await poor.post(ONCE, Idempotency_Key="k") for _ in range(2)]
    messages = [response.json()["result"]["structuredContent"]["status"] for response in responses]
    assert messages == [402, 402]
    assert "Idempotent-Replayed" not in responses[1].headers


async def test_refused_run_names_every_invalid_input(agent: Agent) -> None:
    arguments = {"model": "ra1", "input": {"size": "1x1"}}
    result = await agent.result("tools/call", {"name": "run", "arguments": arguments})
    content = result["structuredContent"]
    assert (result["isError"], content["status"], content["code"]) == (True, 400, "invalid_input")
    assert [problem["input"] for problem in content["errors"]] == ["prompt", "size"]
    assert content["errors"][0]["message"] == "prompt is required"


async def test_run_without_files_succeeds_with_full_progress(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        result = await Agent(app).call("run_space", slug="api-contract", input={"text": "hi"})
    assert (result["output"], result["data"], result["progress"]) == ([], {"value": "hi"}, 1.0)


async def test_wait_limits_the_seconds_as_over_http(agent: Agent) -> None:
    result = await agent.call("run", model="ra1", input={"prompt": "SLOW"}, wait=0)
    assert result["status"] == "queued"
    await agent.call("prediction", id=result["id"], cancel=True, wait=10)


async def test_prediction_of_another_account_is_not_found(app: AppFixture, agent: Agent) -> None:
    result = await agent.call("run", model="ra1", input={"prompt": "a cat"})
    other_account = Agent(app, app.other)
    unknown = await other_account.error_of("prediction", id="pred_nope")
    assert await other_account.error_of("prediction", id=result["id"]) == unknown.replace(
        "pred_nope", result["id"]
    )
    assert (await other_account.call("prediction"))["predictions"] == []


async def test_missing_object_error_names_a_tool_that_lists_them(agent: Agent) -> None:
    nothing: dict[str, object] = {"model": "nothing", "input": {}}
    for tool, arguments, way in (
        ("run", nothing, "models without an argument lists"),
        ("quote", nothing, "models without an argument lists"),
        ("run_space", {"slug": "nothing"}, "lists each space as space:<slug>"),
        ("prediction", {"id": "pred_nothing"}, "without an id lists the latest"),
        ("read", {"slug": "nothing"}, "find the slug"),
    ):
        assert way in await agent.error_of(tool, **arguments)


async def test_run_without_credit_is_refused_with_the_reason(app: AppFixture) -> None:
    poor = Agent(app, app.poor)
    text = await poor.error_of("run", model="ra1", input={"prompt": "a cat"})
    assert "Insufficient credits" in text
    assert "credit" in text


async def test_inputs_of_a_model_are_a_json_schema(agent: Agent) -> None:
    result = (await agent.call("models"))["models"]
    assert {"model", "title", "description", "makes", "inputs"} == set(result[0])
    for row in result:
        schema = (await agent.call("models", model=row["model"]))["input_schema"]
        assert {name.rstrip("*") for name in row["inputs"]} == set(schema["properties"])
        assert {name.rstrip("*") for name in row["inputs"] if name.endswith("*")} == set(schema["required"])


async def test_run_with_a_progress_token_is_streamed(agent: Agent) -> None:
    params = {
        "name": "run",
        "arguments": {"model": "ra1", "input": {"prompt": "a cat"}},
        "_meta": {"progressToken": "t1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    response = await agent.post(body, Accept="application/json, text/event-stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    messages = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert all(message["method"] == "notifications/progress" for message in messages[:-1])
    assert {message["params"]["progressToken"] for message in messages[:-1]} == {"t1"}
    assert messages[-1]["result"]["structuredContent"]["status"] == "succeeded"
    assert len(messages) > 1


async def test_templates_are_charged_by_the_hour_on_chosen_hardware(app: AppFixture, agent: Agent) -> None:
    quote = await agent.call("quote", model="upscaler", input={"image": PIXEL})
    assert quote["price"].endswith("USD per hour")
    other = await agent.call("quote", model="upscaler", input={"image": PIXEL}, hardware="gpu-48gb-b")
    assert (other["hardware"], quote["hardware"]) == (
        "gpu-48gb-b",
        app.server.templates["upscaler"].hardware,
    )
    assert float(other["cost_usd"]) > float(quote["cost_usd"])
    result = await agent.call("run", model="upscaler", input={"image": PIXEL}, hardware="gpu-48gb-b")
    assert (result["status"], result["hardware"]) == ("succeeded", "gpu-48gb-b")
    assert "hardware" in await agent.error_of(
        "quote", model="upscaler", input={"image": PIXEL}, hardware="none"
    )


@pytest.mark.parametrize("model", ["ra2", "video-text", "chat", "tts"])
async def test_models_with_a_fixed_price_refuse_hardware(app: AppFixture, agent: Agent, model: str) -> None:
    """The price includes that of a provider, which does not depend on the hardware."""
    before = await app.balance()
    arguments = {"model": model, "input": {"prompt": "a fox"}, "hardware": "gpu-16gb-a"}
    for tool in ("quote", "run"):
        assert "does not accept hardware" in await agent.error_of(tool, **arguments)
    assert await app.balance() == before


async def test_custom_model_is_available_to_its_owner_only(app: AppFixture, agent: Agent) -> None:
    row = {
        "title": "Mine",
        "description": "My own pictures",
        "output_kind": "image",
        "price": "custom",
        "engines": ["scene-painter"],
        "inputs": {"prompt": {"type": "string", "required": True}},
    }
    document = {"models": {"custom:mine": row}}
    await app.predictions.custom_models.put(app.account.id, "custom", "custom:mine", document)
    other_account = Agent(app, app.other)
    for client, sees in ((agent, True), (other_account, False)):
        names = {each["model"] for each in (await client.call("models"))["models"]}
        assert ("custom:mine" in names) is sees
    assert (await agent.call("quote", model="custom:mine", input={"prompt": "x"}))["cost_usd"] == "0.04"
    assert (await agent.call("run", model="custom:mine", input={"prompt": "x"}))["status"] == "succeeded"
    for tool in ("quote", "run"):
        assert "not found" in await other_account.error_of(tool, model="custom:mine", input={"prompt": "x"})


async def test_chat_is_charged_by_tokens_and_vision_per_request(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        agent = Agent(gateway.app)
        request = {"prompt": "say 3 words", "model": "acme/small", "max_tokens": 20}
        quote = await agent.call("quote", model="chat", input=request)
        assert "tokens" in quote["price"]
        text = await agent.call("run", model="chat", input=request)
        assert (text["data"], text["engine"]) == ({"value": "word word word"}, "relay")
        assert 0 < float(text["cost_usd"]) <= float(quote["cost_usd"])
        vision = {"prompt": "say 3 words", "image_url": PIXEL}
        result = await agent.call("run", model="vision", input=vision)
        assert (result["status"], result["cost_usd"]) == ("succeeded", "0.002")
        assert "image" in str(gateway.acme.requests[-1])
        assert "prompt" in await agent.error_of("run", model="chat", input={})
        assert [call["face"] for call in await gateway.settled(2)] == ["hosting", "hosting"]


async def test_chat_without_a_model_server_returns_the_remedy(agent: Agent) -> None:
    assert "OPENAI_API_KEY" in await agent.error_of("run", model="chat", input={"prompt": "hello"})
