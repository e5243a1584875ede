"""Sessions of one engine share a worker, and the end of one does not end another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from sixfold.core.sessions import worker_pool
from sixfold.core.sessions.engine import Controls, PackedStepResult, StepAnswer, StepRequest
from sixfold.core.sessions.worker_pool import SessionSlot, SessionWorkerPool
from sixfold.core.workers.ports import RunFailed, WorkerLost, WorkerSpec, WorkerStartFailed
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.process import ProcessDriver

SLOTS = 3


def spec(folder: Path, engine: str = "procedural-motion", factory: str = "") -> WorkerSpec:
    """Return the spec of a worker of the motion engine with a name."""
    return WorkerSpec(engine, factory or "sixfold.engines.live.motion.engine:MotionEngine", 0, folder)


def ask(model: str = "m", state: bytes | None = None, **inputs: object) -> StepRequest:
    return StepRequest(model, {"prompt": "walk", **inputs}, state, Controls(), 20)


@pytest.fixture
async def driver() -> AsyncIterator[InlineDriver]:
    inline_driver = InlineDriver(failpoints={"failing": "fail", "crashing": "crash"})
    yield inline_driver
    await inline_driver.close()


async def acquire_slots(
    pool: SessionWorkerPool, about: WorkerSpec, count: int, lost: int = 0
) -> Sequence[SessionSlot]:
    return await asyncio.gather(*(pool.acquire(about, SLOTS, lost) for _ in range(count)))


async def test_sessions_share_a_worker_and_the_last_stops_it(driver: InlineDriver, tmp_path: Path) -> None:
    pool = SessionWorkerPool(driver)
    slots = await acquire_slots(pool, spec(tmp_path), 4)
    assert len({slot.shared_worker for slot in slots}) == len(driver.workers) == 2
    (other,) = await acquire_slots(pool, spec(tmp_path, "another"), 1)
    assert other.shared_worker not in {slot.shared_worker for slot in slots}
    for slot in (*slots, other):
        assert slot.shared_worker.worker is not None
        assert slot.shared_worker.worker.alive
        await slot.release()
        await slot.release()
    assert not driver.workers
    (second_slot,) = await acquire_slots(pool, spec(tmp_path), 1)
    assert isinstance(await second_slot.step(ask()), PackedStepResult)


async def test_released_slot_is_used_by_the_next_session(driver: InlineDriver, tmp_path: Path) -> None:
    pool = SessionWorkerPool(driver)
    slots = await acquire_slots(pool, spec(tmp_path), SLOTS)
    await slots[0].release()
    (late,) = await acquire_slots(pool, spec(tmp_path), 1)
    assert late.shared_worker is slots[1].shared_worker
    assert len(driver.workers) == 1


async def test_concurrent_requests_get_own_answers_and_failures(driver: InlineDriver, tmp_path: Path) -> None:
    slots = await acquire_slots(SessionWorkerPool(driver), spec(tmp_path), SLOTS)
    good, worse, best = await asyncio.gather(
        slots[0].step(ask()), slots[1].step(ask(state=b"\x80")), slots[2].step(ask(prompt="run"))
    )
    assert isinstance(good, PackedStepResult)
    assert isinstance(best, PackedStepResult)
    assert set(msgspec.json.decode(good.poses[0])) == {"root", "joints", "contacts"}
    assert msgspec.msgpack.decode(best.state)["prompt"] == "run"
    assert isinstance(worse, RunFailed)
    assert not worse.public
    assert isinstance(await slots[0].step(ask(state=good.state)), PackedStepResult)


async def test_output_is_independent_of_concurrent_sessions(driver: InlineDriver, tmp_path: Path) -> None:
    slots = await acquire_slots(SessionWorkerPool(driver), spec(tmp_path), SLOTS)
    alone = await slots[0].step(ask())
    together = await asyncio.gather(*(slot.step(ask()) for slot in slots))
    assert list(together) == [alone] * SLOTS


async def test_lost_worker_ends_its_sessions_and_is_shared_by_fewer(tmp_path: Path) -> None:
    driver = ProcessDriver(failpoints={"crashing": "crash"}, preload=())
    pool = SessionWorkerPool(driver)
    try:
        slots = await acquire_slots(pool, spec(tmp_path), SLOTS)
        answers = await asyncio.gather(*(slot.step(ask("crashing")) for slot in slots))
        assert all(isinstance(answer, WorkerLost) for answer in answers)
        for slot in slots:
            await slot.release()
        alone = await acquire_slots(pool, spec(tmp_path), SLOTS, lost=1)
        assert len({slot.shared_worker for slot in alone}) == SLOTS
        (fresh,) = await acquire_slots(pool, spec(tmp_path), 1)
        assert fresh.shared_worker not in {slot.shared_worker for slot in alone}
        assert isinstance(await fresh.step(ask()), PackedStepResult)
    finally:
        await driver.close()


class SilentWorker:
    """Worker that never responds."""

    def __init__(self) -> None:
        self.alive = True

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        return await asyncio.get_running_loop().create_future()

    async def kill(self) -> None:
        self.alive = False


async def test_unresponsive_worker_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "ANSWER_SECONDS", 0.01)
    mute = SilentWorker()

    async def hire() -> SilentWorker:
        return mute

    shared_worker = worker_pool.SharedWorker(worker_pool.SessionKind("e", "h", 2), hire())
    slot = await shared_worker.join()
    assert shared_worker.has_capacity
    assert await slot.step(ask()) == WorkerLost("the model did not respond")
    assert (mute.alive, shared_worker.has_capacity) == (False, False)


async def test_waiting_for_a_failed_start_or_leaving_early(tmp_path: Path) -> None:
    driver = InlineDriver()
    pool = SessionWorkerPool(driver)
    broken = spec(tmp_path, factory="sixfold.engines.live.motion.engine:Nothing")
    both = await asyncio.gather(*(pool.acquire(broken, SLOTS, 0) for _ in range(2)), return_exceptions=True)
    assert all(isinstance(each, WorkerStartFailed) for each in both)
    leaving = asyncio.create_task(pool.acquire(spec(tmp_path), SLOTS, 0))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    (slot,) = await acquire_slots(pool, spec(tmp_path), 1)
    assert isinstance(await slot.step(ask()), PackedStepResult)
    await driver.close()
