"""The content log: off by default, encrypted, bounded, pruned, exported, and erased with its account."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core import ids
from sixfold.core.account_data import deletion
from sixfold.core.accounts import charges, keys, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway import request_log
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart
from sixfold.core.gateway.content_log.recorder import ContentRecorder
from sixfold.core.gateway.content_log.storage import MAX_CHARS, ContentLog, LoggedCall
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest, PredictionPayment
from sixfold.core.gateway.pricing.usage import TokenUsage
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_chat_pages import ChatUser

PATH = "/api/account/logging"


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


async def switch(gateway: Gateway, days: int) -> None:
    """Set the retention days with a new key, as the previous one is cached briefly."""
    response = await gateway.app.client.put(PATH, json={"days": days}, headers=gateway.headers)
    assert response.json() == {"enabled": days > 0, "days": days}


async def read_log(gateway: Gateway) -> list[dict[str, Any]]:
    """Wait until the log is written, and return it, newest first."""
    recorder = gateway.app.server.gateway_runtime.gateway.contents
    assert recorder is not None
    await recorder.drain()
    response = await gateway.app.client.get(f"{PATH}/calls", headers=gateway.headers)
    return response.json()["calls"]


async def call(gateway: Gateway, **more: Any) -> str:
    """Make a call with a key that is not cached; return its id."""
    headers = more.pop("headers", {})
    key = await gateway.app.database.write(keys.create(gateway.app.account.id))
    body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}], **more}
    path = "/v1/responses" if "input" in more else "/v1/chat/completions"
    response = await gateway.app.client.post(path, json=body, headers={**bearer(key.api_key), **headers})
    assert response.status_code == 200, response.text
    return response.headers["x-request-id"]


async def test_calls_are_logged_only_when_the_log_is_enabled(gateway: Gateway) -> None:
    app = gateway.app
    await call(gateway)
    assert not await read_log(gateway)
    await switch(gateway, 7)
    call_id = await call(gateway)
    streamed = await call(gateway, stream=True)
    await call(gateway, store=False)
    await call(gateway, headers={"X-Sixfold-Store": "false"})
    await call(gateway, input="say 3 words", messages=None, store=False)
    rows = await read_log(gateway)
    assert [row["id"] for row in rows] == [streamed, call_id]
    for name in (call_id, streamed):
        body = (await app.client.get(f"{PATH}/calls/{name}", headers=app.bearer)).json()
        assert json.loads(body["request"])["messages"][0]["content"] == "say 3 words"
        assert (body["response"], body["endpoint"]) == ("word word word", "chat")
    await switch(gateway, 0)
    await call(gateway)
    assert len(await read_log(gateway)) == 2


async def test_chats_on_the_pages_are_logged(gateway: Gateway) -> None:
    """A user could otherwise avoid the log that the account has enabled for all calls."""
    await switch(gateway, 7)
    person = await ChatUser.of(gateway)
    await person.ask_path("say 3 words")
    (row,) = await read_log(gateway)
    body = (await gateway.app.client.get(f"{PATH}/calls/{row['id']}", headers=gateway.headers)).json()
    assert "say 3 words" in body["request"]
    assert body["response"].startswith("word")


async def test_logged_content_is_encrypted_and_masked(gateway: Gateway) -> None:
    app = gateway.app
    await switch(gateway, 1)
    await app.client.put("/api/account/guardrails", json={"mask": ["emails"]}, headers=app.bearer)
    name = await call(gateway, messages=[{"role": "user", "content": "ann@example.com"}])
    await read_log(gateway)
    body = (await app.client.get(f"{PATH}/calls/{name}", headers=app.bearer)).json()
    assert json.loads(body["request"])["messages"][0]["content"] == "[EMAIL]"
    rows = await app.exported("export_content_log")
    assert "EMAIL" not in str([dict(row) for row in rows])
    other = ContentLog(app.database, b"another server's key, 32 bytes!!")
    with pytest.raises(errors.NotConfigured, match=r"server\.key"):
        await other.get(app.account.id, name)


async def test_only_its_account_may_read_and_manage_the_content_log(gateway: Gateway) -> None:
    app = gateway.app
    await switch(gateway, 1)
    name = await call(gateway)
    await read_log(gateway)
    reader = await app.database.write(keys.create(app.account.id, granted=rights.Rights.ACCOUNT_READ))
    for method, path in (
        ("GET", ""),
        ("PUT", ""),
        ("GET", "/calls"),
        ("DELETE", "/calls"),
        ("GET", f"/calls/{name}"),
    ):
        answer = await app.client.request(
            method, PATH + path, json={"days": 1}, headers=bearer(reader.api_key)
        )
        assert answer.status_code == 403
    for key in (name, "req_none"):
        strange = await app.client.get(f"{PATH}/calls/{key}", headers=bearer(app.other))
        assert strange.status_code == 404
    assert not (await app.client.get(f"{PATH}/calls", headers=bearer(app.other))).json()["calls"]
    for days in (-1, 366, "7", True):
        response = await app.client.put(PATH, json={"days": days}, headers=app.bearer)
        assert response.status_code == 400
    assert (await app.client.delete(f"{PATH}/calls", headers=app.bearer)).status_code == 204
    assert not await read_log(gateway)


async def test_logged_content_is_limited_expired_exported_and_erased(gateway: Gateway) -> None:
    app = gateway.app
    log = app.server.gateway_runtime.gateway.contents
    assert log is not None
    for name, days in (("req_old", -1), ("req_new", 1)):
        await log.log.write(
            LoggedCall(name, app.account.id, None, "chat", "m", days, "x" * (MAX_CHARS + 9), "Grüße")
        )
    await log.log.sweep()
    assert [row["id"] for row in await read_log(gateway)] == ["req_new"]
    assert len((await log.log.get(app.account.id, "req_new"))["request"]) == MAX_CHARS
    archive = await app.client.get("/api/account/export", headers=app.bearer)
    with zipfile.ZipFile(io.BytesIO(archive.content)) as files:
        (line,) = files.read("content-log.jsonl").splitlines()
    assert json.loads(line)["response"] == "Grüße"
    await app.database.write(deletion.close(app.account, -1))
    await app.database.write(deletion.erase(app.account.id))
    assert not await app.exported("export_content_log")


async def test_refunded_call_has_no_logged_content(gateway: Gateway) -> None:
    """The content may also be written after the refund."""
    await switch(gateway, 7)
    charged, refunded = [await call(gateway) for _ in range(2)]
    assert [each["id"] for each in await read_log(gateway)] == [refunded, charged]
    await gateway.app.database.write(request_log.refund(refunded, "lost"))
    assert [each["id"] for each in await read_log(gateway)] == [charged]
    recorder = gateway.app.server.gateway_runtime.gateway.contents
    assert recorder is not None
    account = gateway.app.account.id
    await recorder.log.write(LoggedCall(refunded, account, None, "chat", "m", 7, "question", "answer"))
    assert [each["id"] for each in await read_log(gateway)] == [charged]


async def test_log_of_calls_has_no_unpaid_responses(either: Path) -> None:
    """A call may be refunded, or the prediction that pays for it may fail."""
    async with running_gateway(either, log_bodies=True) as gateway:
        refunded = await call(gateway)
        assert "word" in (await gateway.last_call())["response"]
        await gateway.app.database.write(request_log.refund(refunded, "lost"))
        logged = (await gateway.calls())[0]
        assert (logged.get("response"), "say 3" in logged["request"]) == (None, True)
        payment = PredictionPayment("pred_x")
        chat = ChatRequest((ChatMessage("user", (TextPart("say 3 words"),)),))
        runtime = gateway.app.server.gateway_runtime.gateway
        payer = Principal(gateway.app.account.id, "", "")
        reply = await runtime.complete_prepaid(payer, ids.new("req"), chat, "acme/small", payment)
        assert reply.text == "word word word"
        assert (await gateway.last_call()).get("response") is None
        found = await gateway.app.client.get(
            "/api/gateway/calls", params={"q": "word word"}, headers=gateway.headers
        )
        assert found.json()["calls"] == []


async def test_call_succeeds_when_it_cannot_be_logged() -> None:
    class Broken(ContentLog):
        def __init__(self) -> None:
            self.tried = 0

        async def write(self, call: LoggedCall) -> None:
            self.tried += 1
            raise RuntimeError("broken")

    def parse() -> ChatRequest:
        raise errors.BadRequest("cannot be parsed")

    log = Broken()
    recorder = ContentRecorder(log)
    reply = GatewayReply("own/small", "small", TokenUsage(), 0, charges.calculate(()), raw=b"{}")
    for body in (b"{}", b""):
        request = GatewayRequest(
            Principal("acct_1", "", ""), "req_1", "chat", "chat", "small", body, parse, content_days=1
        )
        recorder.record(request, reply)
    await recorder.drain()
    assert log.tried == 1
