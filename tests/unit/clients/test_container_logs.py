"""The output of containers and builds, which may have lines of any length, is read within limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold.clients.containers import ContainersFailed, DockerClient

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


def entry(**fields: str) -> bytes:
    return json.dumps(fields).encode() + b"\n"


async def test_the_output_of_a_build_takes_constant_memory() -> None:
    chunks = [entry(stream="x" * 1_000_000)] * 64 + [b"x" * (8 * MIB), b"\n", entry(error="no space left")]
    async with engine(chunks) as (client, sent):
        tracemalloc.start()
        try:
            with pytest.raises(ContainersFailed, match="no space left") as failure:
                await client.build("image", b"")
            grown = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(str(failure.value)) < 1_100
    assert (sum(sent) > 64_000_000, grown < 24 * MIB) == (True, True)


async def test_a_build_without_an_error_succeeds() -> None:
    async with engine([entry(stream="Step 1"), b'{"stream": "Step', b' 2"}']) as (client, _):
        await client.build("image", b"")
    async with engine([entry(stream="Step 1"), b'{"error": "fai', b'led"}']) as (client, _):
        with pytest.raises(ContainersFailed, match="failed\nStep 1"):
            await client.build("image", b"")
