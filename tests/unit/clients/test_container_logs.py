"""The output of a container, which may have lines of any length, is read up to a limit."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sixfold.clients.containers import DockerClient

MIB = 2**20


@asynccontextmanager
async def engine(chunks: list[bytes]) -> AsyncIterator[tuple[DockerClient, list[int]]]:
    """Serve these chunks as the output of every container; the list has the bytes that were sent."""
    sent: list[int] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        with contextlib.suppress(OSError):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                sent.append(len(chunk))
        writer.close()

    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "socket"
        async with await asyncio.start_unix_server(respond, socket):
            client = DockerClient(socket, "test")
            try:
                yield client, sent
            finally:
                await client.close()


def framed(text: bytes) -> bytes:
    return b"\1\0\0\0" + len(text).to_bytes(4, "big") + text


async def test_the_last_lines_are_returned_without_their_headers() -> None:
    async with engine([framed(b"first\n"), framed(b"last\n")]) as (client, _):
        assert await client.log("one") == "first\nlast"


async def test_a_line_of_64_mib_is_read_up_to_a_limit() -> None:
    async with engine([framed(b"x" * (MIB - 8))] * 64) as (client, sent):
        assert await client.log("one") == "x" * (256 * 1024 - 8)
        assert sum(sent) < 32 * MIB
