"""Cached node outputs count against a separate quota, exactly and on both databases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, many, one
from sixfold.core.media.media import MediaService
from sixfold.core.workflows.ports import CachedOutput
from sixfold.core.workflows.storage import NodeOutputCache
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

QUOTA = 100_000


def delete(names: list[str]) -> Transaction[None]:
    for name in names:
        yield Query("media_delete", {"name": name})


async def cached_bytes(pipeline: PipelineFixture) -> int:
    row = await pipeline.database.read(one("storage_usage", account_id=pipeline.payer.id))
    return 0 if row is None else int(row["cached_bytes"])


async def test_cached_outputs_stay_within_the_quota(either: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MediaService, "quota_bytes", QUOTA)
    async with running_pipeline(either, Options(start=False)) as pipeline:
        tenant = Tenant(pipeline.payer.id)

        def cache() -> NodeOutputCache:
            # A new cache has nothing in memory.
            return NodeOutputCache(pipeline.database, pipeline.media, tenant)

        large, small = CachedOutput(os.urandom(40_000), {}), CachedOutput(os.urandom(1_000), {})
        await cache().keep({"a": large, "b": small})
        used = await cached_bytes(pipeline)
        assert 41_000 < used < 43_000
        await cache().keep({"b": small})
        assert await cached_bytes(pipeline) == used
        await cache().keep({"c": large, "d": small})
        await cache().keep({"e": large})
        assert set(await cache().find(["a", "b", "c", "d", "e"])) == {"a", "b", "c", "d"}
        assert await cached_bytes(pipeline) == 2 * used
        rows = await pipeline.database.read(
            many("graph_outcomes", account_id=pipeline.payer.id, keys='["a","c"]')
        )
        # The file of a cleared output still takes its bytes until the sweep.
        await cache().clear()
        assert await cached_bytes(pipeline) == 80_000
        await cache().keep({"e": large})
        assert not await cache().find(["e"])
        await pipeline.database.write(delete([row["media"] for row in rows]))
        assert await cached_bytes(pipeline) == 0
