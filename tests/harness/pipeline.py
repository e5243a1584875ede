"""Prediction pipeline for tests: a real database, real files, a real driver and tiny engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog import models as catalog
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.metering import FlatRates, HardwareRate
from sixfold.core.clock import DAY_US, Clock
from sixfold.core.database import Database, Transaction, one
from sixfold.core.failpoints import Failpoints
from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import BlobStore, MediaLimits
from sixfold.core.predictions import requests as prediction_requests
from sixfold.core.predictions.events import EventBus
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.service import PredictionService
from sixfold.core.provenance.signing import Signer
from sixfold.core.workers import policy as worker_policy
from sixfold.core.workers.memory_budget import MemoryBudget
from sixfold.core.workers.peer_events import PeerEventListener, SharedDatabase
from sixfold.core.workers.ports import Driver
from sixfold.core.workers.runs import RunFinisher
from sixfold.core.workers.scheduler import Scheduler
from sixfold.drivers.inline import InlineDriver
from sixfold.errors import FetchRefused
from tests.harness import backends, databases

_ENGINES = {"echo": "EchoEngine", "slow": "SlowEngine", "crash": "CrashEngine"}
PRICE = 7_000
HARDWARE = "gpu-24gb-a"
# Hardware rate, for models that are charged by time.
HOUR = 350_000


def models(
    engines: Mapping[str, str] = _ENGINES, facts: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a catalog document with one model per test engine.

    `facts` overrides fields of an engine's row.
    """
    return {
        "engines": {
            name: {
                "factory": f"tests.fakes.engines:{attribute}",
                "version": "1",
                "quality": "full",
                "kind": "embedded",
                "concurrency": 0,
                "idle_seconds": 60,
                "unlock": "",
                **(facts or {}).get(name, {}),
            }
            for name, attribute in engines.items()
        },
        "models": {
            name: {
                "title": name,
                "description": name,
                "output_kind": "json",
                "price": "unit",
                "engines": [name],
                "inputs": {
                    "prompt": {"type": "string", "max_chars": 100},
                    "seed": {"type": "integer", "min": 0, "max": 2**31 - 1},
                },
            }
            for name in engines
        },
    }


class NoFetcher:
    """Fetcher that rejects every URL."""

    def check_url(self, url: str) -> None:
        raise FetchRefused

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        raise FetchRefused


@dataclass
class PipelineFixture:
    """The parts of a running pipeline, and the account that pays."""

    database: Database
    blobs: BlobStore
    media: MediaService
    service: PredictionService
    scheduler: Scheduler
    driver: Driver
    payer: Account
    peer_events: PeerEventListener | None

    async def start(self) -> None:
        """Start the scheduler and the peer events."""
        if self.peer_events is not None:
            await self.peer_events.start()
        await self.scheduler.start()

    def request(self, model: str = "echo", **changes: Any) -> PredictionRequest:
        """Return a request of the paying account; `extras` are passed to the engine unchanged."""
        request = PredictionRequest(self.payer.owner, model, {"prompt": "x", "seed": 1}, "test", "req_test")
        return replace(request, **changes)

    async def run(self, model: str = "echo", **changes: Any) -> Prediction:
        """Submit a request and wait for its prediction to end."""
        prediction = await self.service.submit(self.request(model, **changes))
        return await self.service.wait(prediction, 60)

    async def account(self) -> Account:
        return await self.database.read(accounts.by_id(self.payer.id))

    async def faults(self) -> tuple[str, ...]:
        """Return the faults that `ledger verify` reports."""
        return await self.database.read(ledger_queries.verify())

    async def count(self, query: str, **params: Any) -> int:
        """Return the number of rows of a named query."""
        return await self.database.read(_count(query, params))


def _count(query: str, params: dict[str, Any]) -> Transaction[int]:
    row = yield from one(query, **params)
    return int(next(iter(row))) if row is not None else 0


@dataclass(frozen=True)
class Options:
    """Options of `running_pipeline`."""

    credit: int = 1_000_000
    slots: int = 2
    queue_limit: int = 1000
    free_queue_limit: int = 0
    free_bytes: int = 0
    max_attempts: int = 3
    lease_seconds: float = 30
    run_limit_seconds: float = 30
    queue_ttl_seconds: float = 3600
    idle_seconds: float | None = None
    idle_of: Callable[[str], float | None] = lambda _model: None
    failpoints: str = ""
    clock: Clock | None = None
    driver: Driver | None = None
    models: Mapping[str, Any] | None = None
    start: bool = True
    placed: bool = False
    machine: MemoryBudget = field(default_factory=MemoryBudget)


@asynccontextmanager
async def running_pipeline(folder: Path, options: Options | None = None) -> AsyncIterator[PipelineFixture]:
    """Run a pipeline on `folder`; a second block with the same folder is a restart."""
    chosen = options or Options()
    database = databases.open_database(folder, chosen.clock)
    pipeline = await _build(folder, database, chosen)
    if chosen.start:
        await pipeline.start()
    try:
        yield pipeline
    finally:
        pipeline.service.drain()
        await pipeline.scheduler.stop()
        if pipeline.peer_events is not None:
            await pipeline.peer_events.stop()
        await database.close()


async def _build(folder: Path, database: Database, chosen: Options) -> PipelineFixture:
    failpoints = Failpoints(chosen.failpoints)
    blobs = backends.open_blobs(folder)
    limits = MediaLimits(64 * 2**20, 40_000_000, 5, 10 * 2**30, 30 * DAY_US)
    media = MediaService(database, blobs, NoFetcher(), lambda _path: ("image/png", 1, 1), limits)
    bus = EventBus()
    prices = PriceTable({"unit": {"per": "request", "usd": "0.007"}})
    rates = FlatRates(HardwareRate(HARDWARE, HOUR))
    known = catalog.build(chosen.models or models(), prices, {}, rates)
    terms = prediction_requests.AdmissionPolicy(
        chosen.queue_limit,
        SelectionPolicy(previews=True),
        chosen.run_limit_seconds,
        chosen.free_queue_limit,
        free_bytes=chosen.free_bytes,
    )
    service = PredictionService(database, known, media, bus, terms, failpoints)
    driver = chosen.driver or InlineDriver(failpoints=failpoints.engines)
    finisher = RunFinisher(database, media, Signer(bytes(32)), chosen.max_attempts, failpoints)
    policy = worker_policy.WorkerPolicy(
        slots=chosen.slots,
        run_limit_seconds=chosen.run_limit_seconds,
        lease_seconds=chosen.lease_seconds,
        max_attempts=chosen.max_attempts,
        queue_ttl_seconds=chosen.queue_ttl_seconds,
        idle_seconds=chosen.idle_seconds,
        idle_of=chosen.idle_of,
        memory_bytes=2**30,
        scratch=folder / "scratch",
        placed=chosen.placed,
        memory=chosen.machine,
    )
    scheduler = Scheduler(database, driver, known.engines(), finisher, bus, policy)
    service.custom_models.admit = scheduler.admit
    service.on_accepted, service.on_cancel = scheduler.accepted, scheduler.cancel
    payer = await database.write(_payer(chosen.credit))
    peer_events = (
        PeerEventListener(database, bus, scheduler) if isinstance(database, SharedDatabase) else None
    )
    return PipelineFixture(database, blobs, media, service, scheduler, driver, payer, peer_events)


def _payer(credit: int) -> Transaction[Account]:
    row = yield from one("account_by_email", email="payer@example.com")
    if row is not None:
        return Account.of(row)
    return (yield from accounts.create("payer@example.com", credit=credit))
