"""Backups of a folder and of a bucket are identical, and restore into either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold import errors, settings
from sixfold.app import storage
from sixfold.cli.database import restore
from sixfold.settings import Settings
from tests.contract.test_backup import fill, write_backup
from tests.harness import s3
from tests.harness.cases import nightly_after

pytestmark = s3.NEEDED
Factory = Callable[[Path], Settings]


def in_files(folder: Path) -> Settings:
    return settings.load({}, data_dir=folder)


def in_a_bucket(folder: Path) -> Settings:
    name = s3.server().new_bucket()
    return in_files(folder).replace(
        blob_url=f"s3://{name}/store",
        upload_url=f"s3://{name}/uploads",
        blob_seconds=1,
        tables={"buckets": {"s3": s3.server().options}},
    )


async def content(configured: Settings) -> dict[str, bytes]:
    """Return every stored result and upload."""
    result: dict[str, bytes] = {}
    for store in (storage.open_blobs(configured), storage.open_uploads(configured)):
        async for info in store.list():
            result[info.key] = await store.get(info.key)
    return result


@pytest.mark.parametrize("target", nightly_after(1, [in_a_bucket, in_files]))
@pytest.mark.parametrize("source", [in_files, in_a_bucket])
def test_backup_is_restored_between_folders_and_buckets(
    tmp_path: Path, source: Factory, target: Factory
) -> None:
    old, new = source(tmp_path / "old"), target(tmp_path / "new")
    asyncio.run(fill(old, files=12))
    path = tmp_path / "all.tar"
    written = asyncio.run(write_backup(old, path))
    assert (written.files, written.missing) == (13, [])
    report = restore.restore(path, new, verify=True)
    assert (report.drift, report.missing_blobs, report.damaged, report.faults) == (0, 0, [], ())
    assert asyncio.run(content(new)) == asyncio.run(content(old))
    assert not (tmp_path / "new" / ".restoring").exists()
    assert (tmp_path / "new" / "store").exists() == (not new.blob_url)


def test_missing_blob_of_a_bucket_is_named(tmp_path: Path) -> None:
    source, path = in_a_bucket(tmp_path / "source"), tmp_path / "all.tar"
    asyncio.run(fill(source))
    lost = asyncio.run(lose_one(source))
    assert asyncio.run(write_backup(source, path)).missing == [f"store/{lost}"]


async def lose_one(configured: Settings) -> str:
    store = storage.open_blobs(configured)
    key = (await anext(store.list())).key
    assert await store.delete(key)
    return key


def test_unreachable_bucket_leaves_no_partial_backup_or_restore(tmp_path: Path) -> None:
    source, path = in_a_bucket(tmp_path / "source"), tmp_path / "all.tar"
    asyncio.run(fill(source))
    asyncio.run(write_backup(source, path))
    content = path.read_bytes()
    away = {"buckets": {"s3": {**s3.server().options, "endpoint": "http://127.0.0.1:1"}}}
    (tmp_path / "source" / "cache").rename(tmp_path / "elsewhere")
    with pytest.raises(errors.StoreFailed, match="cannot be reached"):
        asyncio.run(write_backup(source.replace(tables=away), path))
    assert path.read_bytes() == content, "the one before is still there"
    target = in_a_bucket(tmp_path / "target").replace(tables=away)
    with pytest.raises(errors.StoreFailed, match="cannot be reached"):
        restore.restore(path, target, verify=True)
    assert not (tmp_path / "target" / "sixfold.db").exists()
