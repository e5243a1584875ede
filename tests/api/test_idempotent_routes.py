"""Which POST routes run once per Idempotency-Key: all that charge or create, checked over the route table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sixfold.web.app import WebApp
from tests.api.app_fixture import AppFixture, bearer
from tests.api.gateway import Gateway

KEY = {"Idempotency-Key": "order 66"}
TOO_LONG = {"Idempotency-Key": "x" * 256}
FORMS = frozenset({"memory-pages", "ui"})
# A body that is valid enough to reach the check of the key.
CHAT: Mapping[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "x"}],
    "prompt": "x",
    "input": "x",
    "max_tokens": 1,
    "stream": False,
}
BODIES: Mapping[str, Mapping[str, Any]] = {
    "/api/service": {"service": "ra2", "prompt": "x"},
    "/api/style-transfer": {"source_image_url": "https://example.com/x.png", "style_prompt": "x"},
    "/v1/chat": {"model": "chat", "message": "x"},
    "/v1/completions": {"model": "chat", "prompt": "x"},
}
# A part of each name that a route reads.
FILES: dict[str, Any] = dict.fromkeys(("file", "data", "content", "media", "avatar"), ("x.txt", b"x"))
# They neither charge nor create, or a repeated request finds the object of the first one anyway.
HARMLESS = frozenset(
    {
        *(f"{base}{path}" for base in ("", "/api") for path in ("/free", "/history", "/interrupt", "/queue")),
        *(f"{base}/upload/{kind}" for base in ("", "/api") for kind in ("image", "mask")),
        "/api/account/deposits",
        "/api/containers/predictions/{prediction_id}/cancel",
        "/api/containers/{model_id:path}/quote",
        "/api/context",
        "/api/graph/diff",
        "/api/graph/validate",
        "/alt/api/media/status/{job_id}",
        "/api/media/status/{job_id}",
        "/api/operator/accounts/{account_id}/keep",
        "/api/operator/accounts/{account_id}/resume",
        "/api/operator/accounts/{account_id}/suspend",
        "/api/operator/installs",
        "/api/operator/installs/{family}/{name}/stop",
        "/api/operator/model-servers/test",
        "/api/operator/providers/{provider}/test",
        "/api/operator/shares/end",
        "/api/operator/tool-servers/test",
        "/api/operator/web-search/test",
        "/api/organization/transfer",
        "/api/remember/undo",
        "/api/search",
        "/api/webhooks/stripe",
        "/fal/storage/auth/token",
        "/fal/storage/upload/initiate",
        "/oauth/revoke",
        "/ollama/api/pull",
        "/ollama/api/show",
        "/replicate/v1/predictions/{prediction_id}/cancel",
        "/replicate/v1/trainings/{prediction_id}/cancel",
        "/v1/batches/{batch_id}/cancel",
        "/v1/conversations/{conversation_id}",
        "/v1/messages/batches/{batch_id}/cancel",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
        "/v1/responses/{response_id}/cancel",
        "/v1/uploads/{upload_id}/cancel",
        "/v1/vector_stores/{vector_store_id}",
        "/v1/vector_stores/{vector_store_id}/file_batches/{file_batch_id}/cancel",
        "/v1/vector_stores/{vector_store_id}/files/{file_id}",
        "/v1/vector_stores/{vector_store_id}/search",
    }
)
# Their responses contain a secret, of which only the hash or the encrypted form is stored.
SECRET = frozenset(
    {
        "/api/account/webhook-secret",
        "/api/operator/accounts",
        "/api/organization/invitations",
        "/api/organization/keys",
        "/api/shares",
        "/v1/realtime/client_secrets",
    }
)
# Clients that send no other headers than OAuth defines.
OAUTH = frozenset({"/oauth/register", "/oauth/token"})
# They refuse every request.
REFUSED = frozenset(
    {
        "/ollama/api/blobs/{digest}",
        "/ollama/api/copy",
        "/ollama/api/create",
        "/ollama/api/push",
        "/replicate/v1/deployments",
        "/replicate/v1/models",
        "/replicate/v1/models/{owner}/{name}/versions/{version}/trainings",
        "/v1/videos/characters",
        "/v1/videos/edits",
        "/v1/videos/extensions",
        "/v1/videos/{video_id}/remix",
    }
)


async def test_all_other_posts_check_the_key(app: AppFixture) -> None:
    headers = {**bearer(await app.operator_key()), **TOO_LONG}
    ignoring: set[str] = set()
    for entry in cast("WebApp", app.asgi).table.entries():
        if entry.method != "POST" or entry.api in FORMS:
            continue
        path = re.sub(r"\{app[^}]*\}", "sixfold/ra2", entry.path)
        path = re.sub(r"\{[^}]*\}", "x", path)
        body = BODIES.get(entry.path, CHAT)
        responses = [
            await app.client.post(path, headers=headers, json=body),
            await app.client.post(path, headers=headers, files=FILES),
        ]
        if not any("Idempotency-Key must have" in response.text for response in responses):
            ignoring.add(entry.path)
    assert ignoring == HARMLESS | SECRET | OAUTH | REFUSED


async def test_responses_with_a_secret_are_not_repeatable(app: AppFixture) -> None:
    key = await app.operator_key()
    for path in sorted(SECRET):
        response = await app.client.post(path, headers={**bearer(key), **KEY}, json={})
        assert response.status_code == 400, (path, response.text)
        assert "omit Idempotency-Key" in response.text, path
        other_account = await app.visitor().post(path, headers=KEY, json={})
        assert other_account.status_code == 401, (path, other_account.text)


async def replay(app: AppFixture, path: str, body: Any, key: str = "") -> dict[str, Any]:
    """Send a request twice and return its document, which must be that of the first."""
    headers = {**(bearer(key) if key else app.bearer), **KEY}
    first, second = [await app.client.post(path, headers=headers, json=body) for _ in range(2)]
    assert first.is_success, first.text
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["Idempotent-Replayed"] == "true"
    other = await app.client.post(path, headers=headers, json={**body, "other": 1})
    assert other.status_code == 409
    return cast("dict[str, Any]", first.json())


async def test_stored_objects_are_created_once(any_database_gateway: Gateway) -> None:
    app = any_database_gateway.app
    item = {"type": "message", "role": "user", "content": "x"}
    conversation = await replay(app, "/v1/conversations", {"items": [item]})
    items = f"/v1/conversations/{conversation['id']}/items"
    await replay(app, items, {"items": [item]})
    body = (await app.client.get(items, headers=app.bearer)).json()
    assert len(body["data"]) == 2
    store = await replay(app, "/v1/vector_stores", {"name": "notes"})
    stores = (await app.client.get("/v1/vector_stores", headers=app.bearer)).json()["data"]
    assert [row["id"] for row in stores] == [store["id"]]
    form = {"file": ("a.txt", b"a lighthouse"), "purpose": (None, "assistants")}
    file = (await app.client.post("/v1/files", headers=app.bearer, files=form)).json()
    path = f"/v1/vector_stores/{store['id']}"
    batch = await replay(app, f"{path}/file_batches", {"file_ids": [file["id"]]})
    response = await app.client.get(f"{path}/file_batches/{batch['id']}", headers=app.bearer)
    assert response.json()["file_counts"]["total"] == 1
    refused_response = await app.client.post(
        f"{path}/files", headers={**app.bearer, **KEY}, json={"file_id": "x"}
    )
    assert "error" in refused_response.json()
    assert refused_response.status_code in {400, 404}


async def test_credit_of_an_operator_is_added_once(any_database_app: AppFixture) -> None:
    app = any_database_app
    path = f"/api/operator/accounts/{app.account.id}/credit"
    body = {"amount_usd": "2.00", "reason": "a refund"}
    assert (await replay(app, path, body, await app.operator_key()))["account_id"] == app.account.id
    assert await app.balance() == ("7.00", "0.00")
    assert await app.faults() == ()


async def test_compatible_uploads_are_stored_once(app: AppFixture) -> None:
    headers = {**app.bearer, **KEY}
    for path, part in (("/replicate/v1/files", "content"), ("/fal/files/upload", "file")):
        forms = [{part: ("x.txt", b"some text", "text/plain")} for _ in range(2)]
        answers = [await app.client.post(path, headers=headers, files=form) for form in forms]
        assert answers[0].is_success, path
        assert answers[1].json() == answers[0].json(), path
    body = (await app.client.get("/replicate/v1/files", headers=app.bearer)).json()
    assert len(body["results"]) == 2
