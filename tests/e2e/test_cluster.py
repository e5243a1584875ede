"""A cluster whose processes are killed at random under load: nothing is lost or charged twice."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from tests.e2e.cluster import Work, cluster, wrongs
from tests.e2e.ray_cluster import QUIET, RayCluster, running_cluster
from tests.fakes.chat_servers import model_server
from tests.harness import postgres, s3

LACKING = postgres.LACKING or s3.LACKING
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.postgres,
    pytest.mark.s3,
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "all is there"),
    pytest.mark.timeout(300),
]
NO_RAY = importlib.util.find_spec("ray") is None
ON_RAY = [pytest.mark.ray, pytest.mark.skipif(NO_RAY, reason="needs the extra `ray`")]
RUNS, CALLS, PAGES = 15, 12, 12
# The seeds make the faults repeatable.
SEEDS = {"processes": 6, "ray": 1}


@pytest.mark.parametrize("workers", ["processes", pytest.param("ray", marks=ON_RAY)])
async def test_random_kills_lose_nothing_and_charge_once(tmp_path: Path, workers: str) -> None:
    chance = random.Random(SEEDS[workers])  # noqa: S311 - misfortunes, not secrets
    async with AsyncExitStack() as stack:
        acme = await stack.enter_async_context(model_server())
        settings: dict[str, str] = {}
        blows: list[Callable[[], Awaitable[None]]] = []
        if workers == "ray":
            kinds = [kind.id for kind in app_catalog.templates().hardware.kinds()]
            rays = await stack.enter_async_context(running_cluster(tmp_path, 4, kinds))
            settings = {"SIXFOLD_DRIVER": "ray", "SIXFOLD_RAY_ADDRESS": rays.address, **QUIET}
            blows.append(lambda: _crash_machine(rays))
        servers = await stack.enter_async_context(cluster(tmp_path, acme.url, settings))
        blows += [
            lambda: servers.crash_one(servers.servers, chance),
            lambda: servers.crash_one(servers.workers, chance),
            servers.crash_database,
        ]
        chance.shuffle(blows)
        work, over = Work(servers), asyncio.Event()
        session = asyncio.create_task(work.live(over))
        people = asyncio.gather(
            *(work.job(number) for number in range(RUNS)),
            *(work.chat(number) for number in range(CALLS)),
            *(work.page(number) for number in range(PAGES)),
        )
        for number, blow in enumerate(blows):
            await work.until(lambda number=number: work.request_count > 8 * number or people.done())
            await blow()
        await people
        # On a busy machine, the session begins late.
        await work.until(lambda: bool(work.pose_numbers) or session.done())
        over.set()
        await session
        assert len({response["prediction_id"] for response in work.predictions}) == RUNS
        assert (len(work.chats), len(work.pages)) == (CALLS, PAGES)
        assert len(work.pose_numbers) > 0
        assert await wrongs(work) == []


async def _crash_machine(rays: RayCluster) -> None:
    await rays.add()
    await rays.crash()
