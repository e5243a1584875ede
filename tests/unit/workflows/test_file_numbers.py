"""Files of runs are numbered after the highest number in use, on both databases."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, one
from sixfold.core.provenance.signing import Signer
from sixfold.core.workflows.storage import GraphFiles, Run, StoredName
from sixfold.store.postgres import connection as connections
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, databases
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline


def delete_media(tenant: Tenant, name: StoredName) -> Transaction[None]:
    """Delete a file as its expiry does."""
    file = yield from one("graph_file", **name.row(tenant))
    assert file is not None
    media = yield from one("media_blob_names", blob=file["blob"])
    assert media is not None
    yield Query("graph_files_of_media", {"media": media["name"]})


class NumberedFiles:
    """The files of one tenant, written by `put_numbered`."""

    def __init__(self, pipeline: PipelineFixture, credential_id: str = "") -> None:
        self.database, self.media = pipeline.database, pipeline.media
        self.files = GraphFiles(pipeline.database, pipeline.media, {}, Signer(b"x" * 32))
        self.tenant = Tenant(pipeline.payer.id, credential_id=credential_id)

    async def put(self, data: bytes, content_type: str = "image/png", prefix: str = "cat") -> StoredName:
        source = await self.media.store_unnamed(data, content_type)
        return await self.files.put_numbered(Run(self.tenant), "output", prefix, source)

    async def named(self, text: str) -> None:
        source = await self.media.store_unnamed(text.encode(), "image/png")
        await self.files.put(Run(self.tenant), StoredName(text, "", "output"), source)

    async def read(self, name: StoredName) -> bytes:
        found = await self.files.find(self.tenant, name)
        assert found is not None
        return await self.media.blobs.get(found.blob)


async def test_number_after_a_deleted_file_is_not_taken(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        files = NumberedFiles(pipeline)
        first, second, third = [await files.put(data) for data in (b"one", b"two", b"three")]
        assert [first.name, second.name, third.name] == [
            "cat_00001_.png",
            "cat_00002_.png",
            "cat_00003_.png",
        ]
        await pipeline.database.write(delete_media(files.tenant, first))
        fourth = await files.put(b"four")
        assert fourth.name == "cat_00004_.png"
        assert await files.read(third) == b"three"
        assert await files.read(fourth) == b"four"


async def test_number_is_compared_as_a_number(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        files = NumberedFiles(pipeline)
        assert (await files.put(b"a", "image/webp")).name == "cat_00001_.webp"
        assert (await files.put(b"b")).name == "cat_00002_.png"
        # Names that only look numbered, and a small number with many digits.
        for name in ("cat_9_of_9.png", "cat_99999.png", "cat_x_00050_.png", "cat_000000001_.png"):
            await files.named(name)
        assert (await files.put(b"c")).name == "cat_00003_.png"
        for name in ("cat_99999_.png", "cat_100000_.png"):
            await files.named(name)
        assert (await files.put(b"d")).name == "cat_100001_.png"


async def test_files_of_another_key_keep_their_numbers(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        mine, other = NumberedFiles(pipeline, "key_mine"), NumberedFiles(pipeline, "key_other")
        first, second = await mine.put(b"mine"), await other.put(b"other")
        await pipeline.database.write(delete_media(mine.tenant, first))
        third = await mine.put(b"mine again")
        assert third.name == "cat_00003_.png"
        assert await mine.read(third) == b"mine again"
        with pytest.raises(errors.Conflict):
            await mine.named(second.name)
        assert await other.read(second) == b"other"


async def test_concurrent_files_have_different_names(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        files = NumberedFiles(pipeline)
        names = await asyncio.gather(*(files.put(str(number).encode()) for number in range(20)))
        assert {name.name for name in names} == {f"cat_{number:05}_.png" for number in range(1, 21)}
        found = {await files.read(name) for name in names}
        assert found == {str(number).encode() for number in range(20)}


async def test_upgrade_numbers_the_files_of_before(either: Path) -> None:
    names = (
        "cat_00001_.png",
        "cat_100000_.webp",
        "a_00002_.b_00003_.png",
        "\U0001f98a_00012_.tar.gz",
        "cat_00004.png",
        "cat_00005_",
        "_00006_.png",
        "cat_1234567890_.png",
    )
    async with running_pipeline(either, Options(start=False)) as pipeline:
        for name in names:
            await NumberedFiles(pipeline).named(name)
    before = await _numbers(either)
    assert before["cat_00001_.png"] == ("cat", 1)
    assert before["a_00002_.b_00003_.png"] == ("a_00002_.b", 3)
    assert [name for name in names if before[name] == (None, None)] == list(names[3:])
    await _migrate(either, 94)
    await _migrate(either, None)
    assert await _numbers(either) == before
    async with running_pipeline(either, Options(start=False)) as pipeline:
        assert (await NumberedFiles(pipeline).put(b"next")).name == "cat_100001_.png"


_NUMBERS = "SELECT name, stem, number FROM graph_file"


async def _numbers(folder: Path) -> dict[str, tuple[str | None, int | None]]:
    if not (url := backends.database_url(folder)):
        with contextlib.closing(sqlite3.connect(folder / databases.FILE)) as connection:
            return {name: (stem, number) for name, stem, number in connection.execute(_NUMBERS)}
    served = await connections.connect(url)
    try:
        return {row["name"]: (row["stem"], row["number"]) for row in await served.fetch(_NUMBERS)}
    finally:
        await connections.close(served)


async def _migrate(folder: Path, number: int | None) -> None:
    if not (url := backends.database_url(folder)):
        connection = sqlite3.connect(folder / databases.FILE, isolation_level=None)
        sqlite.migrate(connection, number)
        connection.close()
        return
    served = await connections.connect(url)
    try:
        await connections.migrate(served, number)
    finally:
        await connections.close(served)
