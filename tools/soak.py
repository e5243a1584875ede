"""Run work on a small cluster, kill its parts at random, and report memory use and lost data.

    make soak                                    two minutes, a crash every ten seconds
    make soak ARGS="--seconds 3600 --seed 7"     an hour, other crashes
    make soak ARGS="--quiet"                     no crashes: growth alone
    make soak ARGS="--seconds 1500 --rest 5"     with a pause after each round
    make soak ARGS="--ray"                       workers on a Ray cluster of three machines, with crashes
    make soak ARGS="--servers 4 --network --clock"
                                                 four servers; the network and the clocks fail as well

The first server and the first worker are never killed, since their memory and descriptors are sampled.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg

from sixfold.app import catalog as app_catalog
from tests.e2e.cluster import Cluster, Work, cluster, wrongs
from tests.e2e.ray_cluster import QUIET, RayCluster, running_cluster
from tests.fakes.chat_servers import model_server

_SAMPLE_SECONDS = 2.0
_SETTLED = 0.3  # share of the first samples that the slope omits
_WINDOW = 1 / 6  # share of the time whose rate is compared at the start and at the end
_OUTAGE_SECONDS = 3.0
_LOOP = 1_000_000  # iterations of the loop that measures the speed of the machine
_CLOCK_OFFSETS = (-3600, -60, 60, 3600)
_MB = 1024  # KiB per MB


@dataclass
class History:
    """Samples of one process: time in seconds, memory in MB, and number of descriptors."""

    name: str
    pid: int
    samples: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])

    def sample(self, moment: float) -> None:
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / _MB
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        self.samples.append((moment, memory, descriptors))

    def row(self) -> tuple[str, ...]:
        """Return the cells of the process's row in the table."""
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
class Round:
    """Duration, number of requests, and speed of the machine: seconds for an empty loop, before the round."""

    seconds: float
    requests: int
    loop_seconds: float


@dataclass
class SoakTest:
    """A cluster with its rounds of work and its crashes."""

    cluster: Cluster
    rays: RayCluster | None
    chance: random.Random
    options: argparse.Namespace
    rates: list[Round] = field(default_factory=list[Round])
    rounds: list[Work] = field(default_factory=list[Work])
    crashes: dict[str, int] = field(default_factory=dict[str, int])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_rounds(self, ends: float) -> None:
        """Run rounds of work, each followed by a pause of `--rest` seconds, until `ends`."""
        while time.monotonic() < ends:
            loop_seconds, began = _loop_seconds(), time.monotonic()
            number = len(self.rounds)
            work = Work(self.cluster, f"round-{number}")
            self.rounds.append(work)
            over = asyncio.Event()
            session = asyncio.create_task(work.live(over))
            await asyncio.gather(
                *(work.job(each) for each in range(12)),
                *(work.chat(each) for each in range(12)),
                *(work.page(each) for each in range(12)),
            )
            over.set()
            await session
            self.rates.append(Round(time.monotonic() - began, work.request_count, loop_seconds))
            await asyncio.sleep(min(self.options.rest, max(0.0, ends - time.monotonic())))

    async def crash_parts(self) -> None:
        """Cause a random fault every `--every` seconds until the work is over."""
        crashes: dict[str, Callable[[], Awaitable[None]]] = {
            "server": lambda: self.cluster.crash_one(self.cluster.servers[1:], self.chance),
            "worker": lambda: self.cluster.crash_one(self.cluster.workers[1:], self.chance),
            "database": self.cluster.crash_database,
        }
        rays = self.rays
        if rays is not None:
            crashes["machine"] = lambda: _crash_machine(rays)
        if self.options.network:
            crashes["network"] = self._disturb_network
        if self.options.clock:
            crashes["clock"] = self._set_clock
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.every):
                    await self.over.wait()
            name = self.chance.choice(sorted(crashes))
            await crashes[name]()
            self.crashes[name] = self.crashes.get(name, 0) + 1

    async def _disturb_network(self) -> None:
        network = self.chance.choice(self.cluster.networks)
        await self.chance.choice((network.stall, network.refuse))(_OUTAGE_SECONDS)

    async def _set_clock(self) -> None:
        """Set the clock of one server, which reads it again when it is killed and restarted."""
        server = self.chance.choice(self.cluster.servers[1:])
        self.cluster.set_clock(server, self.chance.choice(_CLOCK_OFFSETS))
        if self.chance.random() < 0.5:
            await server.kill()
            await server.restart()

    def rate(self, rounds: Iterable[Round]) -> tuple[float, float]:
        """Return the requests per minute, and per 1,000 empty loops, of the rounds in a window of the time.

        The second rate is independent of the speed of the machine if the rounds use all of its processors.
        """
        seconds = loops = requests = 0.0
        for each in rounds:
            if seconds >= self.options.seconds * _WINDOW:
                break
            seconds += each.seconds
            loops += each.seconds / each.loop_seconds
            requests += each.requests
        return (requests / seconds * 60, requests / loops * 1000) if seconds else (0.0, 0.0)

    async def faults(self) -> list[str]:
        """Return the inconsistencies in the results of all rounds."""
        everything = Work(self.cluster, "all")
        for work in self.rounds:
            everything.predictions += work.predictions
            everything.chats += work.chats
            everything.pages += work.pages
        paid = sum((Decimal(work.session.get("cost", "0")) for work in self.rounds), Decimal())
        everything.initial_balance -= paid
        result = await wrongs(everything)
        for work in self.rounds:
            gaps = sum(
                later != one + 1 for one, later in zip(work.pose_numbers, work.pose_numbers[1:], strict=False)
            )
            result += [f"{work.run}: {gaps} gaps in its session"] * bool(gaps)
        return result


