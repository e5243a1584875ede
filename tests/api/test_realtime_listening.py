"""Audio of the user in the Realtime API, spoken and transcribed by the embedded engines."""

from __future__ import annotations

import asyncio
import base64
import gc
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import websockets

from sixfold.api.gateway.openai.realtime.session import RealtimeSession
from sixfold.app import catalog as app_catalog
from sixfold.core.gateway.realtime import audio, memory
from tests.api.realtime import RealtimeServer, event, running_realtime, until, user_message
from tests.harness import backends
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_ALL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
SPOKEN_TEXT = "Good morning. How are you today?"
FRAME = 1920
SECOND = bytes(48_000)
TURNED = "input_audio_buffer.speech_stopped"


@pytest.fixture
def server(shared_realtime_with_engines: RealtimeServer) -> RealtimeServer:
    return shared_realtime_with_engines.afresh()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def speech(shared_realtime_with_engines: RealtimeServer) -> bytes:
    return await spoken(shared_realtime_with_engines)


async def spoken(server: RealtimeServer) -> bytes:
    body = {"model": "tts", "input": SPOKEN_TEXT, "response_format": "pcm"}
    gateway = server.gateway
    return (await gateway.app.client.post("/v1/audio/speech", json=body, headers=gateway.headers)).content


def listening(turns: Any = None, **more: Any) -> Any:
    """Return a session with responses of text; `turns` is its turn detection."""
    return {
        "type": "realtime",
        "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": turns, **more}},
    }


async def send(connection: Any, data: bytes) -> None:
    for at in range(0, len(data), FRAME):
        await connection.input_audio_buffer.append(audio=base64.b64encode(data[at : at + FRAME]).decode())


async def test_speech_is_detected_transcribed_and_answered(server: RealtimeServer, speech: bytes) -> None:
    session = listening({"type": "server_vad"}, transcription={"model": "whisper-1"})
    async with server.connect(session) as connection:
        await send(connection, SECOND + speech + SECOND)
        events = await until(connection, "response.done")
    assert [each.type for each in events][:6] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    started, stopped, committed = events[:3]
    assert 600 <= started.audio_start_ms <= 900
    assert 3_000 <= stopped.audio_end_ms <= 4_000
    assert started.item_id == stopped.item_id == committed.item_id == events[3].item.id
    kind = "conversation.item.input_audio_transcription.completed"
    (transcript,) = [each for each in events if each.type == kind]
    assert (transcript.item_id, transcript.usage.type) == (started.item_id, "duration")
    assert "morning" in transcript.transcript
    messages = server.gateway.acme.requests[-1].document["messages"]
    assert [row["content"] for row in messages] == [transcript.transcript]


async def test_semantic_detection_waits_by_its_eagerness(server: RealtimeServer, speech: bytes) -> None:
    async with server.connect(listening({"type": "semantic_vad", "eagerness": "low"})) as connection:
        await send(connection, SECOND + speech + SECOND)
        # The next second of silence ends the turn.
        await connection.session.update(session=listening({"eagerness": "low"}))
        detection = (await until(connection, "session.updated"))[-1].session.audio.input.turn_detection
        assert (detection.type, detection.eagerness) == ("semantic_vad", "low")
        await send(connection, SECOND)
        event = (await until(connection, "input_audio_buffer.speech_stopped"))[-1]
        await until(connection, "response.done")
        await connection.session.update(session=listening({"type": "server_vad"}))
        detection = (await until(connection, "session.updated"))[-1].session.audio.input.turn_detection
        assert (detection.type, detection.silence_duration_ms) == ("server_vad", 500)
    assert 3_000 <= event.audio_end_ms <= 5_500


@pytest.mark.parametrize("encoding", ["audio/pcmu", "audio/pcma"])
async def test_audio_of_telephones_is_understood(
    server: RealtimeServer, speech: bytes, encoding: audio.Encoding
) -> None:
    session = listening({"type": "server_vad"}, transcription={}, format={"type": encoding})
    narrow = audio.encode(SECOND + speech + SECOND, encoding)
    async with server.connect(session) as connection:
        await send(connection, narrow)
        events = await until(connection, "conversation.item.input_audio_transcription.completed")
    assert 600 <= events[0].audio_start_ms <= 900
    assert len(events[-1].transcript.split()) >= 3


