"""Recordings of live sessions that become runs, or whose runs are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sixfold.core.accounts.tenants import Tenant
from tests.api.app_fixture import ORIGIN, AppFixture, running_app, small_models
from tests.api.test_pages import signed_in


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server on which an account may have one unfinished free run."""
    async with running_app(tmp_path, small_models(real=("procedural-motion",)), free_queue_limit=1) as result:
        yield result


async def record(app: AppFixture, session_id: str) -> None:
    await app.server.live_sessions.start_recording(session_id, Tenant(app.account.id))
    (runner,) = app.server.live_sessions.running
    assert runner.recording is not None
    runner.recording.add(0, "json", b"{}")


async def collect(app: AppFixture, session_id: str, token: str) -> httpx.Response:
    path = f"/pages/sessions/{session_id}/recording"
    return await app.client.post(path, json={"on": False}, headers={"X-CSRF-Token": token, "Origin": ORIGIN})


@pytest.mark.parametrize("is_open", [True, False])
async def test_recording_is_kept_when_its_run_is_refused(app: AppFixture, *, is_open: bool) -> None:
    path = "/api/containers/motion-model/sessions"
    response = await app.client.post(path, json={"input": {"prompt": "SLOW"}}, headers=app.bearer)
    session_id = response.json()["session_id"]
    token = await signed_in(app)
    await record(app, session_id)
    unfinished = (await collect(app, session_id, token)).json()["id"]
    await record(app, session_id)
    if not is_open:
        await app.server.live_sessions.close(session_id, Tenant(app.account.id))
    refused_response = await collect(app, session_id, token)
    assert refused_response.status_code == 429, refused_response.text
    await app.predictions.cancel(unfinished, Tenant(app.account.id))
    async with asyncio.timeout(30):
        while (accepted := await collect(app, session_id, token)).status_code == 429:  # noqa: ASYNC110 - polled
            await asyncio.sleep(0.01)
    assert accepted.status_code == 202, accepted.text
    # A recording becomes one run only.
    assert (await collect(app, session_id, token)).status_code == 409
