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


def _out_of_reach(opened: SessionServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make writes of session states fail; return a function that ends this."""
    database = opened.app.database
    write, gone = database.write, True

    async def refuse(transaction: Transaction[Any], **more: Any) -> Any:
        if gone and cast("GeneratorType[Any, Any, Any]", transaction).gi_code.co_name == "transition":
            transaction.close()
            raise errors.StoreFailed
        return await write(transaction, **more)

    def back() -> None:
        nonlocal gone
        gone = False

    monkeypatch.setattr(database, "write", refuse)
    return back


async def _is_over(opened: SessionServer) -> None:
    """Check that nothing runs, every slot is free, and every sum is correct."""
    live = opened.app.server.sessions
    for _ in range(200):
        if not live.running:
            break
        await asyncio.sleep(0.05)
    assert live.running == ()
    assert all(each.is_empty for each in live._worker_pool._shared_workers)
    assert await opened.app.faults() == ()


async def test_session_ending_during_an_outage_is_settled_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as opened:
        begun = await opened.begin(input={"prompt": "walk"})
        async with opened.inside(begun) as guest:
            await guest.say("hello")
            await guest.until("pose")
            back = _out_of_reach(opened, monkeypatch)
            await guest.say("close")
            await asyncio.sleep(1)
            assert (await opened.told(begun))["status"] in {"ready", "active", "idle"}
            back()
            assert await guest.closed() == 1000
        response = await opened.told(begun)
        assert (response["status"], response["reason"]) == ("closed", "closed")
        assert float(response["cost"]) > 0
        assert (await opened.app.balance())[1] == "0.00"
        await _is_over(opened)


async def test_close_during_an_outage_returns_soon_and_ends_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as opened:
        begun = await opened.begin(input={"prompt": "walk"})
        path = f"/api/containers/sessions/{begun['session_id']}"
        async with opened.inside(begun) as guest:
            await guest.say("hello")
            await guest.until("pose")
            monkeypatch.setattr(session_service, "_CLOSE_SECONDS", 0.1)
            back = _out_of_reach(opened, monkeypatch)
            refused = await opened.app.client.delete(path, headers=opened.app.bearer)
            assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable")
            assert refused.headers["retry-after"] == "1"
            assert "repeat the request" in refused.json()["error"]
            back()
            assert await guest.closed() == 1000
        monkeypatch.undo()
        ended = await opened.app.client.delete(path, headers=opened.app.bearer)
        assert (ended.status_code, ended.json()["status"]) == (200, "closed")
        assert (await opened.app.balance())[1] == "0.00"
        await _is_over(opened)


async def test_session_opened_during_an_outage_starts_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_session_server(tmp_path) as opened:
        back = _out_of_reach(opened, monkeypatch)
        begun = await opened.begin(input={"prompt": "walk"})
        async with opened.inside(begun) as guest:
            await guest.say("hello")
            await asyncio.sleep(1)
            back()
            await guest.until("pose")
            await guest.say("close")
            assert await guest.closed() == 1000
        await _is_over(opened)
