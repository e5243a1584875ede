"""POST /mcp as agents call it: plain requests, errors, keys, tenants, limits, hostile input."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.mcp import jsonrpc
from sixfold.mcp.server import McpServer, ToolInvocation
from sixfold.mcp.tools import paginate
from tests.api.app_fixture import AppFixture, running_app
from tests.mcp.agent import MAKING, MEMORY, Agent

# -- the protocol ----------------------------------------------------------------------------------


async def test_tools_are_listed_without_a_handshake(agent: Agent) -> None:
    tools = (await agent.result("tools/list"))["tools"]
    assert {tool["name"] for tool in tools} == MEMORY | MAKING
    for tool in tools:
        assert tool["description"].endswith(".")
        assert tool["inputSchema"]["type"] == "object"
        assert set(tool["inputSchema"]["required"]) <= set(tool["inputSchema"]["properties"])
        assert isinstance(tool["annotations"]["readOnlyHint"], bool)


async def test_response_is_json_for_every_accept_header(agent: Agent) -> None:
    for accept in ("*/*", "text/html", "application/json", "application/json, text/event-stream"):
        response = await agent.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, Accept=accept)
        assert response.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert response.headers["content-type"] == "application/json"


async def test_handshake_accepts_every_known_version(agent: Agent) -> None:
    for version in jsonrpc.HANDSHAKE:
        client = {"name": "t", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        result = await agent.result("initialize", hello)
        assert result["protocolVersion"] == version
        assert result["serverInfo"]["name"] == "sixfold"
        assert result["capabilities"].keys() >= {"tools", "resources", "prompts"}
        assert "search" in result["instructions"]
        # The instructions are part of every conversation.
        assert len(result["instructions"]) < 2_000


async def test_handshake_with_unknown_version_offers_its_own(agent: Agent) -> None:
    result = await agent.result("initialize", {"protocolVersion": "1999-01-01", "capabilities": {}})
    assert result["protocolVersion"] == jsonrpc.HANDSHAKE[-1]


async def test_unknown_version_header_is_400(agent: Agent) -> None:
    response = await agent.post(
        {"jsonrpc": "2.0", "id": 1, "method": "ping"}, MCP_Protocol_Version="2020-01-01"
    )
    assert response.status_code == 400
    assert jsonrpc.LATEST in response.json()["error"]["data"]["supported"]


async def test_revision_without_a_handshake_is_supported(agent: Agent) -> None:
    meta = {jsonrpc.VERSION_META: jsonrpc.LATEST, jsonrpc.CAPABILITIES_META: {}}
    headers = {"MCP_Protocol_Version": jsonrpc.LATEST, "Mcp_Method": "tools/list"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    result = (await agent.post(body, **headers)).json()["result"]
    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "private"
    assert result["_meta"][jsonrpc.SERVER_META]["name"] == "sixfold"
    for wrong, code in (
        ({**body, "params": {}}, jsonrpc.INVALID_PARAMS),
        ({**body, "method": "ping"}, jsonrpc.HEADER_MISMATCH),
    ):
        response = await agent.post(wrong, **headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, code)
    body["method"] = "no/such"
    response = await agent.post(body, MCP_Protocol_Version=jsonrpc.LATEST, Mcp_Method="no/such")
    assert response.status_code == 404


async def test_notification_gets_an_empty_202(agent: Agent) -> None:
    response = await agent.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (response.status_code, response.content) == (202, b"")
    response = await agent.post({"jsonrpc": "2.0", "id": "ask_x", "result": {}})
    assert (response.status_code, response.content) == (202, b"")


async def test_batch_is_answered_in_order_without_notifications(agent: Agent) -> None:
    def one(number: int, method: str = "ping") -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": method}

    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    body = (await agent.post([one(1), note, one(2, "nope"), 5, one(3)])).json()
    assert [answer["id"] for answer in body] == [1, 2, None, 3]
    assert body[1]["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert (await agent.post([note])).status_code == 202
    assert (await agent.post([])).status_code == 400
    assert (await agent.post([one(1)] * 51)).status_code == 400


async def test_batch_ends_after_four_mebibytes_of_responses(agent: Agent) -> None:
    await agent.call("write", slug="controls", title="Controls", body="\x01" * 160_000)
    read = {"jsonrpc": "2.0", "method": "resources/read", "params": {"uri": "memory://controls"}}
    response = await agent.post([{**read, "id": number} for number in range(50)])
    body = response.json()
    assert ["result" in answer for answer in body] == [True] * 5 + [False] * 45
    assert body[-1]["error"]["data"] == {"code": "too_large", "status": 413}
    assert "send this request in another batch" in body[-1]["error"]["message"]
    assert len(response.content) < 5 * 2**20


async def test_each_batch_request_counts_against_the_rate_limit(tmp_path: Path) -> None:
    async with running_app(tmp_path, requests_per_second_per_account=1) as app:
        batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(12)]
        body = (await Agent(app).post(batch)).json()
        assert ["result" in answer for answer in body] == [True] * 10 + [False] * 2
        assert body[-1]["error"]["data"] == {"code": "rate_limited", "status": 429}


async def test_a_batch_ends_with_its_key(either: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is revoked during the first message, as while it waits for a run."""
    async with running_app(either) as app:
        key = await app.database.write(keys.create(app.account.id))
        answer = McpServer.answer

        async def revoked(server: McpServer, message: jsonrpc.RpcMessage, call: ToolInvocation) -> Any:
            if message.id == 1:
                await app.database.write(keys.revoke(key.id))
            return await answer(server, message, call)

        monkeypatch.setattr(McpServer, "answer", revoked)
        write = {"name": "write", "arguments": {"slug": "a", "body": "b"}}
        batch = [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": write},
        ]
        body = (await Agent(app, key.api_key).post(batch)).json()
        assert body[1]["error"]["data"]["status"] == 401
        pages = (await app.client.get("/api/pages", headers=app.bearer)).json()["pages"]
        assert pages == []