def _loop_seconds() -> float:
    """Return the shortest of three durations, to omit interruptions by other processes."""
    durations: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(_LOOP):
            pass
        durations.append(time.perf_counter() - began)
    return min(durations)


async def _crash_machine(rays: RayCluster) -> None:
    await rays.add()
    await rays.crash()


async def _database_bytes(url: str) -> int:
    connection: Any = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


@asynccontextmanager
async def _machines(folder: Path, enabled: bool) -> AsyncIterator[RayCluster | None]:
    if not enabled:
        yield None
        return
    kinds = [kind.id for kind in app_catalog.templates().hardware.kinds()]
    async with running_cluster(folder, 4, kinds) as rays:
        yield rays


async def _sample_all(histories: list[History], began: float) -> None:
    while True:
        for history in histories:
            history.sample(time.monotonic() - began)
        await asyncio.sleep(_SAMPLE_SECONDS)


async def soak(folder: Path, options: argparse.Namespace) -> bool:
    """Run the test and print the report; return whether all results are consistent."""
    async with model_server() as acme, _machines(folder, options.ray) as rays:
        on_ray = {"SIXFOLD_DRIVER": "ray", "SIXFOLD_RAY_ADDRESS": rays.address, **QUIET} if rays else {}
        async with cluster(folder, acme.url, on_ray, options.servers) as target:
            chance = random.Random(options.seed)  # noqa: S311 - crashes, not secrets
            run = SoakTest(target, rays, chance, options)
            histories = [
                History("server", target.servers[0].process.pid),
                History("worker", target.workers[0].process.pid),
            ]
            before, began = await _database_bytes(target.database.url), time.monotonic()
            sampler = asyncio.create_task(_sample_all(histories, began))
            crashes = None if options.quiet else asyncio.create_task(run.crash_parts())
            await run.run_rounds(began + options.seconds)
            seconds = time.monotonic() - began
            sampler.cancel()
            run.over.set()
            if crashes is not None:
                await crashes
            growth = await _database_bytes(target.database.url) - before
            result = await run.faults()
    _print_report(run, histories, seconds, growth, result)
    return not result


def _print_report(
    run: SoakTest, histories: list[History], seconds: float, growth: int, errors: list[str]
) -> None:
    runs = sum(len(work.predictions) for work in run.rounds)
    calls = sum(len(work.chats) for work in run.rounds)
    pages = sum(len(work.pages) for work in run.rounds)
    poses = sum(len(work.pose_numbers) for work in run.rounds)
    crashes = ", ".join(f"{count} × {name}" for name, count in sorted(run.crashes.items())) or "none"
    sessions = f"{len(run.rounds)} sessions of {poses} poses"
    print(f"{seconds:.0f} s: {runs} runs, {calls} calls, {pages} pages, {sessions}")
    print(f"faults: {crashes}")
    first, last = run.rate(run.rates), run.rate(reversed(run.rates))
    print(f"requests per minute: {first[0]:.0f} in the first {_WINDOW:.0%} of the time, then {last[0]:.0f}")
    print(
        f"requests in the time of 1,000 empty loops: {first[1]:.2f} and {last[1]:.2f}, so the last rate is "
        f"{last[1] / first[1]:.2f} of the first on a machine of constant speed\n"
        if first[1]
        else ""
    )
    rows = [("", "memory", "slope", "descriptors"), *(history.row() for history in histories)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    done = max(1, runs + calls + pages)
    print(f"\ndatabase: {growth / 1e6:+.1f} MB, {growth / done / 1024:.1f} KiB for each run, call or page")
    print("\n".join(["errors:", *errors]) if errors else "no lost data, no double charge")


def main() -> int:
    """Parse the command line and run the test; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="soak", description="Run work on a small cluster while its parts crash."
    )
    parser.add_argument("--seconds", type=float, default=120, help="duration in seconds (default: 120)")
    parser.add_argument("--every", type=float, default=10, help="seconds between two crashes (default: 10)")
    parser.add_argument("--rest", type=float, default=0, help="seconds between rounds of work (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random crashes (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="no crashes")
    parser.add_argument("--ray", action="store_true", help="workers on a Ray cluster")
    parser.add_argument("--servers", type=int, default=2, help="number of servers (default: 2)")
    parser.add_argument("--network", action="store_true", help="interrupt connections to the stores")
    parser.add_argument("--clock", action="store_true", help="set the wall clocks of servers")
    inputs = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, contextlib.suppress(KeyboardInterrupt):
        return 0 if asyncio.run(soak(Path(folder), inputs)) else 1
    return 130


if __name__ == "__main__":
    sys.exit(main())
