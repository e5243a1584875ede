"""Compare the CPU time of a gateway call with that of another version of this program.

SIXFOLD_BENCH_OTHER=CHECKOUT .venv/bin/python -m bench versions

The servers of both versions run with the packages of this environment, each on its own database. They are
measured alternately, because the speed of a machine changes by more than a version does.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import uvloop

from bench import servers
from bench.reporting import Row, calibration

TITLE = "A call compared with another version"
PLACE = "SIXFOLD_BENCH_OTHER"
THIS = Path(__file__).parents[1]


async def _create(address: str, name: str) -> None:
    """Create a database without tables; those of the tests have the schema of this version."""
    connection = await asyncpg.connect(address)
    await connection.execute(f"CREATE DATABASE {name}_version")
    await connection.close()


def _setups(folder: Path, other: Path, stack: ExitStack) -> list[servers.Setup]:
    models = servers.start_models(stack)
    databases, _ = servers.start_postgres(folder / "postgres")
    results: list[servers.Setup] = []
    for name, checkout in (("other", other), ("this", THIS)):
        # It precedes the installed package.
        os.environ["PYTHONPATH"] = str(checkout / "src")
        uvloop.run(_create(databases.address(), name))
        for database, url in (("SQLite", ""), ("PostgreSQL", databases.address(f"{name}_version"))):
            place = folder / f"{name}-{database}"
            ports, pids, keys = servers.start(place, models, 1, url, stack)
            results.append(servers.Setup(f"{database}, {name} version", ports, pids, keys[:1]))
    return results


def rows() -> list[Row]:
    checkout = os.environ.get(PLACE)
    if not checkout:
        return [Row("skipped", 0, "", note=f"{PLACE} does not name a checkout of another version")]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, ExitStack() as stack:
        setups = _setups(Path(name), Path(checkout).resolve(), stack)
        uvloop.run(servers.by_turns(setups))
    result = [
        Row(f"{setup.name}: CPU of the server per call", setup.median("server") * 1e6, "µs")
        for setup in setups
    ]
    others, own = setups[:2], setups[2:]
    for before, after in zip(others, own, strict=True):
        pairs = zip(before.rounds, after.rounds, strict=True)
        ratio = statistics.median(own_round.server / other_round.server for other_round, own_round in pairs)
        result.append(Row(f"{after.name}: CPU", ratio, "times", note="of the other version, by round"))
    return calibration() + result
