"""Guardrails: masks and hooks before and after calls, in every protocol, with and without streaming."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.api.gateway import key_auth
from sixfold.core import ids
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, idempotency, keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.webhook_secrets import signature
from sixfold.core.database import many, now
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart
from sixfold.core.gateway.guardrails import hooks, storage
from tests.api.app_fixture import AppFixture, bearer
from tests.api.gateway import PRICE, Gateway, running_gateway
from tests.fakes import fault_server
from tests.fakes.saying_server import SayingServer, saying_server

PATH = "/api/account/guardrails"
SECRET = "sk-proj-" + "aB3x" * 12
PROMPT = f"I am ann@example.com, my key is {SECRET}"
MASKED = "I am [EMAIL], my key is [SECRET]"
REPLY = "Write to bob@example.com or pay with 4111 1111 1111 1111 today"
REPLY_MASKED = "Write to [EMAIL] or pay with [CARD] today"
ALL = {"mask": ["secrets", "emails", "cards"], "mask_responses": True}
DIALECTS = ("chat", "completions", "responses", "messages", "ollama", "cohere", "cohere_first")


@pytest.fixture
async def server() -> AsyncIterator[SayingServer]:
    async with saying_server() as result:
        result.says = REPLY
        yield result


@pytest.fixture
async def gateway(tmp_path: Path, server: SayingServer) -> AsyncIterator[Gateway]:
    async with guarded(tmp_path, server) as result:
        yield result


@pytest.fixture
async def any_gateway(either: Path, server: SayingServer) -> AsyncIterator[Gateway]:
    async with guarded(either, server) as result:
        yield result


@asynccontextmanager
async def guarded(folder: Path, server: SayingServer) -> AsyncIterator[Gateway]:
    """A gateway: `own` uses OpenAI's protocols, and `anth` uses Anthropic's."""
    own = {"kind": "vllm", "base_url": server.url, "api_key": "k", "models": ["small"], "responses": True}
    anth = {"kind": "anthropic", "base_url": server.url, "api_key": "k", "models": ["small"]}
    prices = {"own/small": PRICE, "anth/small": PRICE}
    settings = {"fetch_allow": "127.0.0.0/8"}
    rows = {"own": own, "anth": anth}
    async with running_gateway(folder, settings=settings, upstreams=rows, prices=prices) as result:
        yield result


async def guard(app: AppFixture, **fields: Any) -> None:
    response = await app.client.put(PATH, json=fields, headers=app.bearer)
    assert response.status_code == 200, response.text


def request_of(dialect: str, model: str, text: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"model": model, "stream": stream}
    match dialect:
        case "chat":
            return "/v1/chat/completions", {**body, "messages": messages}
        case "completions":
            return "/v1/completions", {**body, "prompt": text, "max_tokens": 50}
        case "responses":
            return "/v1/responses", {**body, "input": text}
        case "messages":
            return "/v1/messages", {**body, "messages": messages, "max_tokens": 50}
        case "cohere":
            return "/v2/chat", {**body, "messages": messages}
        case "cohere_first":
            return "/v1/chat", {**body, "message": text}
        case _:
            return "/ollama/api/chat", {**body, "messages": messages}


def text_of(dialect: str, answer: httpx.Response, *, stream: bool) -> str:
    """Return the text of a response, joined from its deltas."""
    if not stream:
        return _whole(dialect, answer.json())
    lines = [line.removeprefix("data:") for line in answer.text.splitlines() if not line.startswith("event:")]
    events = [json.loads(line) for line in lines if line.strip() not in ("", "[DONE]")]
    if dialect == "chat":
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in events if each["choices"])
    if dialect == "completions":
        return "".join(each["choices"][0]["text"] for each in events if each["choices"])
    if dialect == "responses":
        return "".join(each["delta"] for each in events if each["type"].endswith("text.delta"))
    if dialect == "messages":
        return "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta")
    if dialect == "cohere":
        deltas = [each["delta"]["message"] for each in events if each["type"] == "content-delta"]
        return "".join(delta["content"]["text"] for delta in deltas)
    if dialect == "cohere_first":
        return "".join(each["text"] for each in events if each["event_type"] == "text-generation")
    return "".join(each["message"]["content"] for each in events)


def _whole(dialect: str, document: dict[str, Any]) -> str:
    match dialect:
        case "chat":
            return document["choices"][0]["message"]["content"]
        case "completions":
            return document["choices"][0]["text"]
        case "responses":
            return document["output"][-1]["content"][0]["text"]
        case "messages":
            return document["content"][0]["text"]
        case "cohere":
            return document["message"]["content"][0]["text"]
        case "cohere_first":
            return document["text"]
        case _:
            return document["message"]["content"]


async def call(
    gateway: Gateway,
    dialect: str = "chat",
    model: str = "own/small",
    text: str = PROMPT,
    *,
    stream: bool = False,
) -> httpx.Response:
    path, body = request_of(dialect, model, text, stream=stream)
    return await gateway.app.client.post(path, json=body, headers=gateway.headers)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_masks_apply_in_every_protocol(
    gateway: Gateway, server: SayingServer, dialect: str, stream: bool
) -> None:
    await guard(gateway.app, **ALL)
    for model in ("own/small",) if dialect == "completions" else ("own/small", "anth/small"):
        server.requests.clear()
        response = await call(gateway, dialect, model, stream=stream)
        assert response.status_code == 200, response.text
        assert text_of(dialect, response, stream=stream) == REPLY_MASKED
        assert "bob@" not in response.text
        assert "4111 1111" not in response.text
        sent = json.dumps(server.requests)
        assert (MASKED in sent, SECRET in sent, "ann@" in sent) == (True, False, False)
    assert {each["status"] for each in await gateway.settled()} == {"succeeded"}


async def test_response_without_a_match_is_unchanged(gateway: Gateway, server: SayingServer) -> None:
    server.says = "Nothing to see"
    plain = [(await call(gateway, text="hello", stream=stream)).content for stream in (False, True)]
    await guard(gateway.app, **ALL)
    guarded = [(await call(gateway, text="hello", stream=stream)).content for stream in (False, True)]
    assert guarded == plain


async def test_a_key_has_its_own_guardrail_or_the_accounts(
    any_gateway: Gateway, server: SayingServer
) -> None:
    app = any_gateway.app
    second = await app.database.write(keys.create(app.account.id))
    path, body = request_of("chat", "own/small", PROMPT, stream=False)

    async def sent(key: str) -> str:
        await app.client.post(path, json=body, headers=bearer(key))
        return server.requests[-1]["messages"][0]["content"]

    assert await sent(second.api_key) == PROMPT
    await guard(app, mask=["emails"])
    await guard(app, key=second.id, mask=["secrets"])
    third = await app.database.write(keys.create(app.account.id))
    assert await sent(third.api_key) == PROMPT.replace("ann@example.com", "[EMAIL]")
    fourth = await app.database.write(keys.create(app.account.id))
    await guard(app, key=fourth.id)
    assert await sent(fourth.api_key) == PROMPT
    guardrails = (await app.client.get(PATH, headers=app.bearer)).json()["guardrails"]
    assert {row["key"]: row["mask"] for row in guardrails} == {
        None: ["emails"],
        second.id: ["secrets"],
        fourth.id: [],
    }
    deletion = await app.client.delete(PATH, params={"key": second.id}, headers=app.bearer)
    assert deletion.status_code == 204
    second_response = await app.client.delete(PATH, params={"key": second.id}, headers=app.bearer)
    assert second_response.status_code == 404


async def test_repeated_service_has_the_guardrail_of_its_key(gateway: Gateway, server: SayingServer) -> None:
    app = gateway.app
    second = await app.database.write(keys.create(app.account.id))
    await guard(app, key=second.id, mask=["secrets", "emails"])
    headers = {**bearer(second.api_key), "Idempotency-Key": "once"}
    body = {"service": "chat", "prompt": PROMPT, "model": "own/small"}
    scope = idempotency.scope_id(app.account.id, "POST", "/api/service", "once")
    for _ in range(2):
        response = await app.client.post("/api/service", json=body, headers=headers)
        assert response.status_code == 200, response.text
        assert server.requests[-1]["messages"][-1]["content"] == MASKED
        # As if the server had died before it stored the response.
        await app.database.write(idempotency.forget(scope))
    assert len(server.requests) == 2


async def test_guardrails_need_account_rights_and_an_own_key(gateway: Gateway) -> None:
    app = gateway.app
    reader = await app.database.write(keys.create(app.account.id, granted=rights.Rights.ACCOUNT_READ))
    for method in ("GET", "PUT", "DELETE"):
        answer = await app.client.request(method, PATH, json={}, headers=bearer(reader.api_key))
        assert answer.status_code == 403
    second = await app.database.write(keys.create(app.account.id))
    response = await app.client.put(
        PATH, json={"key": second.id, "mask": ["cards"]}, headers=bearer(app.other)
    )
    assert response.status_code == 404
    wrong: dict[str, dict[str, Any]] = {
        "mask[0]": {"mask": ["names"]},
        "mask_responses": {"mask_responses": True},
        "hook": {"hook": {"url": "ftp://x"}},
        "hook.timeout_seconds": {"hook": {"url": "https://example.com/", "timeout_seconds": "long"}},
    }
    for name, fields in wrong.items():
        answer = await app.client.put(PATH, json=fields, headers=app.bearer)
        assert (answer.status_code, answer.json()["errors"][0]["input"]) == (400, name)
        assert answer.json()["error"].startswith(name)
    for fields in (
        {"hook": {"url": "http://10.0.0.1/"}},
        {"hook": {"url": "https://example.com/", "timeout_seconds": 99}},
        {"other": 1},
    ):
        answer = await app.client.put(PATH, json=fields, headers=app.bearer)
        assert answer.status_code == 400, fields


Decide = Callable[[dict[str, Any]], Any]


@asynccontextmanager
async def hook(decide: Decide) -> AsyncIterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Return a hook's URL, and the requests that it received."""
    requests: list[tuple[dict[str, str], bytes]] = []

    async def hear(request: Request) -> Response:
        requests.append((dict(request.headers), await request.body()))
        result = decide(json.loads(requests[-1][1]))
        return result if isinstance(result, Response) else JSONResponse(result)

    async with fault_server.serve([Route("/hook", hear, methods=["POST"])]) as port:
        yield f"http://127.0.0.1:{port}/hook", requests


