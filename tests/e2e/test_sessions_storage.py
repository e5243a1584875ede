"""Short storage outages strand no session, worker or hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.core.database import Transaction
from sixfold.core.sessions import service as session_service
from tests.e2e.session_server import SessionServer, running_session_server


def _out_of_reach(server: SessionServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make writes of session states fail; return a function that ends this."""
    database = server.app.database
    write, unreachable = database.write, True

    async def refuse(transaction: Transaction[Any], **more: Any) -> Any:
        if unreachable and cast("GeneratorType[Any, Any, Any]", transaction).gi_code.co_name == "transition":
            transaction.close()
            raise errors.StoreFailed
        return await write(transaction, **more)

    def back() -> None:
        nonlocal unreachable
        unreachable = False

    monkeypatch.setattr(database, "write", refuse)
    return back


async def _is_over(server: SessionServer) -> None:
    """Check that nothing runs, every slot is free, and every sum is correct."""
    live = server.app.server.live_sessions
    for _ in range(200):
        if not live.running:
            break
        await asyncio.sleep(0.05)
    assert live.running == ()
    assert all(each.is_empty for each in live._worker_pool._shared_workers)
    assert await server.app.faults() == ()


async def test_session_ending_during_an_outage_is_settled_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as server:
        session = await server.create(input={"prompt": "walk"})
        async with server.inside(session) as guest:
            await guest.say("hello")
            await guest.until("pose")
            back = _out_of_reach(server, monkeypatch)
            await guest.say("close")
            await asyncio.sleep(1)
            assert (await server.status(session))["status"] in {"ready", "active", "idle"}
            back()
            assert await guest.closed() == 1000
        response = await server.status(session)
        assert (response["status"], response["reason"]) == ("closed", "closed")
        assert float(response["cost"]) > 0
        assert (await server.app.balance())[1] == "0.00"
        await _is_over(server)


async def test_close_during_an_outage_returns_soon_and_ends_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as server:
        session = await server.create(input={"prompt": "walk"})
        path = f"/api/containers/sessions/{session['session_id']}"
        async with server.inside(session) as guest:
            await guest.say("hello")
            await guest.until("pose")
            monkeypatch.setattr(session_service, "CLOSE_SECONDS", 0.1)
            back = _out_of_reach(server, monkeypatch)
            response = await server.app.client.delete(path, headers=server.app.bearer)
            assert (response.status_code, response.json()["code"]) == (503, "storage_unavailable")
            assert response.headers["retry-after"] == "1"
            assert "repeat the request" in response.json()["error"]
            back()
            assert await guest.closed() == 1000
        monkeypatch.undo()
        final_response = await server.app.client.delete(path, headers=server.app.bearer)
        assert (final_response.status_code, final_response.json()["status"]) == (200, "closed")
        assert (await server.app.balance())[1] == "0.00"
        await _is_over(server)


async def test_session_opened_during_an_outage_starts_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as server:
        back = _out_of_reach(server, monkeypatch)
        session = await server.create(input={"prompt": "walk"})
        async with server.inside(session) as guest:
            await guest.say("hello")
            await asyncio.sleep(1)
            back()
            await guest.until("pose")
            await guest.say("close")
            assert await guest.closed() == 1000
        await _is_over(server)
