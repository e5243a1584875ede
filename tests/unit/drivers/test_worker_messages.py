"""Messages of workers: large ones are decoded in a thread, and all are handled in their order."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from sixfold.drivers import large_messages
from sixfold.drivers.worker_messages import WorkerMessages
from sixfold.worker import protocol
from sixfold.worker.protocol import (
    ProgressMessage,
    RunDone,
    RunFailedMessage,
    StagedMessage,
    StartFailed,
    StepDone,
    StepsDone,
    ToServer,
)
from tests import gil_time, loop_time

ROWS = [[n / 7 for n in range(768)]] * 2048
# More levels than the encoder supports.
DEEP = msgspec.Raw(b"\x91" * 3000 + b"\xc0")
LARGE = RunDone(1, [], {"embeddings": ROWS, "dimensions": 768}, "full", "1", 5)


def nested(value: Any, levels: int) -> dict[str, Any]:
    for _ in range(levels):
        value = [value]
    return {"a": value}


def _with_data(data: Any) -> bytes:
    """Return an encoded result with this value as its data."""
    parts = msgspec.msgpack.decode(protocol.encode(LARGE), type=list[msgspec.Raw])
    parts[3] = msgspec.Raw(msgspec.msgpack.encode(data))
    return protocol.encode(parts)


class Transport(asyncio.Transport):
    """Records whether the server reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return False


async def test_a_large_result_is_decoded_in_a_thread_in_its_order() -> None:
    handled: list[ToServer] = []
    broken: list[str] = []
    transport, messages = Transport(), WorkerMessages(handled.append, broken.append)
    sent = [ProgressMessage(1, 0.5), LARGE, ProgressMessage(2, 0.5)]
    stream = b"".join(map(protocol.frame, sent))
    async with loop_time.watched() as loop:
        for at in range(0, len(stream), 2**18):
            messages.feed(stream[at : at + 2**18], transport)
            await asyncio.sleep(0)
        await messages.finish()
    assert handled == sent
    assert transport.calls == ["pause", "resume"]
    assert not broken
    assert loop.longest < 0.04


@pytest.mark.parametrize(
    "body",
    [
        protocol.encode(LARGE)[:-1],
        _with_data([ROWS]),
        _with_data({1: ROWS}),
        _with_data({"a": ROWS, "b": DEEP}),
        _with_data({"b": DEEP}),
    ],
    ids=["incomplete", "list", "number as a name", "deep", "small and deep"],
)
async def test_an_invalid_message_is_a_violation(body: bytes) -> None:
    handled: list[ToServer] = []
    broken: list[str] = []
    messages = WorkerMessages(handled.append, broken.append)
    messages.feed(len(body).to_bytes(4, "little") + body, Transport())
    await messages.finish()
    assert not handled
    (reason,) = broken
    assert reason.startswith("violated the protocol")


def test_vectors_are_decoded_one_by_one() -> None:
    body = protocol.encode(LARGE)
    assert large_messages.decode(body) == LARGE
    assert gil_time.longest_call(lambda: large_messages.decode(body), 12) < 35


def test_a_result_with_too_many_files_fails_its_run() -> None:
    files = [StagedMessage(f"w-1-{number}", "image/png", {"width": 8}) for number in range(40_000)]
    failure = large_messages.decode(protocol.encode(RunDone(7, files, {}, "full", "1", 5)))
    problem = "a result without its data must have at most 1,048,576 bytes"
    assert failure == RunFailedMessage(7, f"The model returned too much: {problem}.", public=True)


async def test_many_small_messages_are_handled_in_parts() -> None:
    handled: list[ToServer] = []
    transport, messages = Transport(), WorkerMessages(handled.append, lambda _: None)
    sent = [ProgressMessage(1, number / 1000) for number in range(1000)]
    messages.feed(b"".join(map(protocol.frame, sent)), transport)
    assert len(handled) == 256
    assert transport.calls == ["pause"]
    await messages.finish()
    assert handled == sent
    assert transport.calls == ["pause", "resume"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({str(number): 1 for number in range(100_001)}, "an object must have at most 100,000 members"),
        ({"a": dict.fromkeys(range(100001), 1)}, "an object must have at most 100,000 members"),
        ({"a": [[]] * 1_000_001}, "a list must have at most 1,000,000 items"),
        ({"a": [[]] * 500_001}, "a result must have at most 500,000 lists and objects"),
        ({"a": [[1] * 800_000] * 4}, "a result must have at most 3,000,000 values"),
        (nested(0, 100), "a result must have at most 100 nesting levels"),
        (nested([0] * 100_000, 100), "a result must have at most 100 nesting levels"),
        (nested([0] * 300_000, 20), "a large value must have at most 16 nesting levels"),
    ],
    ids=["members", "nested", "items", "containers", "values", "depth", "large depth", "levels"],
)
def test_a_result_over_a_limit_fails_its_run(data: dict[str, Any], problem: str) -> None:
    for message in (RunDone(7, [], data, "full", "1", 5), RunDone(7, [], {}, "full", "1", 5, others=data)):
        failure = large_messages.decode(protocol.encode(message))
        assert failure == RunFailedMessage(7, f"The model returned too much: {problem}.", public=True)


def test_a_result_at_the_limit_of_levels_is_accepted() -> None:
    message = RunDone(7, [], nested(0, 99), "full", "1", 5, others={"other": [[1], {"a": [0.5]}] * 30})
    assert large_messages.decode(protocol.encode(message)) == message


def test_large_results_equal_the_encoded_ones() -> None:
    data = {
        "numbers": [0.5] * 900_000,
        "objects": [{"word": "ö", "start": 0.5, "others": [1, None, True]}] * 20_000,
        "by number": dict.fromkeys(range(9000), "x" * 40),
        "text": "é" * 300_000,
    }
    message = RunDone(1, [], data, "full", "1", 5, others={"second": data["objects"]})
    assert large_messages.decode(protocol.encode(message)) == message


@pytest.mark.parametrize(
    "body",
    [
        protocol.encode(RunFailedMessage(1, "x" * 2**20, public=True)),
        protocol.encode(StartFailed("x" * 2**20)),
        protocol.encode(StepsDone(1, [StepDone(b"", [b""] * 300_000)])),
        b"\xdc\0\x0c" + protocol.encode(LARGE)[1:],
    ],
    ids=["failure", "start", "poses", "form"],
)
def test_other_large_messages_are_violations(body: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, protocol.FrameTooLarge)):
        large_messages.decode(body)
