"""Objects of a bucket whose stated size is too large for the memory or the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import disk_space, errors
from sixfold.store.buckets import BucketAccess, open_bucket
from sixfold.store.object_store import ObjectStore
from tests.harness import buckets
from tests.unit.net import servers

ANSWER = (
    b'HTTP/1.1 200 OK\r\nETag: "a"\r\nLast-Modified: Tue, 01 Dec 2026 00:00:00 GMT\r\n'
    b"Content-Length: 1000000000000\r\nConnection: close\r\n\r\n"
)


async def answer(seen: servers.ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER + bytes(2**21 if seen.method == "GET" else 0))
    await writer.drain()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    async with servers.serving() as server:
        server.routes = servers.AnyPath(answer)
        options = {
            "endpoint": server.url("").rstrip("/"),
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
        }
        bucket = open_bucket("s3://bucket", BucketAccess(options, 5))
        yield ObjectStore(bucket, buckets.cache(tmp_path / "cache"))


async def test_a_large_object_is_not_read_into_memory(store: ObjectStore) -> None:
    with pytest.raises(errors.StoreFailed, match="an object of 1,000,000,000,000 bytes"):
        await store.get("a/b")


async def test_a_fetched_object_leaves_a_part_of_the_disk_free(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "_RESERVE_BYTES", 2**62)
    monkeypatch.setattr(disk_space, "_RESERVE_PART", 1)
    with pytest.raises(OSError, match="of the disk would remain free"):
        await store.local_path("a/b")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
