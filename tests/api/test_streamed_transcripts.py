"""Transcripts whose segments are sent while an engine decodes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from sixfold.core.catalog.engines import Context, EngineError, PreviewContext, Result, Task
from tests.api.app_fixture import AppFixture, running_app, small_models
from tests.api.gateway import listening
from tests.fakes import fault_server

TEXTS = ("Good morning.", "Snow falls", "in Oslo.")
_WAIT_SECONDS = 60


class SegmentEngine:
    """Shows two segments, the first one twice, waits for `go_on`, and returns `texts` or fails."""

    name = "segments"
    version = "1"
    go_on = threading.Event()
    texts: tuple[str, ...] = TEXTS

    def run(self, task: Task, context: Context) -> Result:
        if task.inputs.get("partial_text") and isinstance(context, PreviewContext):
            # A lost run is repeated from its beginning.
            for number in (0, 0, 1):
                context.preview(msgspec.json.encode((number, TEXTS[number])))
            self.go_on.wait(_WAIT_SECONDS)
        if not self.texts:
            raise EngineError("The recording has ended")
        segments = [{"text": text, "start": 0, "end": 1, "confidence": 1} for text in self.texts]
        text = " ".join(self.texts)
        return Result(
            data={"text": text, "segments": segments, "language": "en", "duration": 3.0}, billed=0.05
        )


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[tuple[AppFixture, openai.AsyncOpenAI]]:
    SegmentEngine.go_on.clear()
    SegmentEngine.texts = TEXTS
    models = small_models()
    engine = {**models["engines"]["listening"], "factory": f"{__name__}:SegmentEngine"}
    models = {**models, "engines": {**models["engines"], "listening": engine}}
    async with running_app(tmp_path, models) as app, listening(app.asgi) as origin:
        async with openai.AsyncOpenAI(api_key=app.key, base_url=f"{origin}/v1", max_retries=0) as library:
            yield app, library
        SegmentEngine.go_on.set()


async def begun(library: openai.AsyncOpenAI) -> tuple[Any, list[Any]]:
    """Return a stream of a transcript, and its first two events, which come before the run has ended."""
    recording: Any = ("a.wav", fault_server.tone(3, 16000))
    stream: Any = await library.audio.transcriptions.create(model="whisper-1", file=recording, stream=True)
    async with asyncio.timeout(_WAIT_SECONDS):
        return stream, [await anext(stream), await anext(stream)]


async def test_segments_are_sent_while_the_engine_runs(
    client: tuple[AppFixture, openai.AsyncOpenAI],
) -> None:
    app, library = client
    stream, events = await begun(library)
    assert [event.delta for event in events] == ["Good morning.", " Snow falls"]
    assert await app.balance() != ("5.00", "0.00")
    SegmentEngine.go_on.set()
    events += [event async for event in stream]
    assert [event.type for event in events] == [*["transcript.text.delta"] * 3, "transcript.text.done"]
    assert "".join(event.delta for event in events[:3]) == events[3].text == " ".join(TEXTS)
    recording: Any = ("a.wav", fault_server.tone(3, 16000))
    whole = await library.audio.transcriptions.create(model="whisper-1", file=recording)
    assert whole.text == events[3].text


async def test_other_text_of_a_repeated_run_is_in_the_final_event(
    client: tuple[AppFixture, openai.AsyncOpenAI],
) -> None:
    SegmentEngine.texts = ("Good evening.", "Rain")
    stream, _ = await begun(client[1])
    SegmentEngine.go_on.set()
    events = [event async for event in stream]
    assert [(event.type, getattr(event, "text", None)) for event in events] == [
        ("transcript.text.done", "Good evening. Rain")
    ]


async def test_failure_after_a_segment_is_an_event_and_free(
    client: tuple[AppFixture, openai.AsyncOpenAI],
) -> None:
    app, library = client
    SegmentEngine.texts = ()
    stream, _ = await begun(library)
    SegmentEngine.go_on.set()
    with pytest.raises(openai.APIError, match="The recording has ended"):
        await anext(stream)
    assert await app.balance() == ("5.00", "0.00")
