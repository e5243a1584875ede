"""Puts and gets a file of 100 MB in a separate process: `large_child FOLDER PORT BUCKET`.

It prints the size that the store has, whether the bytes that come back are the same, and by how many MiB the
most memory that was ever used has risen.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

import blake3

from sixfold.core.media.blob_keys import key_of
from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.buckets import BucketAccess, open_bucket
from sixfold.store.object_store import ObjectOptions, ObjectStore
from tests.harness import s3

MIB = 1 << 20


def peak() -> int:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def open_store(folder: Path, port: int, name: str) -> ObjectStore:
    """Open a content store without caching."""
    bucket = open_bucket(f"s3://{name}", BucketAccess(s3.S3(port).options, 30))
    return ObjectStore(bucket, BlobCache(folder, CacheLimits(MIB, 60)), ObjectOptions(by_content=True))


async def main(folder: Path, port: int, name: str) -> None:
    """Create the file, upload it and download it."""
    source, digest = folder / "large", blake3.blake3()
    with source.open("wb") as file:
        for number in range(100):
            piece = bytes([number]) * MIB
            digest.update(piece)
            file.write(piece)
    key = key_of(digest.hexdigest())
    store = open_store(folder / "one", port, name)
    await store.put("warm", b"1")
    before = peak()
    await store.put_file(key, source)
    result = await store.stat(key)
    path = await open_store(folder / "other", port, name).local_path(key)
    second_digest = blake3.blake3()
    with path.open("rb") as file:
        while piece := file.read(MIB):
            second_digest.update(piece)
    size = result.size if result is not None else None
    print(size, second_digest.digest() == digest.digest(), peak() - before)  # noqa: T201 - what the parent reads


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
