"""Realtime sessions that only transcribe, and what a session states of limits, slow clients and shutdowns."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import websockets
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.web.connections.websocket_protocol import WebSocketProtocol
from tests.api import realtime
from tests.api.realtime import (
    PATIENCE_SECONDS,
    TEXT,
    RealtimeServer,
    event,
    running_realtime,
    say,
    until,
    user_message,
)
from tests.api.test_realtime_listening import SECOND, send, spoken
from tests.harness import backends
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_ALL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
COMPLETED = "conversation.item.input_audio_transcription.completed"


@pytest.fixture
def server(shared_realtime_with_engines: RealtimeServer) -> RealtimeServer:
    return shared_realtime_with_engines.afresh()


@asynccontextmanager
async def transcribing(
    server: RealtimeServer, *, key: str | None = None, **query: str
) -> AsyncIterator[AsyncRealtimeConnection]:
    """Connect for transcripts only."""
    query = {"intent": "transcription", **query}
    async with (
        server.client(key) as client,
        client.realtime.connect(model=query.pop("model", ""), extra_query=query) as connection,
    ):
        yield connection


async def test_turns_are_transcribed_and_not_answered(server: RealtimeServer) -> None:
    recording = await spoken(server)
    async with transcribing(server) as connection:
        session = (await event(connection)).session
        assert (session.object, session.type) == ("realtime.transcription_session", "transcription")
        assert session.audio.input.turn_detection.type == "server_vad"
        await send(connection, SECOND + recording + SECOND)
        events = await until(connection, COMPLETED)
        assert [each.type for each in events] == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.delta",
            COMPLETED,
        ]
        assert "morning" in events[-1].transcript
        assert events[-2].delta == events[-1].transcript
        await send(connection, recording + SECOND)
        second_events = await until(connection, COMPLETED)
        committed = next(each for each in second_events if each.type == "input_audio_buffer.committed")
        assert committed.previous_item_id == events[-1].item_id
        await connection.response.create(event_id="no")
        error = (await event(connection)).error
        assert (error.param, error.event_id) == ("type", "no")
        assert "response.create" not in error.message.partition("(got")[0]
    assert server.gateway.acme.requests == []


async def test_the_configuration_of_transcripts_is_updated(server: RealtimeServer) -> None:
    async with transcribing(server, model="gpt-realtime") as connection:
        await event(connection)
        session: Any = {
            "type": "transcription",
            "audio": {
                "input": {
                    "transcription": {"model": "acme/small", "language": "en", "keywords": ["harbour"]},
                    "turn_detection": None,
                }
            },
        }
        await connection.session.update(session=session)
        next_event = (await event(connection)).session.audio.input
        assert (next_event.transcription.model, next_event.turn_detection) == ("acme/small", None)
        await send(connection, SECOND)
        await connection.input_audio_buffer.commit()
        assert (await until(connection, COMPLETED))[-1].transcript == "good morning"
        sent = server.gateway.acme.requests[-1]
        assert (sent.path, sent.document["prompt"]) == ("/v1/audio/transcriptions", "harbour")
        refused_updates: dict[str, tuple[Any, str | None]] = {
            "instructions": ({"instructions": "Be short"}, "session.instructions"),
            "output": ({"audio": {"output": {"voice": "alloy"}}}, "session.audio.output"),
            "none": (
                {"audio": {"input": {"transcription": None}}}, "session.audio.input.transcription",
            ),
            "model": ({"audio": {"input": {"transcription": {"model": "nothing"}}}}, None),
            "type": ({"type": "realtime"}, "session.type"),
        }  # fmt: skip
        for name, (fields, param) in refused_updates.items():
            update = {"type": "session.update", "event_id": name, "session": fields}
            await connection.send(cast("Any", update))
            error = (await event(connection)).error
            assert (error.event_id, error.param) == (name, param), error.message


async def test_a_secret_opens_a_session_of_transcripts(server: RealtimeServer) -> None:
    session: Any = {"type": "transcription", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    async with server.client() as client:
        created = await client.realtime.client_secrets.create(session=session)
    assert created.session.type == "transcription"
    async with server.client(created.value) as client, client.realtime.connect(model="x") as connection:
        first: Any = await event(connection)
        assert first.session.audio.input.transcription.model == "whisper-1"


async def test_an_unknown_model_of_transcripts_gets_404(server: RealtimeServer) -> None:
    with pytest.raises(websockets.InvalidStatus) as excinfo:
        async with transcribing(server, model="nothing/here"):
            pass
    assert excinfo.value.response.status_code == 404


@pytest.mark.parametrize("ground", ON_ALL)
async def test_a_response_states_what_is_left_of_limits(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path) as server:
        app = server.gateway.app
        limited = await app.database.write(keys.create(app.account.id, KeyLimits(rpm=100, tpm=60_000)))
        async with server.connect(TEXT, key=limited.api_key) as connection:
            events = await say(connection, "say 2 words")
            (stated,) = [each.rate_limits for each in events if each.type == "rate_limits.updated"]
            rows = {row.name: row for row in stated}
            assert {name: row.limit for name, row in rows.items()} == {"requests": 100, "tokens": 60_000}
            assert 97 <= rows["requests"].remaining <= 99
            assert 0 < rows["requests"].reset_seconds <= 2
            assert rows["tokens"].remaining == 60_000
            events = await say(connection, "say 2 words")
            (stated,) = [each.rate_limits for each in events if each.type == "rate_limits.updated"]
        async with server.connect(TEXT) as connection:
            events = await say(connection, "say 2 words")
            assert [each.rate_limits for each in events if each.type == "rate_limits.updated"] == [[]]


async def test_slow_client_buffers_a_limited_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[WebSocketProtocol] = []

    class Noted(WebSocketProtocol):
        def handle_connect(self, event: Any) -> None:
            connections.append(self)
            super().handle_connect(event)

    monkeypatch.setattr(realtime, "WebSocketProtocol", Noted)
    async with running_realtime(tmp_path, send_buffer=8192, settings=backends.FILES) as server:
        host, port = server.address.split(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            client.connect((host, int(port)))
            headers = {"Authorization": f"Bearer {server.gateway.app.key}"}
            url = f"ws://{server.address}/v1/realtime?model=acme/small"
            opening = websockets.connect(
                url, additional_headers=headers, sock=client, max_queue=1, close_timeout=0.1
            )
            async with opening as slow:
                update = {"type": "session.update", "session": TEXT}
                item = {"type": "conversation.item.create", "item": user_message("say 30000 words")}
                for message in (update, item, {"type": "response.create"}):
                    await slow.send(json.dumps(message))
                (connection,) = connections
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await wait_until(lambda: not connection.writable.is_set())
                transport = cast("asyncio.Transport", connection.transport)
                assert transport.get_write_buffer_size() < 2**17
                (row,) = await server.gateway.calls()
                assert row["status"] == "running"
                transport.abort()
        (row,) = await server.gateway.settled()
        # What the buffers hold, of 30,000.
        assert (row["status"], row["usage"]["output_tokens"] < 10_000) == ("left", True)
        assert await server.gateway.pending() == 0


@pytest.mark.parametrize("ground", ON_ALL)
async def test_a_response_ends_and_is_charged_at_a_shutdown(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path) as server:
        gateway = server.gateway
        before = float((await gateway.app.balance())[0])
        gateway.acme.mode = "trickle"
        async with server.connect(TEXT) as connection:
            await connection.conversation.item.create(item=user_message("say 8 words"))
            await connection.response.create()
            await until(connection, "response.output_text.delta")
            gateway.app.predictions.drain()
            gateway.acme.go_on.set()
            response = (await until(connection, "response.done"))[-1].response
            assert (response.status, response.usage.output_tokens) == ("completed", 8)
            assert (await event(connection)).error.code == "shutting_down"
            with pytest.raises(websockets.ConnectionClosed):
                await event(connection)
        (row,) = await gateway.settled()
        assert (row["status"], row["usage"]["output_tokens"]) == ("succeeded", 8)
        after = f"{before - float(row['cost_usd']):.4f}"
        await gateway.app.until(after, "0.00")
        assert await gateway.app.faults() == ()
