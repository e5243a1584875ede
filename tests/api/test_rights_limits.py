"""Limits of restricted keys, OAuth clients and old logins, on pages and over HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.database import one
from sixfold.core.predictions import requests
from sixfold.core.predictions.child_runs import ChildRun, PipelineChildren
from sixfold.core.predictions.requests import ParentRun, PredictionRequest
from sixfold.errors import Conflict, Forbidden
from tests.api.app_fixture import ORIGIN, AppFixture, bearer
from tests.api.test_oauth import AUTHORIZE, OAuthClient
from tests.api.test_pages import link, signed_in


async def test_limits_on_models_hold_for_every_api(app: AppFixture) -> None:
    headers = bearer(await app.limited_key(KeyLimits(services=("ra1",))))
    blank = {"width": 16, "height": 16, "batch_size": 1, "color": 0}
    inputs = {"images": ["1", 0], "filename_prefix": "x"}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": blank},
        "2": {"class_type": "SaveImage", "inputs": inputs},
    }
    expected: list[tuple[str, dict[str, Any]]] = [
        ("/api/anime", {"prompt": "x"}),
        ("/api/service", {"service": "anime", "prompt": "x"}),
        ("/api/service", {"service": "chat", "prompt": "x"}),
        ("/api/training", {"name": "mine", "images": ["https://pictures.example/a.png"] * 4}),
        ("/api/create-post", {"text": "x"}),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"model": "m", "input": "x"}),
        ("/v1/messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}),
        ("/v1/images/generations", {"model": "anime", "prompt": "x"}),
        ("/v1/audio/speech", {"model": "tts", "input": "x", "voice": "alloy"}),
        ("/v1/embeddings", {"model": "embeddings", "input": "x"}),
        ("/api/containers/run", {"model": "anime", "input": {"prompt": "x"}}),
        ("/api/containers/anime/queue/join", {"input": {"prompt": "x"}}),
        ("/replicate/v1/models/sixfold/anime/predictions", {"input": {"prompt": "x"}}),
        ("/prompt", {"prompt": graph}),
        ("/api/prompt", {"prompt": graph}),
        ("/api/style-transfer", {"source_image_url": "https://pictures.example/a.png", "style_prompt": "x"}),
    ]
    responses = await asyncio.gather(
        *(app.client.post(path, json=body, headers=headers) for path, body in expected)
    )
    accepted = {
        path: (response.status_code, response.text[:120])
        for (path, _), response in zip(expected, responses, strict=True)
        if response.status_code != 403 or "may not use" not in response.text
    }
    assert accepted == {}
    assert (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=headers)).status_code == 200


async def test_child_prediction_is_limited_to_the_models_of_its_key(app: AppFixture) -> None:
    key = await app.limited_key(KeyLimits(services=("ra1",)))
    run = {"model": "ra1", "input": {"prompt": "x"}}
    response = await app.client.post("/api/containers/run", json=run, headers=bearer(key))
    pipeline = app.predictions
    parent = await pipeline.get_any(response.json()["id"])
    ordered = await app.database.read(requests.principal_of(parent))
    assert (ordered.key_id, ordered.scope.services) == (parent.key_id, ("ra1",))
    inputs: dict[str, Any] = {"prompt": "x"}
    # The request passes the limits of the key and fails later.
    with pytest.raises(Conflict, match="has ended"):
        await PipelineChildren(pipeline, app.database).run(parent, ChildRun("a", "anime", inputs))
    elsewhere = PredictionRequest(
        ordered, "photoreal", inputs, "test", "req_1", parent=ParentRun(parent.id, "b", "anime")
    )
    with pytest.raises(Forbidden, match="may not use photoreal: it may use only ra1"):
        await pipeline.submit(elsewhere)


async def test_oauth_client_that_runs_models_cannot_manage_account(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    token = (await program.tokens(scope="models"))["access_token"]
    visitor = app.visitor()
    ran = await visitor.post("/api/ra1", json={"prompt": "x"}, headers=bearer(token))
    assert ran.status_code == 200
    expected = {
        "GET /api/account": "right account.read",
        "GET /api/account/ledger": "right account.read",
        "GET /api/account/export": "right account.manage",
        "DELETE /api/account": "right account.manage",
        "POST /api/account/checkout": "right account.manage",
        "POST /api/account/deposits": "right account.manage",
        "GET /metrics": "right operate",
        "POST /api/containers/templates": "rights account.read and operate",
    }
    for route, right in expected.items():
        method, path = route.split()
        body: dict[str, Any] = {} if method == "GET" else {"json": {"confirm": app.account.email}}
        response = await visitor.request(method, path, headers=bearer(token), **body)
        assert (response.status_code, response.json()["code"]) == (403, "forbidden"), route
        assert f"requires the {right}," in response.json()["error"]
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200


async def test_key_for_metrics_adds_no_container_image(app: AppFixture) -> None:
    """It would start a program, and could replace a model that other keys of the operator run."""
    metrics = await app.database.write(keys.create(app.operator.id, granted=rights.Rights.OPERATE))
    headers = bearer(metrics.api_key)
    assert (await app.client.get("/metrics", headers=headers)).status_code == 200
    path, body = "/api/containers/templates", {"image": "evil/model"}
    refused = await app.client.post(path, json=body, headers=headers)
    assert (refused.status_code, "run and account.read" in refused.json()["error"]) == (403, True)


@pytest.mark.parametrize(
    ("scope", "path", "body", "words"),
    [
        ("memory", "/api/shared-folders", {"folder": "work", "with": "ben@example.com"}, "share its folders"),
        ("models", "/api/shares", {"kind": "page", "id": "work/plan"}, "read, write and share the memory"),
        ("models", "/api/create-ai", {"name": "Fox"}, "publish posts and characters"),
    ],
)
async def test_consent_page_states_what_a_program_may_show_others(
    app: AppFixture, scope: str, path: str, body: dict[str, Any], words: str
) -> None:
    page = {"slug": "work/plan", "body": "x"}
    assert (await app.client.post("/api/pages", json=page, headers=app.bearer)).status_code == 201
    program = await OAuthClient.registered(app)
    headers = bearer((await program.tokens(scope=scope))["access_token"])
    shown = await app.visitor().post(path, json=body, headers=headers)
    assert shown.status_code in (200, 201), shown.text
    consent = (await app.client.get(AUTHORIZE, params=program.asks(scope=scope))).text
    assert words in consent
    reading = bearer((await program.tokens(scope="memory.read"))["access_token"])
    assert (await app.visitor().post(path, json=body, headers=reading)).status_code == 403


async def test_consent_page_lists_rights_and_needs_a_fresh_sign_in(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = await OAuthClient.registered(app)
    await signed_in(app)
    page = await app.client.get(AUTHORIZE, params=program.asks(scope="models"))
    assert "Run models, which spends credit, see and share what it ran itself" in page.text
    assert "It cannot do anything else" in page.text
    monkeypatch.setattr(login_sessions, "FRESH_US", 0)
    late = await app.client.get(AUTHORIZE, params=program.asks())
    there = urlsplit(late.headers["location"])
    assert (late.status_code, there.path) == (303, "/signin")
    back = parse_qs(there.query)["next"][0]
    assert back.startswith(f"{AUTHORIZE}?")
    assert program.id in back


async def test_stale_sign_in_is_repeated_and_returns_to_its_page(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    csrf = await signed_in(app)
    monkeypatch.setattr(login_sessions, "FRESH_US", 0)
    assert (await app.client.get("/account")).status_code == 200, "what it shows needs no new one"
    sent = {"csrf": csrf}
    answer = await app.client.post(
        "/account/keys", data=sent, headers={"Origin": ORIGIN, "Referer": f"{ORIGIN}/account"}
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == "/signin?again=1&next=%2Faccount"
    page = await app.client.get(answer.headers["location"])
    assert "Nothing was changed. Ask the operator" in page.text
    assert 'name="next" value="/account"' in page.text
    script = await app.client.post("/account/passkeys/ask", json={}, headers={"X-CSRF-Token": csrf})
    assert (script.status_code, script.json()["code"]) == (403, "sign_in_again")
    away = await app.client.post(
        "/account/close", data=sent, headers={"Origin": ORIGIN, "Referer": "https://evil.example/account/x"}
    )
    assert away.headers["location"] == "/signin?again=1&next=%2Faccount"
    monkeypatch.undo()
    await app.client.get("/signin", params={"token": await link(app)})
    response = await app.client.post(
        "/account/keys", data={"csrf": await signed_in(app)}, headers={"Origin": ORIGIN}
    )
    assert "Copy this key now" in response.text, "a one-time link is a sign-in"


async def test_page_creates_a_key_with_the_selected_rights(app: AppFixture) -> None:
    csrf = await signed_in(app)
    form = {"csrf": csrf, "right.memory.read": "on", "right.run": "on", "right.account.manage": "on"}
    page = await app.client.post("/account/keys", data=form, headers={"Origin": ORIGIN})
    key = re.search(r'id="new-key">(sf_[^<]+)', page.text)
    assert key is not None
    assert "<dd>run, memory.read, account.manage</dd>" in page.text
    assert 'name="right.operate"' not in page.text, "for the operator's account alone"
    assert (await app.visitor().get("/api/account", headers=bearer(key[1]))).status_code == 403
    narrow = {**form, "budget_day": "5"}
    page = await app.client.post("/account/keys", data=narrow, headers={"Origin": ORIGIN})
    assert "<dd>run, memory.read</dd>" in page.text
    response = await app.client.post(
        "/account/keys", data={"csrf": csrf, "right.operate": "on"}, headers={"Origin": ORIGIN}
    )
    assert response.status_code == 400
    assert "Only a key of the operator" in response.text


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"selection": "rights"}, "Select at least one right"),
        ({"services": " , ", "right.run": "on"}, "Enter 1 to 50 names of models"),
        ({"services": "ra1 " * 51, "right.run": "on"}, "Enter 1 to 50 names of models"),
    ],
)
async def test_page_creates_no_key_from_an_empty_choice(
    app: AppFixture, form: dict[str, str], problem: str
) -> None:
    csrf = await signed_in(app)
    assert 'name="selection" value="rights"' in (await app.client.get("/account/keys")).text
    page = await app.client.post("/account/keys", data={"csrf": csrf, **form}, headers={"Origin": ORIGIN})
    assert page.status_code == 422
    assert problem in page.text
    assert 'id="new-key"' not in page.text


async def test_webhook_secret_needs_a_manage_key_and_is_encrypted(app: AppFixture) -> None:
    full_body = (await app.client.get("/api/account", headers=app.bearer)).json()
    reading = bearer(await app.limited_key(KeyLimits(budget_day=5)))
    body = (await app.client.get("/api/account", headers=reading)).json()
    assert body == {**full_body, "webhook_secret": None}
    assert full_body["webhook_secret"].startswith("whsec_")
    row = await app.database.read(one("account_by_id", id=app.account.id))
    assert row is not None
    assert full_body["webhook_secret"] not in str(row)


async def test_a_webhook_secret_is_replaced_by_a_manage_key(any_database_app: AppFixture) -> None:
    app, path = any_database_app, "/api/account/webhook-secret"
    before = (await app.client.get("/api/account", headers=app.bearer)).json()["webhook_secret"]
    reading = bearer(await app.limited_key(KeyLimits(budget_day=5)))
    refused = await app.client.post(path, headers=reading)
    assert (refused.status_code, "account.manage" in refused.text) == (403, True)
    repeated = await app.client.post(path, headers={**app.bearer, "Idempotency-Key": "one"})
    assert (repeated.status_code, "omit Idempotency-Key" in repeated.text) == (400, True)
    assert await app.server.webhook_secrets.of(app.account.id) == before
    replaced = await app.client.post(path, headers=app.bearer)
    secret = replaced.json()["webhook_secret"]
    assert (replaced.status_code, secret.startswith("whsec_"), secret != before) == (200, True, True)
    assert await app.server.webhook_secrets.of(app.account.id) == secret
    row = await app.database.read(one("account_by_id", id=app.account.id))
    assert row is not None
    assert secret not in str(row)


async def test_service_limited_key_cannot_import_or_remove_models(app: AppFixture) -> None:
    headers = bearer(await app.limited_key(KeyLimits(services=("space:mine",))))
    graph = {"workflow": {"1": {"class_type": "EmptyImage", "inputs": {}}}, "name": "mine"}
    responses = [
        await app.client.post("/api/graph/spaces", json=graph, headers=headers),
        await app.client.delete("/api/graph/spaces/mine", headers=headers),
        await app.client.post("/api/containers/spaces/import", json={"space": "a/b"}, headers=headers),
    ]
    assert [response.status_code for response in responses] == [403] * 3
    assert all("may use only space:mine" in response.text for response in responses)


async def test_operator_key_without_operate_runs_no_local_program(app: AppFixture) -> None:
    result = keys.create(app.operator.id, granted=rights.STANDARD)
    headers = bearer((await app.database.write(result)).api_key)
    body = {"space": "evil/x", "run": "container"}
    response = await app.client.post("/api/containers/spaces/import", json=body, headers=headers)
    customer = await app.client.post("/api/containers/spaces/import", json=body, headers=app.bearer)
    assert (response.status_code, response.json()["error"]) == (
        customer.status_code,
        customer.json()["error"],
    )


async def test_only_a_customer_with_negative_balance_is_below_zero(app: AppFixture) -> None:
    assert not app.account.owner.below_zero
    assert replace(app.account, posted=-1).owner.below_zero
    assert not replace(app.operator, posted=-1).owner.below_zero