async def test_a_response_ends_when_the_user_speaks(server: RealtimeServer, speech: bytes) -> None:
    server.gateway.acme.mode = "trickle"
    async with server.connect(listening({"type": "server_vad", "create_response": False})) as connection:
        await connection.conversation.item.create(item=user_message("say 8 words"))
        await connection.response.create()
        await until(connection, "response.output_text.delta")
        await send(connection, speech)
        events = await until(connection, "response.done")
        assert "input_audio_buffer.speech_started" in [each.type for each in events]
        response = events[-1].response
        assert (response.status, response.status_details.reason) == ("cancelled", "turn_detected")
        await send(connection, SECOND)
        await until(connection, TURNED)


async def test_audio_is_committed_without_turn_detection(server: RealtimeServer, speech: bytes) -> None:
    async with server.connect(listening(transcription={})) as connection:
        await connection.input_audio_buffer.commit(event_id="early")
        error = (await event(connection)).error
        assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "early")
        await send(connection, SECOND)
        await connection.input_audio_buffer.clear()
        assert (await event(connection)).type == "input_audio_buffer.cleared"
        await send(connection, speech)
        await connection.input_audio_buffer.commit()
        events = await until(connection, "conversation.item.input_audio_transcription.completed")
        assert events[0].type == "input_audio_buffer.committed"
        assert events[-1].usage.seconds == pytest.approx(len(speech) / 48_000, abs=0.001)
        await connection.conversation.item.retrieve(item_id=events[0].item_id)
        item = (await event(connection)).item
        assert item.content[0].transcript == events[-1].transcript
        assert not server.gateway.acme.requests


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no audio": ({"type": "input_audio_buffer.append"}, "audio"),
    "no base64": ({"type": "input_audio_buffer.append", "audio": "ä"}, "audio"),
    "half a sample": ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "audio"),
    "an unknown model": (
        {"type": "session.update", "session": listening(transcription={"model": "nothing"})}, "",
    ),
    "a rate of G.711": (
        {"type": "session.update", "session": listening(format={"type": "audio/pcmu", "rate": 24000})},
        "session.audio.input.format",
    ),
    "a threshold": (
        {"type": "session.update", "session": listening({"type": "server_vad", "threshold": 2})},
        "session.audio.input.turn_detection.threshold",
    ),
}  # fmt: skip


async def test_invalid_audio_gets_an_error_event(server: RealtimeServer) -> None:
    async with server.connect(listening()) as connection:
        for name, (body, param) in BAD.items():
            await connection.send(cast("Any", {**body, "event_id": name}))
            error = (await event(connection)).error
            assert (error.event_id, error.param or "") == (name, param), error.message


async def test_a_model_server_transcribes(server: RealtimeServer) -> None:
    session = listening(transcription={"model": "acme/small", "language": "en"})
    async with server.connect(session) as connection:
        await send(connection, SECOND)
        await connection.input_audio_buffer.commit()
        events = await until(connection, "conversation.item.input_audio_transcription.completed")
    assert events[-1].transcript == "good morning"
    sent = server.gateway.acme.requests[-1]
    assert (sent.path, sent.document["language"]) == ("/v1/audio/transcriptions", "en")


@pytest.mark.parametrize("mode", ["fail", "garbage"])
async def test_a_failed_transcription_costs_nothing(server: RealtimeServer, mode: str) -> None:
    before = await server.gateway.app.balance()
    server.gateway.acme.mode = mode
    async with server.connect(listening(transcription={"model": "acme/small"})) as connection:
        await send(connection, SECOND)
        await connection.input_audio_buffer.commit()
        events = await until(connection, "conversation.item.input_audio_transcription.failed")
        assert events[-1].error.message
    await server.gateway.settled()
    assert await server.gateway.app.balance() == before


async def test_an_event_has_at_most_1_mib(server: RealtimeServer) -> None:
    async with server.connect(listening()) as connection:
        await connection.input_audio_buffer.append(audio=base64.b64encode(bytes(780_000)).decode())
        await connection.input_audio_buffer.clear()
        assert (await event(connection)).type == "input_audio_buffer.cleared"
        await connection.input_audio_buffer.append(audio=base64.b64encode(bytes(2**20)).decode())
        with pytest.raises(websockets.ConnectionClosed) as excinfo:
            await event(connection)
    closed = excinfo.value.rcvd or excinfo.value.sent
    assert closed is not None
    assert closed.code == 1009


