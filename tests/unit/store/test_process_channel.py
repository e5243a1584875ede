"""Messages between processes, and detection of live ones."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sixfold.store.process_channel import MAX_BYTES, ProcessChannel

_CHILD = """
import asyncio, pathlib, sys
from sixfold.store.process_channel import ProcessChannel
async def main():
    ProcessChannel(pathlib.Path(sys.argv[1])).open("child")
    print("open", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
Open = Callable[[str], ProcessChannel]


@pytest.fixture
async def open_channel(tmp_path: Path) -> AsyncIterator[Open]:
    channels: list[ProcessChannel] = []

    def open_socket(name: str) -> ProcessChannel:
        channels.append(channel := ProcessChannel(tmp_path / "processes"))
        channel.open(name)
        return channel

    yield open_socket
    for channel in channels:
        channel.close()


def receive(channel: ProcessChannel, kind: bytes) -> asyncio.Queue[tuple[str, bytes]]:
    messages: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    channel.subscribe(kind, lambda sender, body: messages.put_nowait((sender, body)))
    return messages


async def test_message_reaches_every_other_process(open_channel: Open) -> None:
    first, second, third = open_channel("first"), open_channel("second"), open_channel("third")
    queues = [receive(channel, b"x") for channel in (first, second, third)]
    first.send(b"x", b"hello\0world")
    assert [await queue.get() for queue in queues[1:]] == [("first", b"hello\0world")] * 2
    assert queues[0].empty()


async def test_message_of_another_kind_is_ignored(open_channel: Open) -> None:
    first, second = open_channel("first"), open_channel("second")
    known = receive(second, b"k")
    first.send(b"u", b"unknown")
    first.send(b"k", b"known")
    assert await known.get() == ("first", b"known")


async def test_full_queue_of_a_peer_is_retried_in_order(open_channel: Open) -> None:
    first, second = open_channel("first"), open_channel("second")
    queue = receive(second, b"x")
    # Many times the size of the kernel's queue for a socket.
    for number in range(500):
        first.send(b"x", str(number).encode())
    assert [int((await queue.get())[1]) for _ in range(500)] == list(range(500))


async def test_backlog_for_a_stopped_peer_has_a_size(open_channel: Open) -> None:
    first, second = open_channel("first"), open_channel("second")
    # 25 MB, while the peer does not read.
    for number in range(200):
        first.send(b"x", number.to_bytes(1) * MAX_BYTES)
    queue = receive(second, b"x")
    received = [(await queue.get())[1][0] for _ in range(60)]
    while received[-1] != 199:
        received.append((await queue.get())[1][0])
    assert len(received) < 100
    assert received == sorted(received)


async def test_large_message_is_refused(open_channel: Open) -> None:
    first, second = open_channel("first"), open_channel("second")
    queue = receive(second, b"x")
    with pytest.raises(ValueError, match="at most 131,072 bytes"):
        first.send(b"x", bytes(MAX_BYTES + 1))
    first.send(b"x", bytes(MAX_BYTES))
    assert len((await queue.get())[1]) == MAX_BYTES


async def test_closed_channel_is_not_alive(open_channel: Open) -> None:
    first, second = open_channel("first"), open_channel("second")
    assert first.is_alive("first")
    assert first.is_alive("second")
    second.close()
    assert not first.is_alive("second")
    assert first.peers() == ()


@pytest.mark.parametrize("name", ["", "nobody", "../first", "/etc/passwd"])
async def test_unknown_name_is_not_alive(open_channel: Open, name: str) -> None:
    assert not open_channel("first").is_alive(name)


async def test_killed_process_is_not_alive_and_its_files_are_deleted(
    open_channel: Open, tmp_path: Path
) -> None:
    first = open_channel("first")
    folder = tmp_path / "processes"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"open\n"
    assert first.is_alive("child")
    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    assert not first.is_alive("child")
    first.send(b"x", b"to nobody")
    open_channel("second")
    assert not [path for path in folder.iterdir() if path.name.startswith("child")]


async def test_folder_with_a_long_path_is_used(tmp_path: Path) -> None:
    channel = ProcessChannel(tmp_path / ("x" * 120))
    channel.open("a" * 80)
    assert channel.is_alive("a" * 80)
    channel.close()


async def test_process_is_alive_when_its_lock_cannot_be_opened(
    open_channel: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_channel("first")
    open_channel("second")

    def refuse(*_arguments: object, **_options: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    assert first.is_alive("second")