def changed(document: dict[str, Any]) -> dict[str, Any]:
    return {"action": "change", "texts": [text.upper() for text in document["texts"]]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_hook_changes_requests_and_responses(
    gateway: Gateway, server: SayingServer, dialect: str, stream: bool
) -> None:
    async with hook(changed) as (url, requests):
        await guard(gateway.app, hook={"url": url, "stages": ["request", "response"]})
        response = await call(gateway, dialect, stream=stream)
        assert text_of(dialect, response, stream=stream) == REPLY.upper()
        assert REPLY not in response.text
        assert PROMPT.upper() in json.dumps(server.requests)
        kinds = [json.loads(body)["type"] for _, body in requests]
        assert kinds == ["guardrail.request", "guardrail.response"]
        secret = await gateway.app.server.webhook_secrets.of(gateway.app.account.id)
        for headers, body in requests:
            signed = signature(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
            assert headers["webhook-signature"] == signed


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_blocked_request_costs_nothing(gateway: Gateway, server: SayingServer, dialect: str) -> None:
    async with hook(lambda _document: {"action": "block", "message": "No secrets here."}) as (url, _):
        await guard(gateway.app, hook={"url": url})
        response = await call(gateway, dialect, stream=True)
    sentence = "The guardrail blocked this request: No secrets here."
    assert response.status_code == 400
    document = response.json()
    error = document.get("error", document)
    assert (error if dialect == "ollama" else error["message"]) == sentence
    assert not server.requests
    logged = (await gateway.calls())[0]
    assert (logged["status"], logged["cost_usd"]) == ("failed", "0.00")
    assert await gateway.app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_blocked_response_costs_what_it_used(any_gateway: Gateway, stream: bool) -> None:
    async with hook(lambda _document: {"action": "block"}) as (url, _):
        await guard(any_gateway.app, hook={"url": url, "stages": ["response"]})
        response = await call(any_gateway, stream=stream)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "The guardrail blocked this response"
    assert response.json()["error"]["code"] == "guardrail_blocked"
    logged = (await any_gateway.settled())[0]
    assert (logged["status"], logged["cost_usd"]) == ("succeeded", "0.006")  # 10 of input, 5 of output
    assert await any_gateway.pending() == 0


@pytest.mark.parametrize("answer", [{"action": "block"}, JSONResponse({}, 500)], ids=["block", "fail"])
async def test_repeating_a_blocked_response_is_charged(
    any_gateway: Gateway, server: SayingServer, answer: Any
) -> None:
    """The hook has received each response, so a repeated request must be charged as well."""
    async with hook(lambda _document: answer) as (url, requests):
        await guard(any_gateway.app, hook={"url": url, "stages": ["response"]})
        path, body = request_of("chat", "own/small", PROMPT, stream=False)
        headers = {**any_gateway.headers, "Idempotency-Key": "again"}
        for count in range(1, 4):
            blocked = await any_gateway.app.client.post(path, json=body, headers=headers)
            assert blocked.status_code in (400, 503)
            assert (blocked.headers.get("x-should-retry") == "false") is (blocked.status_code == 503)
            assert len(server.requests) == len(requests) == count
            assert await any_gateway.app.balance() == (f"{5 - 0.006 * count:.3f}", "0.00")
    assert await any_gateway.app.faults() == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_the_operators_hook_fails_is_refunded(
    either: Path, server: SayingServer, stream: bool
) -> None:
    rows = {"own": {"kind": "vllm", "base_url": server.url, "api_key": "k", "models": ["small"]}}
    async with (
        hook(lambda _document: JSONResponse({}, 500)) as (url, _),
        running_gateway(
            either,
            settings={"fetch_allow": "127.0.0.0/8"},
            upstreams=rows,
            prices={"own/small": PRICE},
            guardrail={"hook": {"url": url, "stages": ["response"]}},
        ) as gateway,
    ):
        response = await call(gateway, stream=stream)
        assert (response.status_code, "guardrail_unavailable" in response.text) == (503, True)
        logged = await gateway.last_call()
        assert (logged["status"], logged["cost_usd"]) == ("failed", "0.00")
        assert await gateway.app.balance() == ("5.00", "0.00")
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize(
    "faulty",
    [JSONResponse({}, 500), JSONResponse({"action": "change", "texts": []}), Response(b"[", 200)],
    ids=["status", "count", "json"],
)
async def test_a_hook_that_fails_blocks_or_allows(
    gateway: Gateway, server: SayingServer, faulty: Response
) -> None:
    async with hook(lambda _document: faulty) as (url, _):
        await guard(gateway.app, hook={"url": url})
        blocked = await call(gateway)
        assert blocked.status_code == 503
        assert blocked.json()["error"]["code"] == "guardrail_unavailable"
        assert not server.requests
        await guard(gateway.app, hook={"url": url, "on_failure": "allow"})
        gateway.app.server.gateway_runtime.gateway.health.forget("own")
        second = await gateway.app.database.write(keys.create(gateway.app.account.id))
        path, body = request_of("chat", "own/small", PROMPT, stream=False)
        allowed = await gateway.app.client.post(path, json=body, headers=bearer(second.api_key))
        assert allowed.status_code == 200


async def test_the_operators_default_applies_without_another(either: Path, server: SayingServer) -> None:
    rows = {"own": {"kind": "vllm", "base_url": server.url, "api_key": "k", "models": ["small"]}}
    default = {"mask": ["emails"]}
    async with running_gateway(
        either, upstreams=rows, prices={"own/small": PRICE}, guardrail=default
    ) as gateway:
        await call(gateway)
        assert server.requests[-1]["messages"][0]["content"] == PROMPT.replace("ann@example.com", "[EMAIL]")
        service = {"service": "chat", "prompt": PROMPT, "model": "own/small"}
        response = await gateway.app.client.post("/api/service", json=service, headers=gateway.headers)
        assert response.status_code == 200, response.text
        assert "ann@" not in json.dumps(server.requests)
        await guard(gateway.app, mask=[])
        second = await gateway.app.database.write(keys.create(gateway.app.account.id))
        path, body = request_of("chat", "own/small", PROMPT, stream=False)
        await gateway.app.client.post(path, json=body, headers=bearer(second.api_key))
        assert server.requests[-1]["messages"][0]["content"] == PROMPT


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
async def test_token_counting_is_masked_and_checked_by_guardrails(
    gateway: Gateway, server: SayingServer, path: str
) -> None:
    client, headers = gateway.app.client, gateway.headers
    await guard(gateway.app, mask=["secrets", "emails"])
    body: dict[str, Any] = {"model": "own/small", "input": PROMPT}
    if "messages" in path:
        body = {"model": "anth/small", "messages": [{"role": "user", "content": PROMPT}]}
    answer = await client.post(path, json=body, headers=headers)
    assert answer.json()["input_tokens"] == 7, answer.text
    assert MASKED in json.dumps(server.requests)
    async with hook(lambda _document: {"action": "block"}) as (url, _):
        await guard(gateway.app, hook={"url": url})
        second = await gateway.app.database.write(keys.create(gateway.app.account.id))
        response = await client.post(path, json=body, headers=bearer(second.api_key))
    assert response.status_code == 400
    assert len(server.requests) == 1


async def test_a_member_in_a_browser_has_the_guardrail(any_gateway: Gateway, server: SayingServer) -> None:
    app = any_gateway.app
    write, read = app.database.write, app.database.read
    await guard(app, mask=["secrets", "emails"])
    eve = await write(accounts.create("eve@example.com"))
    await write(members.add(app.account.id, eve.id, "member", "operator"))
    session = LoginDetails("link")
    token = await write(login_sessions.new_session(eve.id, await read(now()), session))
    token = await write(login_sessions.act_for(token, app.account.id))
    result = await read(login_sessions.session(token))
    assert result is not None
    chat = ChatRequest((ChatMessage("user", (TextPart(PROMPT),)),))
    caller = app.server.gateway_runtime.gateway
    await caller.complete_chat(result.principal, ids.new("req"), chat, "own/small")
    assert server.requests[-1]["messages"][0]["content"] == MASKED


@pytest.mark.parametrize("of_key", [False, True])
async def test_the_hook_of_a_suspended_admin_gets_no_calls(
    any_gateway: Gateway, server: SayingServer, monkeypatch: pytest.MonkeyPatch, of_key: bool
) -> None:
    monkeypatch.setattr(key_auth, "KEY_SECONDS", 0)
    app, write = any_gateway.app, any_gateway.app.database.write
    eve = await write(accounts.create("eve@example.com"))
    admin = await write(members.add(app.account.id, eve.id, "admin", "operator"))
    key = await write(keys.create(app.account.id, holder=keys.Holder(admin.id, None)))
    second = await write(keys.create(app.account.id))
    async with hook(lambda _document: {"action": "allow"}) as (url, requests):
        fields = {"mask": ["emails"], "hook": {"url": url}, **({"key": second.id} if of_key else {})}
        put = await app.client.put(PATH, json=fields, headers=bearer(key.api_key))
        assert put.status_code == 200, put.text
        path, body = request_of("chat", "own/small", PROMPT, stream=False)
        for suspended in (False, True, False):
            requests.clear()
            await write(customers.suspend(app.operator.owner, eve.id, suspended=suspended))
            response = await app.client.post(path, json=body, headers=bearer(second.api_key))
            assert (response.status_code, bool(requests)) == (200, not suspended), response.text
            assert "[EMAIL]" in server.requests[-1]["messages"][0]["content"]
            stored = await app.database.read(storage.account_guardrail(app.account.id))
            assert (url in stored) is (not suspended and not of_key)


async def test_a_text_too_long_for_the_hook_is_blocked(
    gateway: Gateway, server: SayingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "MAX_CHARS", 20)
    async with hook(changed) as (url, requests):
        await guard(gateway.app, hook={"url": url, "on_failure": "allow"})
        response = await call(gateway)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "guardrail_blocked"
    assert not requests
    assert not server.requests


async def test_guardrails_are_erased_with_the_account(any_gateway: Gateway) -> None:
    app = any_gateway.app
    await guard(app, mask=["cards"])
    exported = await app.client.get("/api/account/export", headers=app.bearer)
    assert exported.status_code == 200
    await app.database.write(deletion.close(app.account, -1))
    await app.database.write(deletion.erase(app.account.id))
    assert not await app.database.read(many("guardrails_of", account_id=app.account.id))
