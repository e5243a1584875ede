"""Names chosen by clients: two tenants with the same name share no data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import queries
from sixfold.core.workflows.comfyui.websocket_hub import WebSocketHub
from tests.api.app_fixture import AppFixture, bearer, running_app

Headers = dict[str, str]
PROMPT_ID, CLIENT_ID = "job-0001", "me"
SMALL = {"prompt": "x", "width": "64", "height": "64"}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c63f8cfc0f01f00050001ff5e9e2f0a0000000049454e44ae426082"
)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


@pytest.fixture
async def any_database_app(either: Path) -> AsyncIterator[AppFixture]:
    async with running_app(either, app_catalog.models_document()) as result:
        yield result


def text_graph(text: str) -> dict[str, Any]:
    return {"1": {"class_type": "PrimitiveString", "inputs": {"value": text}}, **preview_node("1")}


def preview_node(node_id: str) -> dict[str, Any]:
    """Return a node that shows another node's text."""
    return {"2": {"class_type": "PreviewAny", "inputs": {"source": [node_id, 0]}}}


async def tenants(app: AppFixture) -> tuple[Headers, ...]:
    """Two accounts, an operator's key, and the keyless tenant of this machine."""
    key = (await app.database.write(keys.create(app.operator.id))).api_key
    return app.bearer, bearer(app.other), bearer(key), {}


async def finished_prompt(app: AppFixture, headers: Headers, graph: dict[str, Any]) -> Any:
    """Wait until a tenant's prompt has ended, and return its history entry."""
    body = {"prompt": graph, "prompt_id": PROMPT_ID, "client_id": CLIENT_ID}
    response = await app.client.post("/prompt", json=body, headers=headers)
    assert response.status_code == 200, response.text
    async with asyncio.timeout(30):
        while True:
            document = (await app.client.get(f"/history/{PROMPT_ID}", headers=headers)).json()
            if document and "execution_success" in str(document[PROMPT_ID]["status"]["messages"]):
                return document[PROMPT_ID]
            await asyncio.sleep(0.01)


async def test_prompts_of_one_name_are_each_tenants_own(any_database_app: AppFixture) -> None:
    app = any_database_app
    who = await tenants(app)
    entries = [
        await finished_prompt(app, headers, text_graph(f"secret {n}")) for n, headers in enumerate(who)
    ]
    second_histories = [(await app.client.get("/history", headers=headers)).json() for headers in who]
    for number, (entry, history) in enumerate(zip(entries, second_histories, strict=True)):
        assert list(history) == [PROMPT_ID]
        assert history[PROMPT_ID] == entry
        assert [each for each in range(len(who)) if f"secret {each}" in str(history)] == [number]
        kinds = [kind for kind, _ in entry["status"]["messages"]]
        assert kinds.count("execution_success") == kinds.count("execution_start") == 1


async def test_prompt_end_is_sent_only_to_clients_of_its_tenant(app: AppFixture) -> None:
    hub = app.server.workflows.hub
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    owners = (Tenant(app.account.id), Tenant(ben.id), Tenant(app.operator.id, keyless=True))
    who = (app.bearer, bearer(app.other), {})
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(hub.open(owner, CLIENT_ID)) for owner in owners]
        for number, headers in enumerate(who):
            await finished_prompt(
                app, headers, {f"of-{number}": text_graph("x")["1"], **preview_node(f"of-{number}")}
            )
        for number, client in enumerate(clients):
            messages: list[str | bytes] = []
            while client.size:
                messages.append(await client.next())
            assert [each for each in range(3) if f"of-{each}" in str(messages)] == [number]


async def test_queues_are_each_tenants_own(app: AppFixture) -> None:
    who = await tenants(app)
    for headers in who:
        await app.client.post("/queue", json={"clear": True}, headers=headers)
        await app.client.post("/interrupt", json={"prompt_id": PROMPT_ID}, headers=headers)
        await finished_prompt(app, headers, text_graph("x"))
    await app.client.post("/history", json={"delete": [PROMPT_ID]}, headers={})
    left = [len((await app.client.get("/history", headers=headers)).json()) for headers in who]
    assert left == [1, 1, 1, 0]
    await app.client.post("/history", json={"clear": True}, headers=who[2])
    assert (await app.client.get("/history", headers=app.bearer)).json() != {}


