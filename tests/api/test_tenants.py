"""Two accounts on every route that names an object: objects of the other account are not found."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.api.media.jobs import PATHS
from sixfold.app.asgi import documents
from sixfold.app.bootstrap import Application
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import one
from tests.api import memory_routes
from tests.api.app_fixture import AppFixture, bearer

OBJECTS = {
    "GET /api/containers/predictions/{prediction_id}",
    "DELETE /api/containers/predictions/{prediction_id}",
    "POST /api/containers/predictions/{prediction_id}/cancel",
    "PUT /api/containers/predictions/{prediction_id}/cancel",
    "GET /api/containers/predictions/{prediction_id}/events",
    "GET /replicate/v1/predictions/{prediction_id}",
    "POST /replicate/v1/predictions/{prediction_id}/cancel",
}
# What names no object of an account but a model, which is everybody's or found by its owner alone.
MODELS = {
    "DELETE /api/containers/templates/{name}",
    "GET /api/containers/templates/{name}",
    "GET /v1/models/{model}",
    "POST /api/containers/{model_id}/queue/join",
    "POST /api/containers/{model_id}/quote",
    "POST /api/containers/{model_id}/sessions",
    "GET /replicate/v1/models/{owner}/{name}",
    "GET /replicate/v1/models/{owner}/{name}/versions",
    "GET /replicate/v1/models/{owner}/{name}/versions/{version}",
    "POST /replicate/v1/models/{owner}/{name}/predictions",
}
# tests/e2e/test_sessions.py requests these with other credentials.
SESSIONS = {"GET /api/containers/sessions/{session_id}", "DELETE /api/containers/sessions/{session_id}"}
# tests/api/test_stored_responses.py requests these with other credentials.
RESPONSES = {
    "GET /v1/responses/{response_id}",
    "DELETE /v1/responses/{response_id}",
    "GET /v1/responses/{response_id}/input_items",
    "POST /v1/responses/{response_id}/cancel",
}
# Routes below these paths, and the test that requests the objects of another account.
OTHERS = {
    "/v1/files": "test_gateway_files",
    "/v1/uploads": "test_gateway_files",
    "/v1/batches": "test_batches",
    "/v1/messages/batches": "test_batches",
    "/v1/conversations": "test_conversations",
    "/chat": "test_chat_pages",
    "/v1/vector_stores": "test_vector_stores",
    "/v1/videos": "test_openai_videos",
    "/api/organization/": "test_organizations",
    "/api/operator/": "test_operator",
    "/api/account/logging": "test_content_log",
    "/api/account/alerts": "test_cost_alerts",
    "/api/shares": "test_shares",
    "/api/shared-folders": "test_shared_folders",
    "/fal/": "test_fal_queue",
    "/ollama/": "test_ollama",
    "/api/graph/spaces/": "test_workflow_owners",
    "/replicate/v1/": "test_hosting_replicate",
}
# Whose URL or id alone is enough, on purpose; each has 128 random bits or more, or is public.
CAPABILITIES = {
    "GET /media/{name}",
    "GET /openapi/{area}",
    "GET /uploads/{path}",
    *(f"{method} {path}" for method in ("GET", "POST", "DELETE") for path in PATHS),
}


def route_paths(application: Application) -> set[str]:
    return {
        f"{method} {path}"
        for document in documents(application, list).values()
        for method, path, _ in document.summaries()
        if "{" in path
    }


async def test_every_route_with_an_object_is_covered(app: AppFixture) -> None:
    named = OBJECTS | MODELS | SESSIONS | RESPONSES | CAPABILITIES
    others = {
        route for route in route_paths(app.server) - named if route.partition(" ")[2].startswith((*OTHERS,))
    }
    assert route_paths(app.server) - others == named | memory_routes.ROUTES.keys()
    assert [name for name in OTHERS.values() if not Path(__file__).with_name(f"{name}.py").exists()] == []


async def prediction_of(app: AppFixture, key: str) -> str:
    """A finished prediction of a key's account."""
    run = {"model": "ra2", "input": {"prompt": "mine", "width": 64, "height": 64}}
    response = await app.client.post("/api/containers/run", json=run, headers=bearer(key))
    return str(response.json()["id"])


@pytest.mark.parametrize("route", sorted(OBJECTS))
async def test_object_of_another_account_is_not_found(app: AppFixture, route: str) -> None:
    method, _, path = route.partition(" ")
    mine = await prediction_of(app, app.key)
    responses = [
        await app.client.request(method, path.replace("{prediction_id}", name), headers=bearer(app.other))
        for name in (mine, mine[:-1] + "x", "pred_none")
    ]
    assert [response.status_code for response in responses] == [404] * 3
    bodies = [{**response.json(), "request_id": ""} for response in responses]
    assert bodies[0] == bodies[1] == bodies[2]


async def test_lists_and_ledger_show_only_own_entries(app: AppFixture) -> None:
    mine, theirs = await prediction_of(app, app.key), await prediction_of(app, app.other)
    for key, own, foreign in ((app.key, mine, theirs), (app.other, theirs, mine)):
        for path in ("/api/containers/predictions", "/api/account/ledger", "/api/account"):
            text = (await app.client.get(path, headers=bearer(key))).text
            assert foreign not in text
            if path != "/api/account":
                assert own in text


async def test_upload_of_another_account_cannot_be_an_input(app: AppFixture) -> None:
    image = (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)).json()["image_url"]
    data = (await app.client.get(image)).content
    upload = (await app.client.post("/api/uploads", content=data, headers=app.bearer)).json()
    body = {"source_image_url": upload["id"], "style_prompt": "ukiyo-e"}
    for key, status in ((app.key, 200), (app.other, 422)):
        response = await app.client.post("/api/style-transfer", json=body, headers=bearer(key))
        assert response.status_code == status


async def test_pages_show_only_own_predictions(app: AppFixture) -> None:
    mine, theirs = await prediction_of(app, app.key), await prediction_of(app, app.other)
    clock = await app.database.read(one("clock"))
    assert clock is not None
    token = await app.database.write(login_sessions.new_link(app.account.id, clock["now"]))
    await app.client.get("/signin", params={"token": token})
    assert (await app.client.get(f"/predictions/{mine}")).status_code == 200
    assert (await app.client.get(f"/predictions/{theirs}")).status_code == 404
    assert theirs not in (await app.client.get("/account")).text


async def test_save_path_cannot_replace_files_of_another_account(app: AppFixture) -> None:
    query = {"prompt": "x", "width": "64", "height": "64"}
    mine = await app.client.get(
        "/create_and_upload_image", params={**query, "save_path": "x.png"}, headers=app.bearer
    )
    before = (await app.client.get(mine.json()["path"])).content
    for headers in (bearer(app.other), {}):
        aimed = {**query, "prompt": "y", "save_path": f"{app.account.id}/x.png"}
        await app.client.get("/create_and_upload_image", params=aimed, headers=headers)
    assert (await app.client.get(mine.json()["path"])).content == before
