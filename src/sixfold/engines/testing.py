"""Tiny engines for tests of everything around engines; named only by `module:attribute`, never in a list."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engine_batches import BatchJob
from sixfold.core.catalog.engines import (
    Artifact,
    Canceled,
    Context,
    EngineError,
    Result,
    Task,
    UnusableInput,
)
from sixfold.core.workers.remote_engines import HostServices


class EchoEngine:
    """Gives its inputs back; `steps` of progress, an artifact of `bytes`, a `log` line, a `raise`."""

    name = "echo"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Do what the inputs ask for."""
        inputs = task.inputs
        steps = int(inputs.get("steps", 0))
        for step in range(steps):
            context.progress((step + 1) / steps)
        for line in inputs.get("log", ()):
            context.log(line)
        for line in inputs.get("print", ()):
            print(line)  # noqa: T201 - what libraries do, and what the driver must catch
        match inputs.get("raise"):
            case "public":
                raise EngineError("The picture has no face.")
            case "unusable":
                raise UnusableInput("The picture is cut off.")
            case "private":
                raise ValueError("a secret of the machine room")
            case "memory":
                raise MemoryError
            case _:
                pass
        artifacts = tuple(
            Artifact("application/octet-stream", bytes([index % 251]) * int(size), {"index": index})
            for index, size in enumerate(inputs.get("bytes", ()))
        )
        files = {name: len(path.read_bytes()) for name, path in task.files.items()}
        data = {"inputs": dict(inputs), "files": files, "model": task.model}
        return Result(artifacts, data, "full", billed=inputs.get("billed"))


class SlowEngine:
    """Runs for `seconds`; `stubborn` makes it deaf to cancelation. Reports progress once it runs."""

    name = "slow"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Wait, in small steps."""
        ends = time.monotonic() + float(task.inputs.get("seconds", 60))
        context.progress(0.1)
        while time.monotonic() < ends:
            time.sleep(0.01)
            if not task.inputs.get("stubborn"):
                context.progress(0.1)
        return Result()


class CrashEngine:
    """Ends its own process: by `exit` status, or by `signal` number."""

    name = "crash"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Crash."""
        context.log("about to crash")
        if "exit" in task.inputs:
            os._exit(int(task.inputs["exit"]))
        os.kill(os.getpid(), int(task.inputs["signal"]))
        ctypes.string_at(0)  # when the signal did not end it
        return Result()


class GreedyEngine:
    """Takes `bytes` of memory in pieces of 1 MiB and touches each."""

    name = "greedy"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Take it."""
        held: list[bytearray] = []
        for _ in range(int(task.inputs["bytes"]) >> 20):
            held.append(bytearray(b"x") * (1 << 20))
        context.log(f"took {len(held)} MiB")
        return Result(data={"pieces": len(held)})


class ProbeEngine:
    """Tells what it sees of its process: environment, limits, descriptors, folder, mask."""

    name = "probe"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Look around."""
        mask = os.umask(0o077)
        os.umask(mask)
        seen: dict[str, Any] = {
            "environ": dict(os.environ),  # noqa: TID251 - looking at it is the point
            "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "address_space": resource.getrlimit(resource.RLIMIT_AS)[0],
            "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],  # noqa: PTH208 - names
            "pid": os.getpid(),
            "session": os.getsid(0),
            "mask": mask,
            "folder": os.getcwd(),  # noqa: PTH109 - a string is what travels
            "nice": os.nice(0),
        }
        return Result(data=seen)


class BrokenEngine:
    """Cannot be built."""

    def __init__(self) -> None:
        raise RuntimeError("the weights are not there")


class DiceEngine:
    """Draws from the global generator, as a careless library does."""

    name = "dice"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Draw."""
        return Result(data={"drawn": [random.random() for _ in range(3)]})  # noqa: S311 - a die, not a key


class ParentEngine:
    """Starts a process of its own, in a session of its own if `apart`, and leaves it running."""

    name = "parent"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Start it."""
        apart = bool(task.inputs.get("apart"))
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=apart
        )
        return Result(data={"pid": child.pid})


class BurnEngine:
    """Spends processor time for ever."""

    name = "burn"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Turn, and turn."""
        while True:
            pass


class ChorusEngine:
    """Runs tasks of one `shape` together and says with how many; a task with a `gate` waits for that file.

    Made with the option `key`, which it tells: what the catalogue gives an engine arrives.
    """

    name = "chorus"
    version = "1"

    def __init__(self, key: str = "") -> None:
        self._key = key

    def shape(self, task: Task) -> Hashable:
        """What the inputs say; nothing for a task that runs alone."""
        return task.inputs.get("shape")

    def run(self, task: Task, context: Context) -> Result:
        """Wait for the gate, if there is one, and be a choir of one."""
        context.progress(0.1)
        while "gate" in task.inputs and not Path(task.inputs["gate"]).exists():
            time.sleep(0.01)
            context.progress(0.1)
        written = context.scratch / "song.txt"
        written.write_text(f"alone: {task.id}")
        return Result((Artifact("text/plain", path=written),), {"together": 1, "key": self._key})

    def run_many(self, jobs: Sequence[BatchJob]) -> Sequence[Result | Exception | Canceled]:
        """One verse after the other, each heard by every singer who has not left."""
        endings: list[Result | Exception | Canceled] = []
        for job in jobs:
            job.context.log(f"{job.task.id} sings")
            endings.append(self._ending(job, len(jobs)))
        return endings

    def _ending(self, job: BatchJob, together: int) -> Result | Exception | Canceled:
        try:
            job.context.progress(0.5)
        except Canceled as canceled:
            return canceled
        if job.task.inputs.get("hoarse"):
            return EngineError(f"{job.task.id} is hoarse.")
        song = Artifact("text/plain", f"together: {job.task.id}".encode())
        return Result((song,), {"together": together, "key": self._key})


class FarEngine:
    """A remote engine that asks nobody: waits `seconds`, writes a file, tells its key and what it cost."""

    name = "far"
    version = "1"

    def __init__(self, outside: HostServices, key: str = "fal_key") -> None:
        self._outside = outside
        self._key = key
        self.canceled: list[str] = []

    async def run(self, task: Task, context: Context) -> Result:
        """Do what the inputs ask for."""
        context.progress(0.2)
        context.log(f"sent {task.id}")
        try:
            await asyncio.sleep(float(task.inputs.get("seconds", 0)))
        except asyncio.CancelledError:
            context.log(f"took {task.id} back")
            raise
        match task.inputs.get("raise"):
            case "public":
                raise EngineError("The provider has no money left.")
            case "private":
                raise ValueError("a secret of the machine room")
            case _:
                pass
        written = context.scratch / "far.txt"
        written.write_text(task.id)
        key = self._outside.key(self._key)
        return Result((Artifact("text/plain", path=written),), {"key": key}, "full", 1_500)

    async def close(self) -> None:
        """Nothing is held."""
