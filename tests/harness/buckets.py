"""Object stores for tests, each in a separate bucket."""

from __future__ import annotations

from pathlib import Path

from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.buckets import Bucket, BucketAccess, open_bucket
from sixfold.store.object_store import ObjectOptions, ObjectStore
from tests.harness import azure, s3


def bucket(url: str, seconds: float = 10) -> Bucket:
    """Return a bucket of this process's server by its URL."""
    return open_bucket(url, BucketAccess(s3.server().options, seconds))


def cache(folder: Path, size: int = 256 << 20) -> BlobCache:
    return BlobCache(folder, CacheLimits(size, 60))


def s3_store(folder: Path) -> ObjectStore:
    """Return a store with a new bucket, whose keys may be overwritten."""
    return ObjectStore(bucket(f"s3://{s3.server().new_bucket()}"), cache(folder.with_name("cache")))


def content_store(folder: Path, url: str = "") -> ObjectStore:
    """Return a content-addressed blob store, in a new bucket unless `url` names one."""
    return ObjectStore(
        bucket(url or f"s3://{s3.server().new_bucket()}/some/prefix"),
        cache(folder / "cache"),
        ObjectOptions(by_content=True),
    )


def gcs_store(folder: Path) -> ObjectStore:
    """Return Google's client on the S3 server: the common subset of both protocols, without preconditions."""
    server = s3.server()
    access = BucketAccess({"base_url": server.endpoint, "bearer_token": "a-token"}, 10)
    return ObjectStore(
        open_bucket(f"gs://{server.new_bucket()}/prefix", access), cache(folder.with_name("cache"))
    )


def azure_store(folder: Path) -> ObjectStore:
    """Return Azure's client on the fake of its service."""
    account = azure.server()
    lies = open_bucket(f"az://{account.new_container()}/prefix", BucketAccess(account.options, 10))
    return ObjectStore(lies, cache(folder.with_name("cache")))
