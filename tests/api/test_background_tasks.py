"""Background tasks of a server continue after an unexpected error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.app import bootstrap
from sixfold.app.gateway import runtime as app_gateway
from sixfold.core.account_data.deletion import AccountDeletion
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.ledger import LedgerError
from sixfold.core.concurrency import background
from sixfold.core.gateway.conversations.responses import ResponseStore
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.media.media import MediaService
from sixfold.core.predictions import repository as predictions
from sixfold.core.workers import scheduler
from tests.api.app_fixture import running_app


class ThirdCall:
    """Replaces a method: fails after some calls, and sets an event at the third call."""

    def __init__(self, error: Exception | None = None, passes: int = 0) -> None:
        self.calls = 0
        self.error = error
        self.passes = passes
        self.happened = asyncio.Event()

    async def __call__(self) -> None:
        self.calls += 1
        if self.calls == 3:
            self.happened.set()
        if self.error is not None and self.calls > self.passes:
            raise self.error


async def test_steps_of_sweeps_run_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = ThirdCall(OSError("no such device"))
    # The start of the server sweeps once.
    gateway = ThirdCall(OSError("no such device"), passes=1)
    deletions, responses, restarted = ThirdCall(), ThirdCall(), ThirdCall(RuntimeError("a bug"))
    for module in (bootstrap, app_gateway):
        monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(MediaService, "sweep", lambda *_: failing())
    monkeypatch.setattr(AccountDeletion, "sweep", lambda *_: deletions())
    monkeypatch.setattr(ResponseStore, "sweep", lambda *_: responses())
    monkeypatch.setattr(Connections, "run", lambda *_: restarted())
    monkeypatch.setattr(background.keep_running, "__defaults__", (0.01,))
    monkeypatch.setattr(Gateway, "sweep", lambda *_: gateway())
    async with running_app(tmp_path), asyncio.timeout(30):
        for call in (failing, gateway, deletions, responses, restarted):
            await call.happened.wait()
    for text in ("'sweep of media'", "'sweep of gateway calls'", "'connections'", "no such device"):
        assert text in caplog.text


async def test_scheduler_continues_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, dispatches = ThirdCall(), ThirdCall(LedgerError("a bug"))

    def expire(_life_us: int) -> None:
        raise LedgerError("the hold is missing")

    monkeypatch.setattr(scheduler, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(predictions, "has_expirable", expire)
    monkeypatch.setattr(scheduler.Scheduler, "_dispatch", lambda *_: dispatches())
    monkeypatch.setattr(scheduler.Scheduler, "_look_for_work", lambda *_: looks())
    async with running_app(tmp_path) as app, asyncio.timeout(30):
        app.server.scheduler.notify_work(next(iter(app.server.scheduler.snapshot())))
        for call in (dispatches, looks):
            await call.happened.wait()
    assert dispatches.calls >= 3