async def test_audio_beyond_the_memory_is_refused(
    server: RealtimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_SESSION_BYTES", 2**20)
    async with server.connect(listening()) as connection:
        await send(connection, bytes(2**20 + FRAME))
        error = (await event(connection)).error
        assert (error.code, "1 MiB" in error.message) == ("rate_limited", True)
        await connection.input_audio_buffer.clear()
        await until(connection, "input_audio_buffer.cleared")
        await connection.input_audio_buffer.append(audio="AAAA" * 1000)
        await connection.input_audio_buffer.clear()
        assert (await event(connection)).type == "input_audio_buffer.cleared"


async def test_sessions_of_an_account_share_their_memory(
    server: RealtimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sessions of earlier tests, whose memory has the usual limit.
    gc.collect()
    monkeypatch.setattr(memory, "MAX_ACCOUNT_BYTES", 2**20)
    async with server.connect(listening()) as first, server.connect(listening()) as second:
        await first.conversation.item.create(item=user_message("x" * 500_000))
        await until(first, "conversation.item.done")
        await second.conversation.item.create(item=user_message("x" * 300_000))
        await until(second, "conversation.item.done")
        # Its response would send the item to a model server.
        await second.response.create()
        error = (await event(second)).error
        assert (error.code, "1 MiB" in error.message) == ("rate_limited", True)
        await second.conversation.item.create(item=user_message("y" * 300_000))
        assert (await event(second)).error.code == "rate_limited"
    async with server.connect(listening()) as third:
        await third.conversation.item.create(item=user_message("say 1 words " + "x" * 300_000))
        await third.response.create()
        await until(third, "response.done")


async def test_silence_is_answered_after_the_idle_timeout(server: RealtimeServer) -> None:
    async with server.connect(listening({"type": "server_vad", "idle_timeout_ms": 5000})) as connection:
        await connection.conversation.item.create(item=user_message("say 1 words"))
        await connection.response.create()
        await until(connection, "response.done")
        events = await until(connection, "response.done")
    assert [each.type for each in events][:3] == [
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.committed",
        "conversation.item.added",
    ]
    assert events[-1].response.status == "completed"


async def test_silence_after_a_disconnect_starts_no_response(
    server: RealtimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[RealtimeSession] = []
    begin = RealtimeSession.begin

    async def begin_and_note(session: RealtimeSession) -> None:
        sessions.append(session)
        await begin(session)

    monkeypatch.setattr(RealtimeSession, "begin", begin_and_note)
    server.gateway.acme.mode = "trickle"
    async with server.connect(listening({"type": "server_vad", "idle_timeout_ms": 5000})) as connection:
        await connection.conversation.item.create(item=user_message("say 8 words"))
        await connection.response.create()
        await until(connection, "response.output_text.delta")
    (session,) = sessions
    await wait_until(lambda: not session._runs, 30)
    assert session._idle is None


@pytest.mark.parametrize("ground", ON_ALL)
async def test_a_turn_costs_its_transcript_and_its_chat(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path, models=app_catalog.models_document()) as server:
        app = server.gateway.app
        recording = await spoken(server)
        before = float((await app.balance())[0])
        async with server.connect(listening()) as connection:
            await send(connection, recording)
            await connection.input_audio_buffer.commit()
            await connection.response.create()
            response = (await until(connection, "response.done"))[-1].response
            assert response.status == "completed"
        calls = {row["face"]: float(row["cost_usd"]) for row in await server.gateway.settled(3)}
        page = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
        (transcript,) = [row for row in page["predictions"] if row["model"] == "stt"]
        async with asyncio.timeout(30):
            while (await app.balance())[1] != "0.00":  # noqa: ASYNC110 - money has no event to wait for
                await asyncio.sleep(0.005)
        after = float((await app.balance())[0])
        assert float(transcript["cost"]) == pytest.approx(len(recording) / 48_000 / 60 * 0.006, rel=0.1)
        assert calls.keys() == {"realtime", "transcriptions", "speech"}
        calls.pop("speech")
        assert calls["transcriptions"] == float(transcript["cost"])
        assert before - after == pytest.approx(sum(calls.values()))
        assert await app.faults() == ()
