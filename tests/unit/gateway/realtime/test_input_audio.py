"""The buffer of the user's audio and its memory."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.core.gateway.realtime.input_audio import InputAudioBuffer
from sixfold.core.gateway.realtime.memory import RealtimeMemory


def test_positions_count_from_the_beginning_of_the_session() -> None:
    memory = RealtimeMemory(10_000, "full")
    buffer = InputAudioBuffer("audio/pcmu", memory)
    assert len(buffer.append(bytes(800))) == 1600
    assert (buffer.end, buffer.duration_ms, memory.size) == (800, 100, 1600)
    assert buffer.drop_before(300) == 300
    assert buffer.drop_before(100) == 300
    assert (buffer.end, memory.size) == (800, 1000)
    assert len(buffer.take(500)) == 400
    assert (buffer.duration_ms, memory.size) == (37, 1000)
    buffer.clear()
    assert (buffer.end, buffer.duration_ms, memory.size) == (800, 0, 400)


def test_audio_over_a_limit_is_not_stored() -> None:
    server = RealtimeMemory(3_000, "server")
    first, second = RealtimeMemory(2_000, "session", server), RealtimeMemory(2_000, "session", server)
    buffer = InputAudioBuffer("audio/pcm", first)
    buffer.append(bytes(2_000))
    with pytest.raises(errors.TooManyRequests, match="session"):
        buffer.append(bytes(2))
    with pytest.raises(errors.TooManyRequests, match="server"):
        second.take(1_001)
    assert (buffer.end, first.size, second.size, server.size) == (1_000, 2_000, 0, 2_000)
    buffer.clear()
    assert (first.size, server.size) == (0, 0)
