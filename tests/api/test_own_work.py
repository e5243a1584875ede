"""Keys without `account.read` see only what they, or their grant, created; on both databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.gateway import running_gateway
from tests.api.test_oauth import OAuthClient
from tests.harness.waiting import wait_until
from tests.mcp.agent import Agent

RUN = {"model": "ra1", "input": {"prompt": "a hill"}}
SESSIONS = "/api/containers/motion-model/sessions"
UPLOAD = "/create_and_upload_image"
LISTS = ("/api/containers/predictions", "/replicate/v1/predictions")
GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f0005000201ff2b3d3b0000000049454e44ae426082"
)


async def running(app: AppFixture) -> str:
    """A key of the first account that may run models, and nothing else."""
    result = keys.create(app.account.id, granted=Rights.RUN)
    return (await app.database.write(result)).api_key


async def run_model(app: AppFixture, key: str, **more: str) -> str:
    response = await app.client.post("/api/containers/run", json=RUN, headers={**bearer(key), **more})
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def list_ids(app: AppFixture, path: str, key: str, **query: Any) -> list[str]:
    answer = (await app.client.get(path, params=query, headers=bearer(key))).json()
    return [each["id"] for each in answer.get("predictions", answer.get("results", []))]


async def test_predictions_of_other_keys_are_absent(any_database_app: AppFixture) -> None:
    app = any_database_app
    first, second = await running(app), await running(app)
    of_one, of_two, of_all = (
        await run_model(app, first),
        await run_model(app, second),
        await run_model(app, app.key),
    )
    for path in LISTS:
        assert await list_ids(app, path, first) == [of_one]
        assert await list_ids(app, path, second) == [of_two]
        assert await list_ids(app, path, app.key) == [of_all, of_two, of_one]
    agent = Agent(app, second)
    result = await agent.result("tools/call", {"name": "prediction", "arguments": {}})
    assert [each["id"] for each in result["structuredContent"]["predictions"]] == [of_two]
    for path in (f"{LISTS[0]}/{of_one}", f"{LISTS[0]}/{of_one}/events", f"{LISTS[1]}/{of_one}"):
        statuses = [
            (await app.client.get(path, headers=bearer(key))).status_code for key in (first, second, app.key)
        ]
        assert statuses == [200, 404, 200], path
    for method, path in (
        ("DELETE", f"{LISTS[0]}/{of_one}"),
        ("POST", f"{LISTS[0]}/{of_one}/cancel"),
        ("POST", f"{LISTS[1]}/{of_one}/cancel"),
    ):
        assert (await app.client.request(method, path, headers=bearer(second))).status_code == 404, path
    refused_result = await agent.result("tools/call", {"name": "prediction", "arguments": {"id": of_one}})
    assert refused_result["isError"]


async def test_list_of_a_limited_key_has_full_pages(any_database_app: AppFixture) -> None:
    app = any_database_app
    key, result, cursor = await running(app), list[str](), None
    own: list[str] = []
    for _ in range(3):
        own.append(await run_model(app, key))
        await run_model(app, app.key)
    for _ in range(3):
        query = {"limit": 1, **({"cursor": cursor} if cursor else {})}
        page = (await app.client.get(LISTS[0], params=query, headers=bearer(key))).json()
        result += [each["id"] for each in page["predictions"]]
        cursor = page["next_cursor"]
    assert (result, cursor) == (own[::-1], None)


async def test_all_keys_of_a_programs_grant_see_its_work(any_database_app: AppFixture) -> None:
    program, other = (
        await OAuthClient.registered(any_database_app),
        await OAuthClient.registered(any_database_app),
    )
    first, foreign = await program.tokens(scope="models"), await other.tokens(scope="models")
    result = await run_model(any_database_app, first["access_token"])
    second_body = (await program.refresh(first["refresh_token"])).json()
    assert await list_ids(any_database_app, LISTS[0], second_body["access_token"]) == [result]
    assert await list_ids(any_database_app, LISTS[0], foreign["access_token"]) == []


async def test_prompts_and_files_of_other_keys_are_absent(either: Path) -> None:
    async with running_app(either, app_catalog.models_document()) as app:
        await prompts_are_apart(app)


async def prompts_are_apart(app: AppFixture) -> None:
    first, second = await running(app), await running(app)
    response = await app.client.post(
        "/prompt", json={"prompt": GRAPH, "prompt_id": "p"}, headers=bearer(first)
    )
    assert response.status_code == 200, response.text

    async def history(key: str) -> dict[str, Any]:
        return (await app.client.get("/history", headers=bearer(key))).json()

    await wait_until(lambda: history(first))
    (image,) = (await history(app.key))["p"]["outputs"]["2"]["images"]
    assert await history(second) == {}
    assert (await app.client.get("/history/p", headers=bearer(second))).json() == {}
    seen = [
        (await app.client.get("/view", params=image, headers=bearer(key))).status_code
        for key in (first, second, app.key)
    ]
    assert seen == [200, 404, 200]
    await app.client.post("/history", json={"clear": True}, headers=bearer(second))
    assert list(await history(first)) == ["p"]


async def test_a_limited_key_replaces_no_file_of_another_key(any_database_app: AppFixture) -> None:
    app = any_database_app

    async def put(key: str, data: bytes) -> str:
        files, form = {"image": ("a.png", data, "image/png")}, {"overwrite": "true"}
        response = await app.client.post("/upload/image", files=files, data=form, headers=bearer(key))
        return str(response.json()["name"])

    limited = await running(app)
    assert await put(app.key, PIXEL) == "a.png"
    assert await put(limited, PIXEL + b"x") == "a (1).png"
    named = {"filename": "a.png", "type": "input"}
    assert (await app.client.get("/view", params=named, headers=app.bearer)).content == PIXEL


async def test_uploads_of_other_keys_are_absent(any_database_app: AppFixture) -> None:
    app = any_database_app
    first, second = await running(app), await running(app)
    sent = {"file": ("a.png", PIXEL, "image/png")}
    upload = (await app.client.post("/api/uploads", files=sent, headers=bearer(first))).json()["id"]
    order = {"model": "remove-background", "input": {"image_url": upload}}

    async def join(key: str) -> httpx.Response:
        return await app.client.post("/api/containers/run", json=order, headers=bearer(key))

    absent = await join(second)
    assert absent.status_code == 400
    assert "Upload not found" in absent.text
    assert "Upload not found" not in (await join(first)).text
    assert "Upload not found" not in (await join(app.key)).text


async def test_live_session_of_another_key_is_hidden_and_stays_open(either: Path) -> None:
    async with running_app(either, app_catalog.models_document()) as app:
        first, second = await running(app), await running(app)
        body = (await app.client.post(SESSIONS, json={}, headers=bearer(first))).json()
        path = f"/api/containers/sessions/{body['session_id']}"
        for method in ("GET", "DELETE"):
            assert (await app.client.request(method, path, headers=bearer(second))).status_code == 404
        assert (await app.client.get(path, headers=app.bearer)).json()["status"] not in {"closed", "failed"}
        assert (await app.client.delete(path, headers=bearer(first))).json()["status"] == "closed"


async def test_responses_and_calls_of_other_keys_are_absent(either: Path) -> None:
    async with running_gateway(either) as gateway:
        app = gateway.app
        first, second = await running(app), await running(app)

        async def ask(key: str, **more: Any) -> httpx.Response:
            body = {"model": "acme/small", "input": "say 1 words", **more}
            return await app.client.post("/v1/responses", json=body, headers=bearer(key))

        document = (await ask(first)).json()
        path, item = f"/v1/responses/{document['id']}", document["output"][0]["id"]
        assert (await ask(first, previous_response_id=document["id"])).status_code == 200
        assert (await ask(app.key, previous_response_id=document["id"])).status_code == 200
        assert (await ask(second, previous_response_id=document["id"])).status_code in (400, 404)
        reference = [{"type": "item_reference", "id": item}, {"role": "user", "content": "go on"}]
        assert (await ask(first, input=reference)).status_code == 200
        assert (await ask(second, input=reference)).status_code == 404
        for method, there in (("GET", path), ("GET", f"{path}/input_items"), ("DELETE", path)):
            assert (await app.client.request(method, there, headers=bearer(second))).status_code == 404
        assert (await app.client.get(path, headers=app.bearer)).status_code == 200
        await gateway.settled()
        calls = (await app.client.get("/api/gateway/calls", headers=bearer(second))).json()["calls"]
        assert calls == []


async def test_calls_of_own_models_are_in_the_log(either: Path) -> None:
    async with running_gateway(either) as gateway:
        app = gateway.app
        second = await running(app)
        for number in range(2):
            await gateway.chat(f"say {number + 1} words")
            image = {"model": "ra2", "prompt": f"a lake {number}", "size": "64x64"}
            response = await app.client.post("/v1/images/generations", json=image, headers=app.bearer)
            assert response.status_code == 200, response.text
        await gateway.settled(4)
        path = "/api/gateway/calls"

        async def page(query: str = "", key: str = app.key) -> Any:
            return (await app.client.get(f"{path}{query}", headers=bearer(key))).json()

        all_calls = (await page())["calls"]
        assert [call["face"] for call in all_calls] == ["images", "chat"] * 2
        own = all_calls[0]
        assert (own["model"], own["status"], own["cost_usd"]) == ("ra2", "succeeded", "0.04")
        assert (own["id"][:5], own["usage"]["counted_by"]) == ("pred_", "none")
        assert own["charge"]["amount_usd"] == "0.04"
        first = await page("?limit=3")
        rest = await page(f"?limit=3&cursor={first['next_cursor']}")
        assert [call["id"] for call in first["calls"] + rest["calls"]] == [call["id"] for call in all_calls]
        assert rest["next_cursor"] is None
        assert len((await page("?model=ra2&status=succeeded"))["calls"]) == 2
        assert len((await page(f"?q={own['id'][-12:]}"))["calls"]) == 1
        assert (await page("?status=failed"))["calls"] == []
        assert (await page(key=second))["calls"] == []


async def test_all_keys_of_a_grant_see_its_calls(either: Path) -> None:
    async with running_gateway(either) as gateway:
        program = await OAuthClient.registered(gateway.app)
        first = await program.tokens(scope="models")
        body = {"model": "acme/small", "input": "say 1 words"}
        sent = await gateway.app.client.post(
            "/v1/responses", json=body, headers=bearer(first["access_token"])
        )
        assert sent.status_code == 200
        await gateway.settled()
        second_headers = bearer((await program.refresh(first["refresh_token"])).json()["access_token"])
        calls = (await gateway.app.client.get("/api/gateway/calls", headers=second_headers)).json()["calls"]
        assert len(calls) == 1


async def test_replays_are_separate_for_each_key(any_database_app: AppFixture) -> None:
    app, once = any_database_app, {"Idempotency-Key": "k"}
    first, second = await running(app), await running(app)
    limited = keys.create(app.account.id, KeyLimits(services=("ra1",)), granted=rights.LIMITED)
    reading = (await app.database.write(limited)).api_key
    results = [await run_model(app, key, **once) for key in (first, second, reading, app.key)]
    assert len(set(results)) == 4
    assert await run_model(app, first, **once) == results[0]
    elsewhere = keys.create(app.account.id, KeyLimits(services=("anime",)), granted=rights.LIMITED)
    headers = bearer((await app.database.write(elsewhere)).api_key)
    response = await app.client.post("/api/containers/run", json=RUN, headers={**headers, **once})
    assert response.status_code == 403


@pytest.mark.parametrize("scope", [KeyLimits(budget_day=5_000_000), KeyLimits(rpm=1000)])
async def test_a_key_with_a_budget_still_sees_all_work(app: AppFixture, scope: KeyLimits) -> None:
    result = await run_model(app, app.key)
    assert await list_ids(app, LISTS[0], await app.limited_key(scope)) == [result]


async def test_upload_path_has_a_folder_for_each_limited_key(any_database_app: AppFixture) -> None:
    one, query = await running(any_database_app), {"prompt": "x", "save_path": "a.webp"}
    results = [
        (await any_database_app.client.get(UPLOAD, params=query, headers=bearer(key))).json()["path"]
        for key in (one, any_database_app.key)
    ]
    assert results[0].rpartition("/")[0] != results[1].rpartition("/")[0]
    for url in results:
        assert (await any_database_app.visitor().get(httpx.URL(url).path)).status_code == 200
