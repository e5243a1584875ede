"""Memory for responses that clients have not read: which connections are closed above the limit."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from sixfold.cli.server import serve
from sixfold.core.media.ports import BlobStore
from sixfold.web import files
from sixfold.web.connections.send_memory import SendMemory


class Transport:
    """A transport with unread bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_aborted = True
        self.size = 0


def test_the_address_with_the_most_loses_its_largest_connections() -> None:
    memory = SendMemory(100)
    one = Transport(60)
    many = [Transport(size) for size in (10, 15, 20, 5)]
    memory.pause(one, "ada")
    for transport in many:
        memory.pause(transport, "eve")
    assert [one.is_aborted, *(each.is_aborted for each in many)] == [True, False, False, False, False]
    small = Transport(55)
    memory.pause(small, "ada")
    assert [small.is_aborted, *(each.is_aborted for each in many)] == [True, False, False, False, False]
    memory.pause(Transport(30), "eve")
    more = Transport(30)
    memory.pause(more, "ada")
    assert (more.is_aborted, sum(each.size for each in many)) == (False, 50)


def test_bytes_that_were_read_meanwhile_do_not_count() -> None:
    memory = SendMemory(100)
    first, second = Transport(80), Transport(80)
    memory.pause(first, "ada")
    first.size = 10
    memory.pause(second, "ada")
    assert (first.is_aborted, second.is_aborted) == (False, False)
    memory.resume(second)
    third = Transport(85)
    memory.pause(third, "ada")
    assert third.is_aborted is False


def test_bytes_that_were_added_count_at_the_next_check() -> None:
    memory = SendMemory(100)
    first = Transport(80)
    memory.pause(first, "ada")
    first.size = 200
    memory.check()
    assert first.is_aborted


def test_without_a_limit_nothing_is_closed() -> None:
    memory = SendMemory()
    transport = Transport(2**40)
    memory.pause(transport, "ada")
    memory.check()
    assert not transport.is_aborted


class PieceStore:
    """A store of one file, which consists of pieces."""

    def __init__(self) -> None:
        self.pieces = [bytes([number]) * 1000 for number in range(3)]

    async def stream(self, *_: Any) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


async def test_a_file_that_a_client_does_not_read_holds_one_piece() -> None:
    store = PieceStore()
    request = Request({"type": "http", "method": "GET", "headers": [], "path": "/", "query_string": b""})
    served = files.ServedFile(cast("BlobStore", store), "key", 3000, "video/mp4", "tag", files.FOREVER)
    response = await files.serve(request, served)
    assert isinstance(response, StreamingResponse)
    pieces = aiter(response.body_iterator)
    sizes = [len(await anext(pieces)) for _ in range(2)]
    # The references of the list and of the call.
    assert (sizes, sys.getrefcount(store.pieces[0])) == ([1000, 1000], 2)


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
def test_the_kernel_holds_little_unsent_data() -> None:
    with (
        contextlib.closing(serve.bind("127.0.0.1", 0, "--port")) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            limit = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
    assert 0 < limit <= 2**20
