"""Frames survive any chunking; oversized or foreign data is rejected."""

from __future__ import annotations

import tracemalloc

import msgspec
import numpy as np
import pytest

from sixfold.worker import protocol

MESSAGES: tuple[protocol.WorkerMessage, ...] = (
    protocol.WorkerReady("echo", "1"),
    protocol.ProgressMessage(3, 0.5),
    protocol.LogMessage(3, "a line"),
    protocol.RunDone(
        7, [protocol.StagedMessage("w-1-0", "image/webp", {"width": 8})], {"k": [1, None]}, "full", "1", 12
    ),
    protocol.RunFailedMessage(7, "no", public=False, detail="x" * 5000),
    protocol.RunHalted(7),
)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 4096, 1 << 20])
def test_stream_is_split_into_its_frames(step: int) -> None:
    stream = b"".join(map(protocol.frame, MESSAGES))
    frames = protocol.FrameSplitter()
    replies = [
        protocol.to_server.decode(body)
        for start in range(0, len(stream), step)
        for body in frames.feed(stream[start : start + step])
    ]
    assert replies == list(MESSAGES)


def test_oversized_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(protocol.FrameTooLarge):
        list(protocol.FrameSplitter().feed(b"\xff\xff\xff\xff"))


def test_a_frame_too_large_to_send_is_refused() -> None:
    with pytest.raises(protocol.FrameTooLarge):
        protocol.frame(protocol.StartFailed("x" * (protocol.MAX_FRAME_BYTES + 1)))


def test_large_frame_is_encoded_without_a_second_copy() -> None:
    message = protocol.RunMessage(1, "task", "model", {"texts": ["x" * 30_000] * 200}, {})
    tracemalloc.start()
    try:
        data = protocol.frame(message)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\xa3foo", protocol.encode(protocol.LeaveMessage())])
def test_message_of_the_other_side_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        protocol.to_server.decode(body)


def test_numbers_of_numpy_travel_as_plain_ones() -> None:
    data = {"mean": np.float32(0.5), "count": np.int64(3), "row": np.array([1, 2]), "yes": np.bool_(True)}
    body = protocol.encode(protocol.RunDone(7, [], data, None, "1", 0))
    message = protocol.to_server.decode(body)
    assert isinstance(message, protocol.RunDone)
    assert message.data == {"mean": 0.5, "count": 3, "row": [1, 2], "yes": True}


def test_value_without_a_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be part of a result"):
        protocol.frame(protocol.RunDone(7, [], {"k": object()}, None, "1", 0))
