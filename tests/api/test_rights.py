"""Every principal on every route: allowed exactly if the declared right says so.

`make test` sends all of them on SQLite and some on PostgreSQL; `make nightly` sends all on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Access, Rights
from sixfold.core.database import now
from sixfold.mcp import app as tools
from sixfold.web.app import WebApp
from sixfold.web.routing import Entry, Router
from sixfold.web.sessions import COOKIE
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import backends
from tests.mcp.agent import Agent

FOREIGN = "203.0.113.9"
# APIs that accept a login session only.
PAGES = frozenset({"ui"})
# APIs that accept a login session or a key.
BOTH = frozenset({"memory-pages"})
LIMITED = {
    "read only": (KeyLimits(read_only=True), Rights.MEMORY_READ),
    "collections": (KeyLimits(collections=("a",)), rights.MEMORY),
    "services": (KeyLimits(services=("ra1",)), rights.LIMITED),
    "budget": (KeyLimits(budget_day=10_000_000), rights.LIMITED),
    "rate": (KeyLimits(rpm=1_000_000), rights.STANDARD),
}


@dataclass(frozen=True)
class PrincipalCase:
    """A principal, how a request authenticates it, and the rights that it should have."""

    name: str
    granted: Rights | None  # None: an anonymous caller
    headers: Mapping[str, str]
    stale: bool = False

    @property
    def is_session(self) -> bool:
        return "Cookie" in self.headers

    def may(self, access: Access) -> bool:
        if access.public:
            return True
        if self.granted is None or access.right & ~self.granted:
            return False
        return not (self.stale and access.right & Rights.ACCOUNT_MANAGE)


ALL = ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.nightly])]


@pytest.fixture(params=ALL)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AppFixture]:
    backends.database_url(tmp_path, request.param)
    async with running_app(tmp_path) as result:
        yield result


def table(app: AppFixture) -> Router:
    return cast("WebApp", app.asgi).table


async def with_key(
    app: AppFixture, name: str, granted: Rights, scope: KeyLimits | None = None
) -> PrincipalCase:
    result = keys.create(app.operator.id, scope, granted=None if scope else granted)
    return PrincipalCase(name, granted, bearer((await app.database.write(result)).api_key))


async def program(app: AppFixture, scope: str) -> PrincipalCase:
    granted = keys.rights_of_scopes([scope])
    result = keys.create(app.operator.id, granted=granted, origin="oauth")
    return PrincipalCase(f"OAuth {scope}", granted, bearer((await app.database.write(result)).api_key))


async def session(app: AppFixture, account: Account, name: str, *, stale: bool = False) -> PrincipalCase:
    moment = await app.database.read(now())
    transaction = login_sessions.new_session(account.id, moment, LoginDetails("link"))
    token = await app.database.write(transaction)
    granted = rights.ALL if account.is_operator else rights.STANDARD
    return PrincipalCase(name, granted, {"Cookie": f"{COOKIE}={token}"}, stale)


async def principal_cases(app: AppFixture) -> list[PrincipalCase]:
    """A key for each single right and each limit, and a program for each scope."""
    single = [await with_key(app, name, right) for name, right in rights.BY_NAME.items()]
    limited = [await with_key(app, name, granted, scope) for name, (scope, granted) in LIMITED.items()]
    programs = [await program(app, scope) for scope in ("memory", "models")]
    return [*single, *limited, *programs, await with_key(app, "all rights", rights.ALL)]


def accepts_credential(caller: PrincipalCase, entry: Entry) -> bool:
    """Return whether a route accepts this kind of credential at all."""
    if caller.granted is None or entry.api in BOTH:
        return True
    return caller.is_session == (entry.api in PAGES)


def request_for(entry: Entry) -> tuple[str, str]:
    return entry.method, re.sub(r"\{[^}]*\}", "x", entry.path)


def refusal(answer: httpx.Response) -> str:
    """Return which right a response lacks: `sign in`, `right` or `again`; else empty."""
    there = answer.headers.get("location", "")
    if answer.status_code == 303 and there.startswith("/signin?again=1"):
        return "again"
    if answer.status_code == 401 or (answer.status_code == 303 and there.startswith("/signin")):
        return "sign in"
    if answer.status_code == 403 and "sign_in_again" in answer.text:
        return "again"
    return "right" if answer.status_code == 403 and "requires the right" in answer.text else ""


def expected(caller: PrincipalCase, access: Access) -> str:
    if caller.may(access):
        return ""
    if caller.granted is None:
        return "sign in"
    return "right" if access.right & ~caller.granted else "again"


async def violations(app: AppFixture, callers: list[PrincipalCase]) -> Iterator[str]:
    """Return every request whose response disagrees with the table."""
    visitor = app.visitor(FOREIGN)
    results: list[str] = []

    async def look(caller: PrincipalCase, entry: Entry) -> None:
        assert entry.access is not None
        method, path = request_for(entry)
        body: dict[str, Any] = {"data": {"x": "y"}} if entry.api in PAGES | BOTH else {"json": {}}
        body = {} if method in ("GET", "HEAD") else body
        response = await visitor.request(method, path, headers=caller.headers, **body)
        target, was = expected(caller, entry.access), refusal(response)
        if path in FAILS_BY_ITSELF:
            return
        # A HEAD response has no body that states the reason.
        if method == "HEAD" and response.status_code == 403 and target == "right":
            was = "right"
        # The operator's pages return 404 to other users.
        if caller.is_session and target == "right":
            was = "right" if response.status_code == 404 else was
        if was != target:
            results.append(
                f"{caller.name}: {method} {path} needs {entry.access.name}: {response.status_code} {was}"
            )
        if target == "right" and not caller.is_session and method != "HEAD":
            missing = rights.names(entry.access.right & ~(caller.granted or rights.NONE))
            if not all(name in response.text for name in missing):
                results.append(
                    f"{caller.name}: {method} {path} does not name {missing}: {response.text[:200]}"
                )

    for caller in callers:
        entries = [
            each for each in table(app).entries() if each.method != "WS" and accepts_credential(caller, each)
        ]
        for entry in entries:
            await look(caller, entry)
    await visitor.aclose()
    return iter(results)


# A sign-in that fails is a 401, a sign-out leads to one; a program's request is checked before the person is.
FAILS_BY_ITSELF = frozenset(
    {"/signin", "/signin/link", "/signin/passkey", "/signin/passkey/ask", "/signout", "/oauth/authorize"}
)


async def test_rights_of_keys_and_anonymous_callers_on_every_route(app: AppFixture) -> None:
    callers = [PrincipalCase("a stranger", None, {}), *await principal_cases(app)]
    assert "\n".join(await violations(app, callers)) == ""


@pytest.mark.postgres
async def test_rights_of_every_caller_on_every_route_on_postgresql(tmp_path: Path) -> None:
    backends.database_url(tmp_path, "postgres")
    async with running_app(tmp_path) as app:
        callers = [
            PrincipalCase("a stranger", None, {}),
            await with_key(app, "budget", rights.LIMITED, LIMITED["budget"][0]),
            await program(app, "models"),
            await session(app, app.account, "a customer"),
        ]
        assert "\n".join(await violations(app, callers)) == ""


async def test_rights_of_login_sessions_on_every_page(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [await session(app, app.account, "a customer"), await session(app, app.operator, "the operator")]
    assert list(await violations(app, own)) == []
    monkeypatch.setattr(login_sessions, "FRESH_US", 0)
    old = [
        await session(app, app.account, "a customer of yesterday", stale=True),
        await session(app, app.operator, "the operator of yesterday", stale=True),
    ]
    assert list(await violations(app, old)) == []


async def close_code(app: AppFixture, path: str, caller: PrincipalCase, *, in_query: bool = False) -> int:
    """Return the close code of a websocket, or 0 if the server's first message is another."""
    token = caller.headers.get("Authorization", "").removeprefix("Bearer ")
    headers = {"Host": "127.0.0.1:8600", **({} if in_query else caller.headers)}
    scope = {
        "type": "websocket",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": f"clientId=one{f'&token={token}' if in_query else ''}".encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": (FOREIGN, 1),
        "server": ("127.0.0.1", 8600),
        "subprotocols": [],
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }
    first: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
    incoming = [{"type": "websocket.connect"}]

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await asyncio.wait([first])
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Any) -> None:
        if message["type"] != "websocket.accept" and not first.done():
            first.set_result(message)

    async with asyncio.timeout(60):
        await app.asgi(scope, receive, send)
    return int(first.result().get("code", 0))