async def test_files_of_one_name_are_each_tenants_own(any_database_app: AppFixture) -> None:
    app = any_database_app
    who = await tenants(app)
    for number, headers in enumerate(who):
        form = {"image": ("x.png", PNG + bytes([number]), "image/png")}
        response = await app.client.post("/upload/image", files=form, headers=headers)
        assert response.json() == {"name": "x.png", "subfolder": "", "type": "input"}
    request = {"filename": "x.png", "type": "input"}
    for number, headers in enumerate(who):
        observed_response = await app.client.get("/view", params=request, headers=headers)
        assert observed_response.content == PNG + bytes([number])
    there = {"filename": "x.png", "subfolder": "/keyless", "type": "input"}
    assert (await app.client.get("/view", params=there, headers=who[2])).status_code != 200


async def test_outcomes_of_nodes_are_each_tenants_own(any_database_app: AppFixture) -> None:
    workflows = any_database_app.server.workflows
    who = await tenants(any_database_app)
    for headers in who:
        entry = await finished_prompt(any_database_app, headers, text_graph("the same"))
        [cached] = [data for kind, data in entry["status"]["messages"] if kind == "execution_cached"]
        assert cached["nodes"] == []
    operator = any_database_app.operator.id
    await workflows.output_cache(Tenant(operator, keyless=True)).clear()
    for headers, nodes in ((who[2], 2), ({}, 0)):
        entry = await finished_prompt(any_database_app, headers, text_graph("the same"))
        [cached] = [data for kind, data in entry["status"]["messages"] if kind == "execution_cached"]
        assert len(cached["nodes"]) == nodes


async def test_idempotency_keys_of_one_name_are_each_tenants_own(app: AppFixture) -> None:
    headers = {"Idempotency-Key": "one"}
    numbers: list[httpx.Response] = []
    for who in await tenants(app):
        body = {"prompt": text_graph("x")}
        numbers.append(await app.client.post("/prompt", json=body, headers={**headers, **who}))
    assert [response.status_code for response in numbers] == [200] * 4
    assert len({response.json()["prompt_id"] for response in numbers}) == 4
    assert not any("idempotent-replayed" in response.headers for response in numbers)


async def test_save_paths_of_one_name_are_each_tenants_own(app: AppFixture) -> None:
    responses: list[Any] = []
    for number, headers in enumerate(await tenants(app)):
        query = {**SMALL, "prompt": f"{number}", "save_path": "same.png"}
        responses.append(await app.client.get("/create_and_upload_image", params=query, headers=headers))
    paths = [response.json()["path"] for response in responses[:3]]
    files = [(await app.client.get(path)).content for path in paths]
    assert len(set(paths)) == len(set(files)) == 3
    # The operator and requests without a key share the top level of the bucket.
    assert responses[3].status_code == 409


async def test_predictions_without_a_key_are_marked_with_children(app: AppFixture) -> None:
    await finished_prompt(app, {}, text_graph("x"))
    await app.client.get("/create_image", params=SMALL)
    await finished_prompt(app, bearer((await tenants(app))[2]["Authorization"].split()[1]), text_graph("y"))
    tenant, filters = Tenant(app.operator.id), queries.PredictionFilter()
    rows, _ = await queries.page(app.database, tenant, filters, 10, None)
    assert [bool(row["keyless"]) for row in rows] == [False, True, True]


@pytest.mark.parametrize("times", [50])
def test_repeated_messages_of_a_run_are_stored_once(times: int) -> None:
    hub = WebSocketHub()
    for number in range(times):
        hub.remember("pred_1", "execution_start", {"number": number})
        hub.remember("pred_1", "execution_error", {"number": number})
    assert hub.messages("pred_1") == [
        ["execution_start", {"number": times - 1}],
        ["execution_error", {"number": times - 1}],
    ]