async def test_a_batch_lets_other_tasks_run_between_its_messages(agent: Agent) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def count(messages: int) -> int:
        nonlocal turns
        turns = 0
        task = asyncio.create_task(other())
        batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(messages)]
        assert len((await agent.post(batch)).json()) == messages
        task.cancel()
        return turns

    await count(1)
    assert await count(50) - await count(1) >= 49


NO_MESSAGES = [
    (b"", jsonrpc.PARSE_ERROR),
    (b"{", jsonrpc.PARSE_ERROR),
    (b"\xff\xfe", jsonrpc.PARSE_ERROR),
    (b"[" * 100_000, jsonrpc.PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":NaN}', jsonrpc.PARSE_ERROR),
    (b'"ping"', jsonrpc.INVALID_REQUEST),
    (b"null", jsonrpc.INVALID_REQUEST),
    (b"{}", jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', jsonrpc.INVALID_REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', jsonrpc.INVALID_PARAMS),
]


async def test_invalid_message_gets_a_json_rpc_error(agent: Agent) -> None:
    for body, code in NO_MESSAGES:
        response = await agent.post(body)
        assert response.status_code == 400, body[:80]
        assert response.json()["error"]["code"] == code, body[:80]


INVALID_CALLS: list[tuple[str, Any, int]] = [
    ("no/such/method", {}, jsonrpc.METHOD_NOT_FOUND),
    ("x" * 10_000, {}, jsonrpc.METHOD_NOT_FOUND),
    ("tools/call", {}, jsonrpc.INVALID_PARAMS),
    ("tools/call", {"name": 5}, jsonrpc.INVALID_PARAMS),
    ("tools/call", {"name": "no_such_tool"}, jsonrpc.INVALID_PARAMS),
    ("tools/call", {"name": "read", "arguments": [1]}, jsonrpc.INVALID_PARAMS),
    ("tools/list", {"cursor": "x"}, jsonrpc.INVALID_PARAMS),
    ("tools/list", {"cursor": -1}, jsonrpc.INVALID_PARAMS),
    ("initialize", {}, jsonrpc.INVALID_PARAMS),
    ("resources/read", {"uri": "file:///etc/passwd"}, jsonrpc.INVALID_PARAMS),
    ("resources/read", {"uri": "memory://no/such"}, jsonrpc.RESOURCE_NOT_FOUND),
    ("resources/read", {"uri": "memory://../../x"}, jsonrpc.INVALID_PARAMS),
    ("resources/list", {"cursor": 5}, jsonrpc.INVALID_PARAMS),
    ("prompts/get", {"name": "nope", "arguments": {"topic": "x"}}, jsonrpc.INVALID_PARAMS),
    ("prompts/get", {"name": [], "arguments": 5}, jsonrpc.INVALID_PARAMS),
    ("completion/complete", {"argument": {"value": 5}}, jsonrpc.INVALID_PARAMS),
]


async def test_invalid_request_is_a_protocol_error(agent: Agent) -> None:
    for method, params, code in INVALID_CALLS:
        error = (await agent.rpc(method, params))["error"]
        assert error["code"] == code, (method[:80], params)
        assert len(error["message"]) < 300


async def test_lists_are_paged() -> None:
    rows = [{"n": number} for number in range(5)]
    first = paginate("rows", rows, None, 2)
    assert (first["rows"], first["nextCursor"]) == (rows[:2], "2")
    last = paginate("rows", rows, "4", 2)
    assert last == {"rows": rows[4:]}


async def test_other_http_methods_are_405_with_allow(app: AppFixture) -> None:
    for method in ("GET", "DELETE", "PUT"):
        response = await app.client.request(method, "/mcp", headers=app.bearer)
        assert response.status_code == 405
        assert response.headers["allow"]
        assert response.json()["jsonrpc"] == "2.0"
    assert (await app.client.post("/mcp/x", headers=app.bearer)).json()["error"]["data"]["status"] == 404


# -- doors -----------------------------------------------------------------------------------------


async def test_request_without_a_key_is_401_before_its_body_is_read(app: AppFixture) -> None:
    for header in ("", "Bearer nope", "Basic eA=="):
        headers = {"Authorization": header} if header else {}
        response = await app.client.post("/mcp", content=b"not json", headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer resource_metadata=")
        assert response.json()["error"]["data"]["code"] == "invalid_api_key"


async def test_cross_origin_request_is_403(app: AppFixture) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for headers in (
        {"Origin": "http://evil.example.com"},
        {"Origin": "http://evil.example.com", "Host": "evil.example.com"},
        {"Origin": "null"},
    ):
        response = await app.client.post("/mcp", json=body, headers=app.bearer | headers)
        assert response.status_code == 403
    own = {"Origin": "http://127.0.0.1:8600"}
    assert (await app.client.post("/mcp", json=body, headers=app.bearer | own)).status_code == 200


async def test_a_body_over_the_limit_is_refused(app: AppFixture) -> None:
    limit = app.settings.inline_body_bytes
    response = await app.client.post("/mcp", content=b" " * (limit + 1), headers=app.bearer)
    assert response.status_code == 413
    assert "larger" in response.json()["error"]["message"]


async def test_only_calls_with_files_may_be_large(app: AppFixture) -> None:
    text = "x" * (app.settings.json_body_bytes + 64 * 1024)

    def message(tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    run = message("quote", model="ra2", input={"prompt": text})
    for body in (
        message("search", query=text),
        [run, message("search", query="x")],
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": text}},
        text,
    ):
        response = await app.client.post("/mcp", json=body, headers=app.bearer)
        assert (response.status_code, response.json()["error"]["data"]["code"]) == (413, "too_large")
    response = await app.client.post("/mcp", json=run, headers=app.bearer)
    assert (response.status_code, response.json()["result"]["isError"]) == (200, True)


async def test_pages_of_another_account_are_not_found(app: AppFixture, agent: Agent) -> None:
    await agent.call("write", slug="people/ann", title="Ann Lee", body="A secret: Ann works at Acme.")
    other = Agent(app, app.other)
    assert (await other.call("search", query="secret"))["results"] == []
    assert (await other.call("list"))["pages"] == []
    assert "not found" in await other.error_of("read", slug="people/ann")
    assert (await other.result("resources/list"))["resources"] == []
    page = (await agent.call("search", query="secret"))["results"][0]
    assert "not found" in await other.error_of("fetch", id=page["id"])
    assert (await other.call("write", slug="people/ann", body="Mine."))["version"] == 1


async def test_read_only_key_lists_and_calls_read_tools_only(app: AppFixture, agent: Agent) -> None:
    await agent.call("write", slug="people/ann", title="Ann Lee", body="Ann.")
    reader = Agent(app, await app.limited_key(KeyLimits(read_only=True)))
    names = {tool["name"] for tool in (await reader.result("tools/list"))["tools"]}
    assert names == MEMORY - {"write", "edit", "delete", "restore", "import_document"}
    assert (await reader.call("read", slug="people/ann"))["body"] == "Ann."
    assert "memory.write" in await reader.error_of("tag", slug="people/ann", tags=["x"])
    for tool in ("write", "run", "models"):
        answer = await reader.rpc("tools/call", {"name": tool, "arguments": {}})
        assert answer["error"]["code"] == jsonrpc.INVALID_PARAMS
        assert answer["error"]["data"] == {"code": "forbidden", "status": 403}


async def test_collection_key_sees_its_collections_only(app: AppFixture, agent: Agent) -> None:
    await agent.call("write", slug="open/a", body="The word is plover.", collections=["open"])
    await agent.call("write", slug="closed/b", body="The word is plover, too.", collections=["closed"])
    narrow = Agent(app, await app.limited_key(KeyLimits(collections=("open",))))
    assert [row["slug"] for row in (await narrow.call("search", query="plover"))["results"]] == ["open/a"]
    assert [row["name"] for row in (await narrow.result("resources/list"))["resources"]] == ["open/a"]
    assert "Page closed/b not found" in await narrow.error_of("read", slug="closed/b")


async def test_service_key_runs_its_services_and_has_no_memory(app: AppFixture) -> None:
    limited = Agent(app, await app.limited_key(KeyLimits(services=("ra1",)), Rights.RUN))
    assert {tool["name"] for tool in (await limited.result("tools/list"))["tools"]} == MAKING
    assert (await limited.call("run", model="ra1", input={"prompt": "a cat"}))["status"] == "succeeded"
    assert "may not use anime" in await limited.error_of("run", model="anime", input={"prompt": "a cat"})
    assert (await limited.rpc("resources/list"))["error"]["data"]["code"] == "forbidden"


async def test_a_revoked_key_ends_at_once(app: AppFixture) -> None:
    row = await app.database.write(keys.create(app.account.id))
    agent = Agent(app, row.api_key)
    assert await agent.result("ping") == {}
    await app.database.write(keys.revoke(row.id))
    assert (await agent.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code == 401


# -- the memory ------------------------------------------------------------------------------------


async def test_agent_writes_links_tags_searches_and_restores(agent: Agent) -> None:
    await agent.call("write", slug="companies/acme", title="Acme", type="company", body="Makes anvils.")
    result = await agent.call(
        "write", slug="people/ann", title="Ann Lee", type="person", body="Ann works at Acme."
    )
    assert (result["version"], result["created"]) == (1, True)
    await agent.call("link", slug="people/ann", to="companies/acme", type="founded", context="In 2020.")
    await agent.call("tag", slug="people/ann", tags=["friend"])
    await agent.call("timeline", slug="people/ann", date="2026-05", summary="Moved to Oslo")
    await agent.call("edit", slug="people/ann", operation="append", content="She likes tea.")
    page = await agent.call("read", slug="people/ann")
    assert {(link["type"], link["origin"]) for link in page["links"]} == {
        ("works_at", "inferred"),
        ("founded", "explicit"),
    }
    assert page["tags"] == ["friend"]
    assert page["timeline"][0]["summary"] == "Moved to Oslo"
    best = (await agent.call("search", query="who works at Acme?"))["results"][0]
    assert best["slug"] == "people/ann"
    assert (await agent.call("fetch", id=best["id"]))["text"].startswith("Ann works at Acme.")
    walk = await agent.call("traverse", slug="companies/acme")
    assert {node["slug"] for node in walk["nodes"]} == {"companies/acme", "people/ann"}
    await agent.call("delete", slug="people/ann")
    assert "not found" in await agent.error_of("read", slug="people/ann")
    assert (await agent.call("restore", slug="people/ann"))["version"] == page["version"] + 1
    assert "send the version" in await agent.error_of("restore", slug="people/ann")
    await agent.call("delete", slug="people/ann")
    assert (await agent.call("restore", slug="people/ann", version=1))["created"] is True
    call_result = await agent.call("inspect")
    assert call_result["pages"] == 2
    assert {row["name"] for row in call_result["types"]} == {"company", "person"}


async def test_lost_update_is_refused_with_the_remedy(agent: Agent) -> None:
    first = await agent.call("write", slug="plan", body="One.")
    await agent.call("edit", slug="plan", operation="append", content="Two.", if_version=first["version"])
    text = await agent.error_of("write", slug="plan", body="Three.", if_version=first["version"])
    assert "is at version 2, not 1" in text
    assert "read it again" in text
    assert "overwrite: true" in await agent.error_of("write", slug="plan", body="Three.")


async def test_page_text_is_returned_unchanged(agent: Agent) -> None:
    body = 'He said: "no".\n\n\tA tab, and a \\ backslash.'
    await agent.call("write", slug="quoted", body=body)
    result = await agent.result("tools/call", {"name": "read", "arguments": {"slug": "quoted"}})
    text, rest = result["content"]
    assert text == {"type": "text", "text": body}
    assert "body" not in json.loads(rest["text"])
    assert result["structuredContent"]["body"] == body


async def test_long_page_is_read_in_parts(agent: Agent) -> None:
    body = "".join(f"Line {number}.\n" for number in range(10_000))
    await agent.call("write", slug="long", body=body)
    parts, offset = [], 0
    while True:
        page = await agent.call("read", slug="long", offset=offset)
        assert len(page["body"]) <= 20_000
        parts.append(page["body"])
        if not page["truncated"]:
            break
        offset = page["next_offset"]
    assert "".join(parts) == body


async def test_unknown_tool_argument_is_reported(agent: Agent) -> None:
    text = await agent.error_of("write", slug="a", content="x")
    assert "write does not have the argument content" in text
    assert "body" in text


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": 5}),
    ("search", {"query": "x" * 10_001}),
    ("search", {"query": "x", "limit": 0}),
    ("search", {"query": "x", "limit": 10**30}),
    ("search", {"query": "x", "mode": "psychic"}),
    ("read", {}),
    ("read", {"slug": None}),
    ("read", {"slug": ""}),
    ("read", {"slug": "../../etc/passwd"}),
    ("read", {"slug": "x" * 1000}),
    ("read", {"slug": {"a": 1}}),
    ("write", {"slug": "a"}),
    ("write", {"slug": "a", "body": "nul \0"}),
    ("write", {"slug": "a", "body": ["x"]}),
    ("write", {"slug": "a", "body": "x" * (2**20 + 1)}),
    ("write", {"slug": "a", "body": "x", "tags": [1]}),
    ("edit", {"slug": "a", "operation": "append"}),
    ("edit", {"slug": "a", "operation": "explode", "content": "x"}),
    ("link", {"slug": "a", "to": "b", "action": "nope"}),
    ("history", {"slug": "a", "cursor": "nope"}),
    ("timeline", {"slug": "a", "date": "never", "summary": "x"}),
    ("fetch", {"id": "page_nope"}),
    ("restore", {"slug": "a", "version": "1"}),
    ("run", {"model": "no_such", "input": {}}),
    ("run", {"model": "ra1", "input": {}}),
    ("run", {"model": "ra1", "input": "a cat"}),
    ("run", {"model": "ra1", "input": {"prompt": "x"}, "wait": 10_000}),
    ("quote", {"model": "ra1", "input": {"prompt": "x" * 10_000}}),
    ("prediction", {"id": "pred_nope"}),
    ("models", {"model": "no_such"}),
]


async def test_refused_call_returns_one_short_text(agent: Agent) -> None:
    for tool, arguments in REFUSED:
        text = await agent.error_of(tool, **arguments)
        assert 10 < len(text) < 600, (tool, arguments)
        assert "Traceback" not in text


# -- resources and prompts -------------------------------------------------------------------------


async def test_pages_are_resources_and_slugs_are_completed(agent: Agent) -> None:
    await agent.call("write", slug="people/josé", title="José", body="Hello.")
    (row,) = (await agent.result("resources/list"))["resources"]
    assert row["title"] == "José"
    (read,) = (await agent.result("resources/read", {"uri": row["uri"]}))["contents"]
    assert (read["mimeType"], read["text"]) == ("text/markdown", "Hello.")
    await agent.call("write", slug="long", body="x" * 500_000)
    (read,) = (await agent.result("resources/read", {"uri": "memory://long"}))["contents"]
    assert len(read["text"]) == 500_000
    (template,) = (await agent.result("resources/templates/list"))["resourceTemplates"]
    assert template["uriTemplate"] == "memory://{slug}"
    ref = {"ref": {"type": "ref/resource", "uri": "memory://{slug}"}}
    result = await agent.result("completion/complete", {**ref, "argument": {"name": "slug", "value": "peo"}})
    assert result["completion"]["values"] == ["people/josé"]
    result = await agent.result("completion/complete", {**ref, "argument": {"name": "slug", "value": "…"}})
    assert result["completion"]["values"] == []


async def test_prompts_include_their_argument(agent: Agent) -> None:
    names = [prompt["name"] for prompt in (await agent.result("prompts/list"))["prompts"]]
    assert names == ["recall", "remember"]
    result = await agent.result("prompts/get", {"name": "recall", "arguments": {"topic": "{x} Acme"}})
    assert "{x} Acme" in result["messages"][0]["content"]["text"]