async def test_rights_of_every_caller_on_every_websocket(app: AppFixture) -> None:
    callers = [
        PrincipalCase("a stranger", None, {}),
        await session(app, app.account, "a customer"),
        *await principal_cases(app),
    ]
    sockets = [each for each in table(app).entries() if each.method == "WS"]
    assert {each.access for each in sockets} == {rights.PUBLIC, rights.RUN}
    for socket in sockets:
        assert socket.access is not None
        for caller in callers:
            # A session's websocket needs its own token for every caller; a cookie does not open one.
            may = not socket.access.public and not caller.is_session and caller.may(socket.access)
            for in_query in (False, True):
                code = await close_code(app, request_for(socket)[1], caller, in_query=in_query)
                opens = may and not (in_query and socket.path == "/v1/realtime")
                assert code == (0 if opens else 4401), (caller.name, socket.path, in_query)


async def test_rights_of_every_key_on_every_mcp_tool(app: AppFixture) -> None:
    known = {
        **dict.fromkeys(("models", "quote", "run", "run_space", "prediction"), rights.RUN),
        **dict.fromkeys(("write", "edit", "delete", "restore", "import_document"), rights.MEMORY_WRITE),
    }
    for caller in await principal_cases(app):
        agent = Agent(app, caller.headers["Authorization"].removeprefix("Bearer "))
        names = {tool["name"] for tool in (await agent.result("tools/list"))["tools"]}
        for name in TOOLS:
            allowed = caller.may(known.get(name, rights.MEMORY_READ))
            assert (name in names) == allowed, (caller.name, name)
            answer = await agent.rpc("tools/call", {"name": name, "arguments": {}})
            is_refused = answer.get("error", {}).get("data", {}).get("code") == "forbidden"
            assert is_refused != allowed, (caller.name, name, answer)


TOOLS = (
    "context", "search", "read", "write", "edit", "list", "tag", "link", "timeline", "traverse", "history",
    "delete", "restore", "inspect", "import_document", "fetch", "models", "quote", "run", "prediction",
    "run_space",
)  # fmt: skip


async def test_every_route_and_tool_declares_its_right(app: AppFixture) -> None:
    entries = list(table(app).entries())
    assert len(entries) > 150
    assert {each.method for each in entries} >= {"GET", "POST", "PUT", "PATCH", "DELETE", "WS"}
    assert all(each.access is not None for each in entries)
    assert {each.access for each in entries} >= {
        rights.PUBLIC,
        rights.ANY,
        rights.RUN,
        rights.MEMORY_READ,
        rights.MEMORY_WRITE,
        rights.ACCOUNT_READ,
        rights.ACCOUNT_MANAGE,
        rights.OPERATE,
    }
    agent = Agent(app, await app.operator_key())
    assert {tool["name"] for tool in (await agent.result("tools/list"))["tools"]} == set(TOOLS)
    assert tools.build is not None
