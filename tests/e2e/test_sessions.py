"""Sessions on a real socket: start, messages, reconnection and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import websockets

from sixfold.core.accounts import accounts, ledger
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions import runner, served_time
from sixfold.core.sessions.worker_pool import SessionWorkerPool
from tests.api.app_fixture import bearer
from tests.e2e import servers
from tests.e2e.session_server import SessionServer, running_session_server
from tests.harness import backends
from tests.harness.cases import nightly_after


@pytest.fixture
async def session_server(tmp_path: Path) -> AsyncIterator[SessionServer]:
    """A server whose workers are threads."""
    async with running_session_server(tmp_path) as server:
        yield server


async def test_session_is_created_shown_and_closed(session_server: SessionServer) -> None:
    session = await session_server.create(input={"prompt": "walk"})
    assert set(session) == {
        "session_id", "status", "ws_url", "resume_token", "hardware", "idle_seconds", "created_at"
    }  # fmt: skip
    assert session["session_id"].startswith("sess_")
    assert session["ws_url"].startswith(
        f"ws://127.0.0.1:{session_server.port}/ws/containers/sessions/{session['session_id']}?"
    )
    assert (session["hardware"], session["idle_seconds"]) == ("gpu-24gb-b", 120)
    assert session["status"] in {"requested", "starting"}
    body = await session_server.status(session)
    assert body["session_id"] == session["session_id"]
    assert session["resume_token"] not in str(body)
    path = f"/api/containers/sessions/{session['session_id']}"
    other_account = await session_server.app.client.get(path, headers=bearer(session_server.app.other))
    keyless = await session_server.app.client.delete(path)
    assert (other_account.status_code, keyless.status_code) == (404, 401)
    for _ in range(2):
        response = await session_server.app.client.delete(path, headers=session_server.app.bearer)
        assert (response.status_code, response.json()["status"], response.json()["reason"]) == (
            200,
            "closed",
            "closed",
        )
    assert await session_server.app.faults() == ()


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("ra2", {}, 400, "bad_request"),
    ("no-such-model", {}, 404, "not_found"),
    ("motion-model", {"fps": 0}, 400, "invalid_input"),
    ("motion-model", {"input": []}, 400, "invalid_input"),
    ("motion-model", {"input": {"steps": 401}}, 400, "invalid_input"),
]


@pytest.mark.parametrize(("model", "body", "status", "code"), REFUSED)
async def test_invalid_session_requests_are_rejected(
    session_server: SessionServer, model: str, body: dict[str, Any], status: int, code: str
) -> None:
    path = f"/api/containers/{model}/sessions"
    response = await session_server.app.client.post(path, json=body, headers=session_server.app.bearer)
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_session_without_credit_is_402(session_server: SessionServer) -> None:
    path = "/api/containers/motion-model/sessions"
    response = await session_server.app.client.post(path, json={}, headers=bearer(session_server.app.poor))
    assert (response.status_code, response.json()["code"]) == (402, "insufficient_credits")


async def test_poses_have_session_times_every_50_ms(session_server: SessionServer) -> None:
    session = await session_server.create(input={"prompt": "walk"})
    async with session_server.inside(session) as guest:
        await guest.say("hello")
        poses = await guest.several("pose", 12)
        numbers = [pose["seq"] for pose in poses]
        assert numbers == list(range(numbers[0], numbers[0] + 12))
        assert all(pose["t"] == pose["seq"] * 50 for pose in poses)
        assert {"pelvis", "head", "left_toe", "right_hand"} <= set(poses[0]["joints"])
        assert set(poses[0]["root"]) == {"position", "yaw"}
        await guest.say("input", seq=7, prompt="run")
        answered = await guest.until("ack", input_seq=7)
        assert answered["seq"] > numbers[-1]
        assert (await guest.until("state", status="active"))["status"] == "active"
        await guest.say("ping", t=123.5)
        assert (await guest.until("pong"))["t"] == 123.5
        await guest.say("close")
        assert await guest.closed() == 1000
    assert [state["status"] for state in guest.of("state")][-2:] == ["closing", "closed"]
    record = await session_server.status(session)
    assert record["status"] == "closed"
    assert record["cost"] != "0.00"
    assert (await session_server.app.balance())[1] == "0.00"
    assert await session_server.app.faults() == ()


async def test_resumed_session_delivers_every_pose(session_server: SessionServer) -> None:
    session = await session_server.create(input={"prompt": "dance"})
    async with session_server.inside(session) as guest:
        await guest.say("hello")
        sequence = [pose["seq"] for pose in await guest.several("pose", 4)]
    resume_url = session["ws_url"].partition("token=")[0] + f"token={session['resume_token']}"
    # Poses are generated without a connected client.
    await asyncio.sleep(0.3)
    async with session_server.inside({"ws_url": resume_url}) as guest:
        await guest.say("hello", last_seq=sequence[-1])
        sequence += [pose["seq"] for pose in await guest.several("pose", 12)]
    assert sequence == list(range(sequence[0], sequence[0] + 16))


async def test_newest_socket_replaces_the_previous_one(session_server: SessionServer) -> None:
    session = await session_server.create()
    async with session_server.inside(session) as first:
        await first.say("hello")
        await first.until("pose")
        async with session_server.inside(session) as second:
            await second.say("hello")
            assert await first.closed() == 4001
            await second.until("pose")


async def test_invalid_token_and_foreign_origin_are_refused(session_server: SessionServer) -> None:
    session = await session_server.create()
    wrong = session["ws_url"].partition("token=")[0] + "token=sess_nobody"
    for url in (
        wrong,
        session["ws_url"].partition("?")[0],
        wrong.replace(session["session_id"], "sess_none"),
    ):
        async with session_server.inside({"ws_url": url}) as guest:
            assert await guest.closed() == 4401
    for attempt in (
        websockets.connect(session["ws_url"], origin=websockets.Origin("https://evil.example")),
        websockets.connect(session["ws_url"], additional_headers={"Sec-Fetch-Site": "cross-site"}),
        websockets.connect(f"ws://127.0.0.1:{session_server.port}/ws/nothing"),
    ):
        with pytest.raises(websockets.InvalidStatus) as excinfo:
            await attempt
        assert excinfo.value.response.status_code == 403


async def test_frames_are_images_and_wait_for_flow_credit(session_server: SessionServer) -> None:
    session = await session_server.create("world-model", input={"prompt": "a meadow by a lake"}, fps=20)
    async with session_server.inside(session, max_size=None) as guest:
        await guest.say("hello")
        frames = await guest.several("frame", 3)
        shape = (frames[0]["width"], frames[0]["height"], frames[0]["format"])
        assert shape == (480, 270, "jpeg")
        image = cv2.imdecode(np.frombuffer(frames[0]["image"], np.uint8), cv2.IMREAD_COLOR)
        assert image is not None
        assert image.shape == (270, 480, 3)
        assert image.std() > 12
        stats = await guest.until("stats", credit=0)
        while not stats["dropped"]:
            stats = await guest.until("stats")
        assert len(guest.of("frame")) == 3
        await guest.say("input", seq=1, keys=["w"])
        await guest.until("ack", input_seq=1)
        await guest.say("credit", n=2)
        moved = await guest.until("frame")
        assert moved["input_seq"] == 1
        assert moved["seq"] > frames[-1]["seq"] + 1
        assert moved["image"] != frames[-1]["image"]


async def test_invalid_messages_get_an_error_and_keep_the_session(session_server: SessionServer) -> None:
    session = await session_server.create()
    async with session_server.inside(session) as guest:
        for nonsense in (
            "no json", "[]", '{"type":"what"}', '{"type":"input"}', '{"type":"credit","n":-1}',
            '{"type":"input","seq":1,"keys":"w"}', '{"type":"input","seq":1,"keys":["w","q"]}',
            '{"type":"input","seq":1,"waypoints":[[1]]}',
            '{"type":"input","seq":1,"prompt":5}', b"\x00\x01", '{"type":"hello","last_seq":"x"}',
        ):  # fmt: skip
            await guest.connection.send(nonsense)
            assert (await guest.until("error"))["error"]
        await guest.until("pose")


async def test_motion_reaches_its_waypoint(session_server: SessionServer) -> None:
    session = await session_server.create(input={"prompt": "run"})
    async with session_server.inside(session) as guest:
        await guest.say("hello")
        await guest.say("input", seq=1, waypoints=[[1.2, 0.6]])
        nearest = 9.0
        async with asyncio.timeout(60):
            while nearest > 0.45:
                x, _, z = (await guest.until("pose"))["root"]["position"]
                nearest = float(np.hypot(x - 1.2, z - 0.6))


async def test_idle_timeout_ignores_pings(tmp_path: Path) -> None:
    async with running_session_server(tmp_path, idle_seconds=1.0) as server:
        session = await server.create()
        assert session["idle_seconds"] == 1
        async with server.inside(session) as guest:
            for _ in range(3):
                await guest.say("ping", t=1)
            assert await guest.closed() == 4000
        assert [state["status"] for state in guest.of("state")][-3:] == ["idle", "closing", "closed"]
        assert (await server.status(session))["reason"] == "idle"


async def test_session_without_input_pauses_until_the_next_input(tmp_path: Path) -> None:
    async with running_session_server(tmp_path, idle_seconds=600.0, session_pause_seconds=0.5) as server:
        session = await server.create()
        async with server.inside(session) as guest:
            await guest.say("hello")
            await guest.until("state", status="idle", reason="paused")
            charged = (await guest.until("stats"))["cost"]
            assert float(charged) > 0
            last = [pose["seq"] for pose in guest.of("pose")][-1]
            guest.messages.clear()
            for _ in range(2):
                await guest.say("ping", t=1)
                assert (await guest.until("stats"))["cost"] == charged
            assert guest.of("pose") == []
            assert (await server.status(session))["status"] == "idle"
            await guest.say("input", seq=1, prompt="run")
            await guest.until("state", status="active")
            resumed = await guest.until("pose")
            assert (resumed["seq"], resumed["t"]) == (last + 1, (last + 1) * 50), "the clock stood still"
            stats = await guest.until("stats")
            assert float(stats["cost"]) > float(charged)
            await guest.say("close")
            assert await guest.closed() == 1000
        assert guest.of("stats")[-1]["cost"] == (await server.status(session))["cost"]
        assert await server.app.faults() == ()


async def test_lost_worker_is_replaced_without_a_gap(tmp_path: Path) -> None:
    async with running_session_server(tmp_path, driver="process") as server:
        session = await server.create(input={"prompt": "walk"})
        async with server.inside(session) as guest:
            await guest.say("hello")
            before = (await guest.several("pose", 5))[-1]
            (runner,) = server.app.server.live_sessions.running
            assert runner.slot is not None
            assert runner.slot.shared_worker.worker is not None
            await runner.slot.shared_worker.worker.kill()
            after = await guest.several("pose", 8)
            assert [pose["seq"] for pose in after] == list(range(before["seq"] + 1, before["seq"] + 9))
            step = np.subtract(after[0]["root"]["position"], before["root"]["position"])
            assert np.abs(step).max() < 0.3
            assert (await guest.until("stats", restarts=1))["restarts"] == 1


async def test_slow_replacement_of_a_worker_is_not_charged(
    either: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RESUME_SECONDS", 1)
    monkeypatch.setattr(served_time, "MAX_CATCH_UP_SECONDS", 1)
    acquire, lost, replaced = SessionWorkerPool.acquire, asyncio.Event(), asyncio.Event()

    async def acquire_late(self: SessionWorkerPool, spec: Any, max_sessions: int, count: int) -> Any:
        if count:
            lost.set()
            await replaced.wait()
        return await acquire(self, spec, max_sessions, count)

    monkeypatch.setattr(SessionWorkerPool, "acquire", acquire_late)
    async with running_session_server(either) as server:
        session = await server.create(input={"prompt": "walk"})
        async with server.inside(session) as guest:
            await guest.say("hello")
            last = (await guest.several("pose", 5))[-1]["seq"]
            (current_runner,) = server.app.server.live_sessions.running
            assert current_runner.slot is not None
            assert current_runner.slot.shared_worker.worker is not None
            await current_runner.slot.shared_worker.worker.kill()
            await lost.wait()
            # Longer than any clock of this session catches up with.
            await asyncio.sleep(3)
            replaced.set()
            guest.messages.clear()
            following = await guest.several("pose", 3)
            assert following[0]["seq"] - last < 10, "the poses of the interruption are skipped"
            await guest.say("close")
            assert await guest.closed() == 1000
        row = await server.app.database.read(sessions.get(session["session_id"]))
        assert row.slice_at is not None
        assert row.ready_at is not None
        assert row.slice_at - row.ready_at >= 3_000_000
        assert row.cost == sessions.usage_micros(row.rate, row.slice_used_us(0))
        assert await server.app.faults() == ()


async def test_draining_server_closes_sessions_with_its_code(tmp_path: Path) -> None:
    async with running_session_server(tmp_path) as server:
        session = await server.create()
        async with server.inside(session) as guest:
            await guest.say("hello")
            await guest.until("pose")
            await server.app.server.live_sessions.drain()
            assert await guest.closed() == 4010
        # On PostgreSQL, the session waits for a connection to any server.
        left = backends.chosen_database() == "postgres"
        assert (await server.status(session))["reason"] == (None if left else "drained")
        assert await server.app.faults() == ()


async def test_minutes_are_charged_until_the_balance_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slice of 0.2 s at the rate of a minute costs 30 micro-dollars.
    monkeypatch.setattr(sessions, "SLICE_US", 200_000)
    async with running_session_server(tmp_path) as server:
        app = server.app
        session = await server.create()
        async with server.inside(session) as guest:
            await guest.say("hello")
            await guest.several("pose", 12)
            await guest.say("close")
            assert await guest.closed() == 1000
        entries = await app.client.get("/api/account/ledger", headers=app.bearer)
        paid = [entry for entry in entries.json()["entries"] if entry["kind"] == "session"]
        assert len(paid) >= 3
        assert sum(float(entry["amount_usd"]) for entry in paid) == -float(
            (await server.status(session))["cost"]
        )
        account = await app.database.read(accounts.by_id(app.account.id))
        rest = ledger.LedgerEntry("test", "all but two slices")
        await app.database.write(ledger.deposit(account.id, 70 - account.posted, rest))
        poor = await server.create()
        async with server.inside(poor) as guest:
            assert await guest.closed() == 1000
        assert (await server.status(poor))["reason"] == "no credit"
        assert await app.faults() == ()


@pytest.mark.parametrize("paused", nightly_after(1, [False, True]))
async def test_killed_server_leaves_no_open_session(tmp_path: Path, paused: bool) -> None:
    settings = {"SIXFOLD_SESSION_PAUSE_SECONDS": "0.5"} if paused else {}
    async with servers.serving(tmp_path / "home", SIXFOLD_TESTING="1", **settings) as server:
        key = {"Authorization": f"Bearer {server.key}"}
        body = (await server.call("POST", "/api/containers/motion-model/sessions", {}, **key)).json
        async with websockets.connect(body["ws_url"]) as connection:
            await connection.send('{"type":"hello"}')
            async with asyncio.timeout(60):
                while ('"paused"' if paused else '"pose"') not in str(await connection.recv())[:60]:
                    pass
        await server.kill()
        await server.restart()
        path = f"/api/containers/sessions/{body['session_id']}"
        response = (await server.call("GET", path, **key)).json
        # On PostgreSQL, the session waits for its client until the lease expires.
        remaining = backends.chosen_database() == "postgres"
        expected = ("idle" if paused else "ready", None, "0.00") if remaining else ("failed", "lost", "0.00")
        assert (response["status"], response["reason"], response["cost"]) == expected
        status, faults = await server.command("ledger", "verify")
        assert status == 0, faults
        log = (tmp_path / "home.log").read_text()
        assert body["ws_url"].partition("token=")[2] not in log
