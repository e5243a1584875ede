"""Lists of an object store that never end are abandoned before they fill the memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.buckets import BucketAccess, open_bucket
from sixfold.store.object_store import ObjectStore

MIB = 2**20
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n<ListBucketResult>"
ROW = (
    b"<Contents><Key>p/a/%08d</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    b"<Size>1</Size></Contents>"
)
ROWS = b"".join(ROW % number for number in range(500))


async def test_an_endless_list_is_abandoned(tmp_path: Path) -> None:
    sent = 0
    connections: list[asyncio.Task[None]] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            while sent < 2048 * MIB:
                writer.write(ROWS)
                await writer.drain()
                sent += len(ROWS)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.ensure_future(respond(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": "true"}
        bucket = open_bucket("s3://bucket/p", BucketAccess(options, 5))
        store = ObjectStore(bucket, BlobCache(tmp_path, CacheLimits(MIB, 1)))
        with pytest.raises(errors.StoreFailed, match="list must have at most 167,772,160 bytes"):
            async for _ in store.list("a/"):
                pass
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
    assert sent < 400 * MIB
