"""Messages of workers: large ones are decoded in a thread, and all are handled in their order."""

from __future__ import annotations

import asyncio

from sixfold.drivers.worker_messages import WorkerMessages
from sixfold.worker import protocol
from sixfold.worker.protocol import ProgressMessage, RunDone, ToServer
from tests import gil_time, loop_time

ROWS = [[n / 7 for n in range(768)]] * 2048
LARGE = RunDone(1, [], {"embeddings": ROWS, "dimensions": 768}, "full", "1", 5)


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


async def test_a_large_message_that_is_invalid_is_a_violation() -> None:
    handled: list[ToServer] = []
    broken: list[str] = []
    messages = WorkerMessages(handled.append, broken.append)
    body = protocol.encode(LARGE)[:-1]
    messages.feed(len(body).to_bytes(4, "little") + body, Transport())
    await messages.finish()
    assert not handled
    (reason,) = broken
    assert reason.startswith("violated the protocol")


def test_vectors_are_decoded_one_by_one() -> None:
    body = protocol.encode(LARGE)
    assert protocol.decode_large(body) == LARGE
    assert gil_time.longest_call(lambda: protocol.decode_large(body), 12) < 35
