"""Run messages in the history and in client queues are bounded by bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.websockets import WebSocket

from sixfold.api.workflows.comfyui.websocket import ComfySocket
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.workflows.comfyui import websocket_hub
from sixfold.core.workflows.comfyui.websocket_hub import WebSocketHub

TENANT = Tenant("acct_1")


def test_messages_of_runs_are_bounded_by_their_bytes() -> None:
    hub = WebSocketHub()
    for number in range(12):
        # Only the last message of each kind counts.
        for _ in range(2):
            hub.remember(f"pred_{number}", "execution_error", {"traceback": "x" * 2**20})
    assert [number for number in range(12) if hub.messages(f"pred_{number}")] == [5, 6, 7, 8, 9, 10, 11]
    assert 7 * 2**20 < hub.size <= 8 * 2**20
    hub.remember("pred_large", "execution_error", {"traceback": "x" * 9 * 2**20})
    assert [each[0] for each in hub.messages("pred_large")] == ["execution_error"]
    assert hub.messages("pred_11") == []


async def test_messages_that_wait_are_bounded_by_their_bytes() -> None:
    hub, image = WebSocketHub(), bytes(16 * 2**20)
    with hub.open(TENANT, "a") as slow, hub.open(TENANT, "b") as other:
        for _ in range(4):
            hub.send(TENANT, "a", image)
        assert (slow.size, slow.behind.is_set()) == (64 * 2**20, False)
        assert await slow.next() == image
        hub.send(TENANT, None, {"type": "status"})
        assert (await other.next(), slow.behind.is_set()) == ('{"type":"status"}', False)
        hub.send(TENANT, "a", image)
        assert (slow.size, slow.behind.is_set(), other.behind.is_set()) == (0, True, False)
        hub.send(TENANT, "b", bytes(65 * 2**20))
        assert other.size == 65 * 2**20


async def test_clients_with_the_most_unsent_bytes_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_hub, "MAX_QUEUED_OF_ALL", 100)
    hub, other = WebSocketHub(), Tenant("acct_2")
    with hub.open(TENANT, "a") as first, hub.open(TENANT, "b") as second, hub.open(other, "c") as third:
        hub.send(other, "c", bytes(45))
        hub.send(TENANT, None, bytes(20))
        hub.withhold("pred_1", bytes(15))
        assert hub.queued_bytes == 85
        hub.release("pred_1", TENANT, "b")
        assert (first.unsent, second.unsent, hub.queued_bytes) == (20, 35, 100)
        hub.send(TENANT, "a", b"x")
        assert [client.behind.is_set() for client in (first, second, third)] == [False, True, False]
        assert await third.next() == bytes(45)
        assert hub.queued_bytes == first.unsent == 21
    assert hub.queued_bytes == 0


async def test_message_discarded_while_its_client_wakes_up_counts_once() -> None:
    hub = WebSocketHub()
    with hub.open(TENANT, "a") as client:
        reading = asyncio.create_task(client.next())
        await asyncio.sleep(0)
        hub.send(TENANT, "a", bytes(10))
        client.fall_behind()
        assert await reading == bytes(10)
        assert (client.size, client.unsent, hub.queued_bytes) == (0, 0, 0)


async def test_clients_share_one_copy_of_a_message() -> None:
    hub, message = WebSocketHub(), {"type": "executed", "data": {"output": {"text": ["x" * 2**20]}}}
    with hub.open(TENANT, "a") as first, hub.open(TENANT, "b") as second:
        hub.send(TENANT, None, message)
        assert await first.next() is await second.next()
        assert hub.withhold("pred_1", message)
        assert hub.withheld_bytes > 2**20
        hub.release("pred_1", TENANT, None)
        assert await first.next() is await second.next()
    assert hub.withheld_bytes == 0


async def test_a_client_that_reads_too_slowly_is_disconnected() -> None:
    sent: list[Any] = []
    is_stuck = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            is_stuck.set()
            await asyncio.Event().wait()

    async def receive() -> Any:
        return {"type": "websocket.connect"} if not sent else await asyncio.Event().wait()

    hub = WebSocketHub()
    websocket = WebSocket({"type": "websocket", "query_string": b"clientId=a", "headers": []}, receive, send)
    await websocket.accept()
    talking = asyncio.create_task(ComfySocket(websocket, hub, {}).serve(TENANT, {}))
    await is_stuck.wait()
    for number in range(websocket_hub.MAX_QUEUED + 1):
        hub.send(TENANT, "a", {"number": number})
    await asyncio.wait_for(talking, 30)
    assert sent[-1] == {"type": "websocket.close", "code": 4008, "reason": "too_slow"}


async def test_a_long_queue_is_sent_in_several_turns_of_the_loop() -> None:
    sent, turns = 0, 0
    is_done = asyncio.Event()

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message["type"] == "websocket.send"
        if sent == 1000:
            is_done.set()

    async def receive() -> Any:
        return {"type": "websocket.connect"} if not sent else await asyncio.Event().wait()

    async def count_turns() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            await asyncio.sleep(0)

    hub = WebSocketHub()
    websocket = WebSocket({"type": "websocket", "query_string": b"clientId=a", "headers": []}, receive, send)
    await websocket.accept()
    with hub.open(TENANT, "a") as client:
        for number in range(1000):
            client.send({"number": number})
        sending = asyncio.create_task(ComfySocket(websocket, hub, {})._send_messages(client))
        async with asyncio.timeout(60):
            await count_turns()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert turns > 1000 // 32 // 4
