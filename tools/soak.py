"""Let a small cluster work for a while, kill parts of it at random, and tell what it weighs and has lost.

    make soak                                    two minutes, blows every ten seconds
    make soak ARGS="--seconds 3600 --seed 7"     an hour, other misfortunes
    make soak ARGS="--quiet"                     no blows: what merely grows
    make soak ARGS="--seconds 1500 --rest 5"     with a rest after each round
    make soak ARGS="--ray"                       workers on a Ray cluster of three machines, which die, too

The first server and the first worker are never killed: their memory and descriptors have a history.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg

from sixfold.app import catalog as app_catalog
from tests.e2e.cluster import Cluster, Work, cluster, wrongs
from tests.e2e.ray_cluster import QUIET, Rays, raylets
from tests.fakes.chat_servers import model_server

_SAMPLE_SECONDS = 2.0
_SETTLED = 0.3  # of the time: what a start takes is no slope
_MB = 1024  # of KiB


@dataclass
class History:
    """One process over time: seconds, MB and descriptors."""

    name: str
    pid: int
    samples: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])

    def look(self, moment: float) -> None:
        """One sample more."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / _MB
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        self.samples.append((moment, memory, descriptors))

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        settled = self.samples[int(len(self.samples) * _SETTLED) :]
        slope = 0.0
        if len(settled) > 2:
            result = statistics.linear_regression([s[0] for s in settled], [s[1] for s in settled])
            slope = result.slope * 3600
        first, last = settled[0], settled[-1]
        return (
            self.name,
            f"{first[1]:.0f} → {last[1]:.0f} MB",
            f"{slope:+.0f} MB/h",
            f"{first[2]} → {last[2]}",
        )


@dataclass
class Soak:
    """The cluster, those who work on it, and what befalls it."""

    whole: Cluster
    rays: Rays | None
    chance: random.Random
    rounds: list[Work] = field(default_factory=list[Work])
    blows: dict[str, int] = field(default_factory=dict[str, int])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def people(self, ends: float, rest: float) -> None:
        """Rounds of work, one after another, each with a rest after it, until the time is over."""
        while time.monotonic() < ends:
            number = len(self.rounds)
            work = Work(self.whole, f"round-{number}")
            self.rounds.append(work)
            over = asyncio.Event()
            following = asyncio.create_task(work.live(over))
            await asyncio.gather(
                *(work.job(each) for each in range(12)),
                *(work.chat(each) for each in range(12)),
                *(work.page(each) for each in range(12)),
            )
            over.set()
            await following
            await asyncio.sleep(min(rest, max(0.0, ends - time.monotonic())))

    async def misfortune(self, every: float) -> None:
        """One blow after another."""
        blows: dict[str, Callable[[], Awaitable[None]]] = {
            "server": lambda: self.whole.crash_one(self.whole.servers[1:], self.chance),
            "worker": lambda: self.whole.crash_one(self.whole.workers[1:], self.chance),
            "database": self.whole.crash_database,
        }
        rays = self.rays
        if rays is not None:
            blows["machine"] = lambda: _crash_machine(rays)
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self.over.wait()
            name = self.chance.choice(sorted(blows))
            await blows[name]()
            self.blows[name] = self.blows.get(name, 0) + 1

    async def faults(self) -> list[str]:
        """What is wrong with all that was done."""
        everything = Work(self.whole, "all")
        for work in self.rounds:
            everything.predictions += work.predictions
            everything.chats += work.chats
            everything.pages += work.pages
        paid = sum((Decimal(work.session.get("cost", "0")) for work in self.rounds), Decimal())
        everything.opened -= paid
        result = await wrongs(everything)
        for work in self.rounds:
            gaps = sum(later != one + 1 for one, later in zip(work.heard, work.heard[1:], strict=False))
            result += [f"{work.run}: {gaps} gaps in its session"] * bool(gaps)
        return result


async def _crash_machine(rays: Rays) -> None:
    await rays.add()
    await rays.crash()


async def _database_bytes(url: str) -> int:
    connection: Any = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


@asynccontextmanager
async def _machines(folder: Path, wanted: bool) -> AsyncIterator[Rays | None]:
    if not wanted:
        yield None
        return
    kinds = [kind.id for kind in app_catalog.templates().hardware.kinds()]
    async with raylets(folder, 4, kinds) as rays:
        yield rays


async def _watch(histories: list[History], began: float) -> None:
    while True:
        for history in histories:
            history.look(time.monotonic() - began)
        await asyncio.sleep(_SAMPLE_SECONDS)


async def soak(folder: Path, given: argparse.Namespace) -> bool:
    """All of it; True where nothing was wrong."""
    async with model_server() as acme, _machines(folder, given.ray) as rays:
        on_ray = {"SIXFOLD_DRIVER": "ray", "SIXFOLD_RAY_ADDRESS": rays.address, **QUIET} if rays else {}
        async with cluster(folder, acme.url, on_ray) as whole:
            run = Soak(whole, rays, random.Random(given.seed))  # noqa: S311 - misfortunes, not secrets
            histories = [
                History("server", whole.servers[0].process.pid),
                History("worker", whole.workers[0].process.pid),
            ]
            before, began = await _database_bytes(whole.database.url), time.monotonic()
            watching = asyncio.create_task(_watch(histories, began))
            blows = None if given.quiet else asyncio.create_task(run.misfortune(given.every))
            await run.people(began + given.seconds, given.rest)
            seconds = time.monotonic() - began
            watching.cancel()
            run.over.set()
            if blows is not None:
                await blows
            grown = await _database_bytes(whole.database.url) - before
            result = await run.faults()
    _tell(run, histories, seconds, grown, result)
    return not result


def _tell(run: Soak, histories: list[History], seconds: float, grown: int, found: list[str]) -> None:
    runs = sum(len(work.predictions) for work in run.rounds)
    calls = sum(len(work.chats) for work in run.rounds)
    pages = sum(len(work.pages) for work in run.rounds)
    poses = sum(len(work.heard) for work in run.rounds)
    blows = ", ".join(f"{count} × {name}" for name, count in sorted(run.blows.items())) or "none"
    sessions = f"{len(run.rounds)} sessions of {poses} poses"
    print(f"{seconds:.0f} s: {runs} runs, {calls} calls, {pages} pages, {sessions}")
    print(f"blows: {blows}\n")
    rows = [("", "memory", "slope", "descriptors"), *(history.row() for history in histories)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    done = max(1, runs + calls + pages)
    print(f"\ndatabase: {grown / 1e6:+.1f} MB, {grown / done / 1024:.1f} KiB for each run, call or page")
    print("\n".join(["wrong:", *found]) if found else "nothing was lost, nothing was paid twice")


def main() -> int:
    """Read what is wanted, and do it."""
    parser = argparse.ArgumentParser(
        prog="soak", description="Let a small cluster work and suffer for a while."
    )
    parser.add_argument("--seconds", type=float, default=120, help="how long (default: 120)")
    parser.add_argument("--every", type=float, default=10, help="seconds between blows (default: 10)")
    parser.add_argument("--rest", type=float, default=0, help="seconds between rounds of work (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="which misfortunes (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="no misfortunes")
    parser.add_argument("--ray", action="store_true", help="workers on a Ray cluster")
    inputs = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, contextlib.suppress(KeyboardInterrupt):
        return 0 if asyncio.run(soak(Path(folder), inputs)) else 1
    return 130


if __name__ == "__main__":
    sys.exit(main())
