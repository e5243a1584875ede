"""Two `sixfold serve` on one PostgreSQL and one file store give the same responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.e2e.servers import Server, serving
from tests.e2e.session_server import Guest
from tests.harness import backends, postgres

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


@asynccontextmanager
async def both(folder: Path, config: str = "", **environ: str) -> AsyncIterator[tuple[Server, Server, str]]:
    """Two servers, and the key of the account that the first one created."""
    homes = [folder / "first", folder / "second"]
    shared = {"SIXFOLD_WORKERS": "1", "SIXFOLD_LEASE_SECONDS": "3", **environ}
    for home in homes:
        home.mkdir()
        (home / "sixfold.toml").write_text(config)
    backends.database_url(homes[0], "postgres")
    # The environment overrides this URL, so that each server has its own settings, but not a database.
    backends.database_url(homes[1], "sqlite")
    if not backends.blob_url(homes[0]):
        shared["SIXFOLD_BLOB_URL"] = f"file://{folder / 'store'}"
    first_environ = {**backends.environ(homes[0]), **shared}
    async with serving(homes[0], **first_environ) as first, serving(homes[1], **first_environ) as second:
        yield first, second, first.key


async def test_same_request_to_both_servers_has_one_effect(tmp_path: Path) -> None:
    async with both(tmp_path) as (first, second, key):
        body = {"api_key": key, "prompt": "a hill", "response_mode": "polling", "seed": 1}
        requests = [
            server.call("POST", "/api/anime", body, Idempotency_Key="once")
            for _ in range(6)
            for server in (first, second)
        ]
        answers = await asyncio.gather(*requests)
        assert {response.status for response in answers} == {202}
        assert len({response.body for response in answers}) == 1
        state = await second.final_status(answers[0].json["status_url"])
        assert state == "completed"
        assert await _balance(second) == ("9.993", "0.00")


async def test_other_server_finishes_work_of_a_dead_one_charged_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (first, second, key):
        order = {"api_key": key, "prompt": "a lake", "response_mode": "polling"}
        replies = await asyncio.gather(
            *(
                server.call("POST", "/api/anime", {**order, "seed": seed})
                for seed in range(5)
                for server in (first, second)
            )
        )
        assert {reply.status for reply in replies} == {202}
        await first.kill()
        urls = [reply.json["status_url"] for reply in replies]
        assert [await second.final_status(url) for url in urls] == ["completed"] * 10
        assert await _balance(second) == ("9.93", "0.00")
        status, text = await second.command("ledger", "verify")
        assert status == 0, text


@asynccontextmanager
async def enter(server: Server, session: dict[str, Any], token: str = "") -> AsyncIterator[Guest]:
    """A session's socket at a server, independent of the server that created it."""
    _, _, own = str(session["ws_url"]).partition("token=")
    path = f"/ws/containers/sessions/{session['session_id']}?token={token or own}"
    async with websockets.connect(f"ws://127.0.0.1:{server.port}{path}") as connection:
        yield Guest(connection)


async def test_session_follows_its_socket_and_survives_a_server(tmp_path: Path) -> None:
    async with both(tmp_path) as (first, second, key):
        bearer = {"Authorization": f"Bearer {key}"}
        session = (await first.call("POST", "/api/containers/motion-model/sessions", {}, **bearer)).json
        path = f"/api/containers/sessions/{session['session_id']}"
        async with enter(second, session) as guest:
            await guest.say("hello")
            sequence = [pose["seq"] for pose in await guest.several("pose", 60)]
            await second.kill()
        async with enter(first, session, session["resume_token"]) as guest:
            await guest.say("hello", last_seq=sequence[-1])
            sequence += [pose["seq"] for pose in await guest.several("pose", 30)]
            assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
            await second.restart()
            closed = (await second.call("DELETE", path, **bearer)).json
            assert (closed["status"], closed["reason"]) == ("closed", "closed")
            assert await guest.closed() == 4001
        assert (await first.call("GET", path, **bearer)).json["status"] == "closed"
        assert float(closed["cost"]) > 0
        status, text = await first.command("ledger", "verify")
        assert status == 0, text


async def _balance(server: Server) -> tuple[str, str]:
    status, text = await server.command("account", "show", "local@localhost", "--json")
    assert status == 0, text
    result = json.loads(text)
    return result["balance_usd"], result["held_usd"]
