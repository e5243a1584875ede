"""Measure put and get of one megabyte on an object store beside plain files, in one run.

.venv/bin/python -m bench object_store

The store is moto, a Python program on this machine: the rows show Sixfold's overhead, not the latency of a
cloud. The peer is obstore alone with the same bytes, without Sixfold's cache, checks and names.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import obstore

from bench.reporting import Row, calibration, of_samples
from sixfold.core.media.blob_keys import blob_key
from sixfold.core.media.ports import BlobStore
from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.buckets import Bucket, BucketAccess, open_bucket
from sixfold.store.file_store import FileStore
from sixfold.store.object_store import ObjectOptions, ObjectStore

TITLE = "Blobs on files and on S3"
ROUNDS = 40
SIZE = 1 << 20


async def measure_time(blobs: Iterator[bytes], work: Callable[[bytes], Awaitable[object]]) -> list[float]:
    """Return the duration of each call in seconds."""
    samples: list[float] = []
    for data in blobs:
        began = time.perf_counter()
        await work(data)
        samples.append(time.perf_counter() - began)
    return samples


def compare(name: str, samples: list[float], peer: Row) -> Row:
    """Return a row with its ratio to another row."""
    row = of_samples(name, samples, "ms")
    return Row(row.name, row.median, row.unit, row.p95, f"{row.median / peer.median:.2f} of {peer.name}")


async def measure(folder: Path, files: BlobStore, bucket: Bucket) -> list[Row]:
    blobs = [os.urandom(SIZE) for _ in range(ROUNDS)]
    warm = ObjectStore(bucket, _cache(folder / "warm"), ObjectOptions(by_content=True))
    cold = ObjectStore(bucket, _cache(folder / "cold", 0), ObjectOptions(by_content=True))

    async def bare_put(data: bytes) -> None:
        await obstore.put_async(bucket, f"bare/{blob_key(data)}", data)

    async def bare_get(data: bytes) -> None:
        await (await obstore.get_async(bucket, f"bare/{blob_key(data)}")).bytes_async()

    async def first(data: bytes) -> None:
        await anext(aiter(cold.stream(blob_key(data), 1000, 1000)))

    await bare_put(b"warm")
    disk = await measure_time(iter(blobs), lambda data: files.put(blob_key(data), data))
    read = await measure_time(iter(blobs), lambda data: files.get(blob_key(data)))
    bare = await measure_time(iter(blobs), bare_put)
    bare_read = await measure_time(iter(blobs), bare_get)
    put = await measure_time(iter(blobs), lambda data: warm.put(blob_key(data), data))
    again = await measure_time(iter(blobs), lambda data: warm.put(blob_key(data), data))
    actual = await measure_time(iter(blobs), lambda data: cold.get(blob_key(data)))
    remaining = await measure_time(iter(blobs), lambda data: warm.get(blob_key(data)))
    middle = await measure_time(iter(blobs), first)
    on_disk = [of_samples("files: put 1 MB", disk, "ms"), of_samples("files: get 1 MB", read, "ms")]
    alone = [
        of_samples("obstore alone: put 1 MB", bare, "ms"),
        of_samples("obstore alone: get 1 MB", bare_read, "ms"),
    ]
    return [
        *on_disk,
        *alone,
        compare("S3: put 1 MB", put, alone[0]),
        compare("S3: put of an existing blob", again, alone[0]),
        compare("S3: get 1 MB", actual, alone[1]),
        compare("S3: get 1 MB from the cache", remaining, on_disk[1]),
        of_samples("S3: 1 KB from the middle", middle, "ms"),
    ]


def _cache(folder: Path, size: int = 1 << 30) -> BlobCache:
    return BlobCache(folder, CacheLimits(size, 60))


def rows() -> list[Row]:
    from tests.harness import s3

    server = s3.server()
    bucket = open_bucket(f"s3://{server.new_bucket()}/bench", BucketAccess(server.options))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        files = FileStore(Path(name) / "store")
        result = asyncio.run(measure(Path(name), files, bucket))
        files.close()
    return calibration() + result
