"""Responses of the Realtime API as audio, spoken by the embedded engine."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway.realtime import audio
from sixfold.core.predictions.service import PredictionService
from sixfold.errors import EngineUnavailable
from tests.api.realtime import RealtimeServer, event, running_realtime, say, until, user_message
from tests.harness import backends

pytestmark = pytest.mark.asyncio(loop_scope="module")
ON_ALL = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
ANSWER = "Hello there, my friend. This is the second sentence. Here is a third one, as Dr. Smith said."
AUDIO: Any = {"type": "realtime"}
# The price of one request for speech, and of a chat with this answer.
SPEECH_USD = 0.002


@pytest.fixture
def server(shared_realtime_with_engines: RealtimeServer) -> RealtimeServer:
    shared_realtime_with_engines.afresh().gateway.acme.answer = ANSWER
    return shared_realtime_with_engines


def audio_samples(events: list[Any], encoding: audio.Encoding = "audio/pcm") -> np.ndarray[Any, Any]:
    """Return the samples of the audio deltas."""
    deltas = [each.delta for each in events if each.type == "response.output_audio.delta"]
    data = audio.decode(b"".join(map(base64.b64decode, deltas)), encoding)
    return np.frombuffer(data, "<i2").astype(float)


async def test_a_response_is_spoken_with_its_transcript(server: RealtimeServer) -> None:
    async with server.connect(AUDIO) as connection:
        events = await say(connection, "Hi")
    names = [each.type for each in events]
    tail = [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert names[-6:] == tail
    part = next(each.part for each in events if each.type == "response.content_part.added")
    assert part.type == "audio"
    written = [each.delta for each in events if each.type == "response.output_audio_transcript.delta"]
    assert "".join(written) == ANSWER
    response = events[-1].response
    assert (response.status, response.output[0].content[0].transcript) == ("completed", ANSWER)
    samples = audio_samples(events)
    assert 4 * 24_000 < samples.size < 12 * 24_000
    assert np.sqrt(np.mean(samples**2)) > 500


@pytest.mark.parametrize("encoding", ["audio/pcmu", "audio/pcma"])
async def test_g711_is_the_same_speech_at_8_khz(server: RealtimeServer, encoding: audio.Encoding) -> None:
    server.gateway.acme.answer = "Hello there, my friend."
    async with server.connect(AUDIO) as connection:
        plain = audio_samples(await say(connection, "Hi"))
        session: Any = {"type": "realtime", "audio": {"output": {"format": {"type": encoding}}}}
        await connection.session.update(session=session)
        events = await say(connection, "Hi")
    narrow = audio_samples(events, encoding)
    assert narrow.size == pytest.approx(plain.size / 3, rel=0.01)
    rows = [part[: part.size // 80 * 80].reshape(-1, 80) for part in (plain[::3], narrow)]
    first, second = (np.sqrt((row[: min(map(len, rows))] ** 2).mean(axis=1)) for row in rows)
    assert np.corrcoef(first, second)[0, 1] > 0.95


async def test_audio_begins_before_the_text_has_ended(server: RealtimeServer) -> None:
    server.gateway.acme.mode, server.gateway.acme.withheld_events = "trickle", 4
    async with server.connect(AUDIO) as connection:
        await connection.conversation.item.create(item=user_message("Hi"))
        await connection.response.create()
        early = await until(connection, "response.output_audio.delta")
        assert not server.gateway.acme.go_on.is_set()
        assert "response.output_audio_transcript.done" not in [each.type for each in early]
        server.gateway.acme.go_on.set()
        response = (await until(connection, "response.done"))[-1].response
    assert response.output[0].content[0].transcript == ANSWER


async def test_truncate_removes_the_text_that_was_not_played(server: RealtimeServer) -> None:
    async with server.connect(AUDIO) as connection:
        item = (await say(connection, "Hi"))[-1].response.output[0]
        items = connection.conversation.item
        await items.truncate(item_id=item.id, content_index=0, audio_end_ms=10**6)
        assert (await event(connection)).error.param == "audio_end_ms"
        await items.truncate(item_id=item.id, content_index=0, audio_end_ms=1000)
        assert (await event(connection)).audio_end_ms == 1000
        await say(connection, "And?")
    text = server.gateway.acme.requests[-1].document["messages"][1]["content"]
    assert 5 < len(text) < 24
    assert ANSWER.startswith(text)


async def test_an_unknown_voice_is_refused_before_the_chat(server: RealtimeServer) -> None:
    async with server.connect(AUDIO) as connection:
        output: Any = {"voice": "nobody"}
        await connection.session.update(session={"type": "realtime", "audio": {"output": output}})
        error = (await event(connection)).error
        assert (error.param, "ava" in error.message) == ("voice", True)
        await connection.response.create(response={"audio": {"output": output}})
        assert (await event(connection)).error.param == "voice"
    assert not server.gateway.acme.requests


async def test_without_an_engine_nothing_is_charged(
    server: RealtimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any, **__: Any) -> Any:
        raise EngineUnavailable("No engine can speak: run this")

    before = await server.gateway.app.balance()
    monkeypatch.setattr(PredictionService, "quote", unavailable)
    async with server.connect(AUDIO) as connection:
        events = await say(connection, "Hi")
    (error,) = [each.error for each in events if each.type == "error"]
    assert (error.code, error.message) == ("engine_unavailable", "No engine can speak: run this")
    assert events[-1].response.status == "failed"
    assert await server.gateway.app.balance() == before
    assert not server.gateway.acme.requests


async def test_key_without_speech_is_not_charged_for_the_chat(server: RealtimeServer) -> None:
    key = await server.gateway.app.limited_key(KeyLimits(services=("chat",)))
    async with server.connect(AUDIO, key=key) as connection:
        events = await say(connection, "Hi")
    (error,) = [each.error for each in events if each.type == "error"]
    assert (error.code, events[-1].response.status) == ("forbidden", "failed")
    assert not server.gateway.acme.requests


@pytest.mark.parametrize("ground", ON_ALL)
async def test_a_response_costs_its_chat_and_its_speech(ground: str, tmp_path: Path) -> None:
    backends.database_url(tmp_path, ground)
    async with running_realtime(tmp_path, models=app_catalog.models_document()) as server:
        app = server.gateway.app
        server.gateway.acme.answer = ANSWER
        async with server.connect(AUDIO) as connection:
            before = float((await app.balance())[0])
            await say(connection, "Hi")
            calls = [row for row in await server.gateway.settled(3) if row["face"] != "speech"]
            chat = sum(float(row["cost_usd"]) for row in calls)
            page = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
            spoken = [row for row in page["predictions"] if row["model"] == "tts"]
            # The first sentence, and the others.
            assert [row["cost"] for row in spoken] == ["0.002", "0.002"]
            after = float((await app.balance())[0])
            assert before - after == pytest.approx(chat + 2 * SPEECH_USD)
            server.gateway.afresh()
            server.gateway.acme.mode, server.gateway.acme.withheld_events = "trickle", 4
            await connection.conversation.item.create(item=user_message("Hi"))
            await connection.response.create()
            await until(connection, "response.output_audio.delta")
            await connection.response.cancel()
            response = (await until(connection, "response.done"))[-1].response
            assert (response.status, response.output[0].status) == ("cancelled", "incomplete")
        await server.gateway.settled(2)
        # The speech of the canceled response is canceled too, and then its hold ends.
        async with asyncio.timeout(60):
            while True:
                if (await app.balance())[1] == "0.00":
                    break
                await asyncio.sleep(0.01)
        assert await app.faults() == ()
