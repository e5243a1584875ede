"""The arbiter of a GPU on the real state file: queues, leases, other processes and their deaths."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.gpu import run_clock
from sixfold.core.gpu.arbiter import GpuArbiter
from sixfold.core.gpu.run_clock import RunClock
from sixfold.store.gpu_state import GpuStateFile

CAPACITY = 100


@dataclass
class Holder:
    """A program whose models take `sizes`."""

    name: str
    sizes: dict[str, int]
    private: str = ""
    self_managed: bool = False
    loaded: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    unloaded: list[str] = field(default_factory=list[str])

    def canonical(self, model: str) -> str:
        return model

    async def residents(self) -> Mapping[str, int | None]:
        return dict(self.loaded)

    async def unload(self, model: str) -> None:
        self.loaded.pop(model, None)
        self.unloaded.append(model)

    def expected_bytes(self, model: str) -> int | None:
        return self.sizes.get(model)


@contextlib.asynccontextmanager
async def arbiter(folder: Path, owner: str, turn_seconds: float = 20) -> AsyncIterator[GpuArbiter]:
    file = GpuStateFile(folder, "gpu", owner)
    built = GpuArbiter("gpu", file, turn_seconds)
    await built.set_total(CAPACITY, None)
    watching = asyncio.create_task(built.watch())
    yield built
    watching.cancel()
    await built.aclose()
    file.close()


async def waiting(arbiter: GpuArbiter, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while sum(t.state == "waiting" for t in arbiter.view().tickets) != count:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.005)


async def test_waiting_uses_begin_in_their_order(tmp_path: Path) -> None:
    first, second = Holder("a", {"m": 60}), Holder("b", {"m": 60, "n": 70})
    async with arbiter(tmp_path, "p", turn_seconds=0) as gpu:
        gpu.access(first)
        gpu.access(second)
        lease = await gpu.acquire(first, "m", 10)
        order: list[str] = []

        async def use(holder: Holder, model: str) -> None:
            actual = await gpu.acquire(holder, model, 10)
            order.append(f"{holder.name}{model}")
            holder.loaded[model] = holder.sizes[model]
            actual.release()

        uses = []
        for number, (holder, model) in enumerate(((second, "n"), (first, "m"), (second, "m")), 1):
            uses.append(asyncio.create_task(use(holder, model)))
            await waiting(gpu, number)
        first.loaded["m"] = 60
        lease.release()
        await asyncio.gather(*uses)
        assert order == ["bn", "am", "bm"]
        assert (first.unloaded, second.unloaded) == (["m", "m"], ["n"])


async def test_unmeasured_model_uses_the_gpu_alone(tmp_path: Path) -> None:
    known, unknown = Holder("a", {"m": 10}), Holder("b", {})
    async with arbiter(tmp_path, "p", turn_seconds=60) as gpu:
        gpu.access(known)
        gpu.access(unknown)
        lease = await gpu.acquire(unknown, "x", 10)
        other = asyncio.create_task(gpu.acquire(known, "m", 10))
        await waiting(gpu)
        unknown.loaded["x"] = 30
        lease.release()
        (await other).release()
        both = [await gpu.acquire(unknown, "x", 10), await gpu.acquire(known, "m", 10)]
        assert unknown.unloaded == []
        for each in both:
            each.release()


async def test_wait_ends_at_its_deadline_with_an_error(tmp_path: Path) -> None:
    holder, other = Holder("Ollama", {"m": 60}), Holder("ComfyUI", {"sd": 60})
    async with arbiter(tmp_path, "p") as gpu:
        lease = await gpu.acquire(holder, "m", 10)
        with pytest.raises(errors.GpuBusy, match=r"in use by Ollama \(m\) for the 0.05 seconds"):
            await gpu.acquire(other, "sd", 0.05)
        await gpu.aclose()
        assert [ticket.holder for ticket in gpu.view().tickets] == ["Ollama"]
        lease.release()


async def test_uses_that_ran_out_of_memory_take_turns(tmp_path: Path) -> None:
    holders = [Holder("a", {"m": 10}), Holder("b", {"m": 10})]
    async with arbiter(tmp_path, "p") as gpu:
        leases = [await gpu.acquire(gpu.access(each).holder, "m", 10) for each in holders]

        async def retry(number: int) -> None:
            await leases[number].take_all(10)
            assert sum(ticket.state == "running" for ticket in gpu.view().tickets) == 1
            leases[number].release()

        await asyncio.gather(retry(0), retry(1))


async def test_time_limits_of_runs_stop_while_they_wait(tmp_path: Path) -> None:
    holder, other = Holder("a", {"m": 60}), Holder("b", {"m": 60})
    async with arbiter(tmp_path, "p") as gpu:
        lease = await gpu.acquire(gpu.access(holder).holder, "m", 10)

        async def run() -> float:
            async with asyncio.timeout(0.2) as limit:
                run_clock.current.set(RunClock(limit))
                actual = await gpu.acquire(other, "m", 10)
                actual.release()
            return run_clock.waited_seconds()

        running = asyncio.create_task(run())
        await waiting(gpu)
        # Longer than the limit of the run.
        await asyncio.sleep(0.3)
        lease.release()
        assert await running >= 0.3


async def test_processes_share_state_and_request_unloads(tmp_path: Path) -> None:
    own, shared = Holder("weights", {"sdxl": 60}, private="p"), Holder("ollama", {"m": 60})
    async with arbiter(tmp_path, "p") as first, arbiter(tmp_path, "q") as second:
        first.access(own)
        lease = await first.acquire(own, "sdxl", 10)
        own.loaded["sdxl"] = 60
        request = asyncio.create_task(second.acquire(second.access(shared).holder, "m", 10))
        await waiting(first)
        lease.release()
        (await request).release()
        assert own.unloaded == ["sdxl"]


async def test_the_death_of_a_holder_frees_the_gpu(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.unit.gpu.test_arbiter import Holder, arbiter\n"
        "async def main():\n"
        "    async with arbiter(pathlib.Path(sys.argv[1]), 'dying') as gpu:\n"
        "        await gpu.acquire(Holder('gguf', {'m': 90}, private='dying'), 'm', 10)\n"
        "        print('held', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    async with arbiter(tmp_path, "p") as gpu:
        holder = Holder("ollama", {"m": 90})
        request = asyncio.create_task(gpu.acquire(gpu.access(holder).holder, "m", 10))
        await waiting(gpu)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        (await request).release()
        assert [each.holder for each in gpu.view().residents] in ([], ["ollama"])


async def test_invalid_state_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_bytes(b'{"tickets": [')
    async with arbiter(tmp_path, "p") as gpu:
        (await gpu.acquire(Holder("a", {"m": 60}), "m", 10)).release()
        await gpu.aclose()
        assert gpu.view().total == CAPACITY


async def test_overlapping_waits_are_counted_once() -> None:
    clock = RunClock(asyncio.timeout(None))
    for start, end in ((10.0, 12.0), (11.0, 13.0), (10.0, 13.0), (20.0, 21.0)):
        clock.exclude(start, end)
    assert clock.waited == 4.0
