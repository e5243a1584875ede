"""Long audio in one event of a realtime session is decoded and searched for speech in a thread."""

from __future__ import annotations

import base64
from typing import Any

from sixfold.api.gateway.openai.realtime import configuration
from sixfold.api.gateway.openai.realtime.configuration import AudioInput
from sixfold.api.gateway.openai.realtime.input_audio import InputAudio
from sixfold.core.gateway.realtime.memory import RealtimeMemory
from tests import loop_time

# 91 s of silence in G.711, which fit into an event of 1 MiB.
SAMPLES = 730_000
G711: Any = {"audio": {"input": {"format": {"type": "audio/pcmu"}, "turn_detection": {"type": "server_vad"}}}}


class Listener:
    """Counts the turns of the user."""

    def __init__(self) -> None:
        self.turns = 0

    async def interrupt(self) -> None:
        return

    async def add_turn(self, item_id: str, pcm: bytes, rate: int) -> None:
        self.turns += 1

    async def respond(self) -> None:
        return

    async def send(self, kind: str, /, **fields: Any) -> None:
        return


def settings() -> AudioInput:
    return configuration.updated(configuration.initial("model"), G711).audio.input


async def test_an_event_with_long_audio_leaves_the_loop_free() -> None:
    listener, memory = Listener(), RealtimeMemory(2**24, "full")
    audio = InputAudio(settings(), memory, listener.send, listener)
    speech = bytes(8_000) + b"\xff" * (SAMPLES - 8_000)
    event = {"audio": base64.b64encode(speech).decode()}
    async with loop_time.watched() as loop:
        for _ in range(3):
            await audio.append(event)
    assert listener.turns == 3
    assert loop.longest < 0.04
