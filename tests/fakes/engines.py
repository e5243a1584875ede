"""Small engines for tests of drivers and workers, referred to as `module:attribute`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import (
    Artifact,
    BatchJob,
    Canceled,
    Context,
    EngineError,
    Result,
    Task,
    UnusableInput,
)
from sixfold.engines.host_services import HostServices


class EchoEngine:
    """Returns its inputs, with the progress, artifacts, lines and errors that the inputs select."""

    name = "echo"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Perform the action that the inputs select, and return the inputs."""
        inputs = task.inputs
        steps = int(inputs.get("steps", 0))
        for step in range(steps):
            context.progress((step + 1) / steps)
        for line in inputs.get("log", ()):
            context.log(line)
        for line in inputs.get("print", ()):
            print(line)  # noqa: T201 - the driver must catch what libraries print
        match inputs.get("raise"):
            case "public":
                raise EngineError("No face was found in the image.")
            case "unusable":
                raise UnusableInput("The image is truncated.")
            case "private":
                raise ValueError("an internal detail")
            case "memory":
                raise MemoryError
            case _:
                pass
        artifacts = tuple(
            Artifact("application/octet-stream", bytes([index % 251]) * int(size), {"index": index})
            for index, size in enumerate(inputs.get("bytes", ()))
        )
        artifacts += tuple(Artifact("image/png", stored=(key, 1)) for key in inputs.get("stored", ()))
        files = {name: len(path.read_bytes()) for name, path in task.files.items()}
        data = {"inputs": dict(inputs), "files": files, "model": task.model}
        cost, billed = inputs.get("upstream_cost"), inputs.get("billed")
        # JSON has no infinite numbers, which are inputs as texts.
        billed = float(billed) if isinstance(billed, str) else billed
        return Result(artifacts, data, "full", upstream_cost_micros=cost, billed=billed)


class SlowEngine:
    """Runs for `seconds` and reports progress; if `stubborn` is set, ignores cancelation."""

    name = "slow"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Sleep in steps of 10 ms."""
        ends = time.monotonic() + float(task.inputs.get("seconds", 60))
        context.progress(0.1)
        while time.monotonic() < ends:
            time.sleep(0.01)
            if not task.inputs.get("stubborn"):
                context.progress(0.1)
        return Result()


class CrashEngine:
    """Ends its process with the status `exit` or by the signal number `signal`."""

    name = "crash"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        context.log("about to crash")
        if "exit" in task.inputs:
            os._exit(int(task.inputs["exit"]))
        os.kill(os.getpid(), int(task.inputs["signal"]))
        ctypes.string_at(0)  # reached when the signal is ignored
        return Result()


class GreedyEngine:
    """Allocates `bytes` of memory in blocks of 1 MiB and writes to each."""

    name = "greedy"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Allocate the memory and return the number of blocks as `pieces`."""
        held: list[bytearray] = []
        for _ in range(int(task.inputs["bytes"]) >> 20):
            held.append(bytearray(b"x") * (1 << 20))
        context.log(f"took {len(held)} MiB")
        return Result(data={"pieces": len(held)})


class ProbeEngine:
    """Reports its process: environment, limits, file descriptors, working folder and umask."""

    name = "probe"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        mask = os.umask(0o077)
        os.umask(mask)
        properties: dict[str, Any] = {
            "environ": dict(os.environ),
            "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "address_space": resource.getrlimit(resource.RLIMIT_AS)[0],
            "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],  # noqa: PTH208 - names
            "pid": os.getpid(),
            "session": os.getsid(0),
            "mask": mask,
            "folder": os.getcwd(),  # noqa: PTH109 - results are JSON
            "nice": os.nice(0),
        }
        return Result(data=properties)


class UntidyEngine:
    """Returns the current folder, then deletes the temporary folder and changes to another one."""

    name = "untidy"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return the folder in which the run began."""
        folder = Path.cwd()
        shutil.rmtree(tempfile.gettempdir())
        os.chdir("/")
        return Result(data={"folder": str(folder)})


class BrokenEngine:
    """Raises an error when it is built."""

    def __init__(self) -> None:
        raise RuntimeError("the weights are missing")


class DiceEngine:
    """Uses the global random generator, as some libraries do."""

    name = "dice"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return three random numbers."""
        return Result(data={"drawn": [random.random() for _ in range(3)]})  # noqa: S311 - a die, not a key


class ParentEngine:
    """Starts a child process, in a separate session if `apart` is set, and leaves it running."""

    name = "parent"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Start the process and return its id."""
        apart = bool(task.inputs.get("apart"))
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=apart
        )
        return Result(data={"pid": child.pid})


class BurnEngine:
    """Uses CPU time without end."""

    name = "burn"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Loop forever."""
        while True:
            pass


class BatchEngine:
    """Runs tasks of one `shape` as a batch and reports its size.

    A task with a `gate` waits for that file, and one with `held` completes when it is canceled. The option
    `key` is returned with each result.
    """

    name = "batch"
    version = "1"

    def __init__(self, key: str = "") -> None:
        self._key = key

    def shape(self, task: Task) -> Hashable:
        """Return the batch key of a task, or None for a task that runs alone."""
        return task.inputs.get("shape")

    def run(self, task: Task, context: Context) -> Result:
        """Wait for the gate or the cancelation, if the task has one of them, and run the task alone."""
        context.progress(0.1)
        while "gate" in task.inputs and not Path(task.inputs["gate"]).exists():
            time.sleep(0.01)
            context.progress(0.1)
        with suppress(Canceled):
            while task.inputs.get("held"):
                time.sleep(0.01)
                context.progress(0.1)
        written = context.scratch / "output.txt"
        written.write_text(f"alone: {task.id}")
        return Result((Artifact("text/plain", path=written),), {"together": 1, "key": self._key})

    def run_many(self, jobs: Sequence[BatchJob]) -> Sequence[Result | Exception | Canceled]:
        """Run a batch and return one result, error or cancelation for each job."""
        outcomes: list[Result | Exception | Canceled] = []
        for job in jobs:
            job.context.log(f"{job.task.id} runs")
            outcomes.append(self._outcome(job, len(jobs)))
        return outcomes

    def _outcome(self, job: BatchJob, together: int) -> Result | Exception | Canceled:
        try:
            job.context.progress(0.5)
        except Canceled as canceled:
            return canceled
        if job.task.inputs.get("fails"):
            return EngineError(f"{job.task.id} failed.")
        output = Artifact("text/plain", f"together: {job.task.id}".encode())
        return Result((output,), {"together": together, "key": self._key})


class FarEngine:
    """A remote engine without a server: waits `seconds`, writes a file, reports its key and a cost."""

    name = "far"
    version = "1"

    def __init__(self, outside: HostServices, key: str = "fal_key") -> None:
        self._outside = outside
        self._key = key
        self.canceled: list[str] = []

    async def run(self, task: Task, context: Context) -> Result:
        """Perform the action that the inputs select, and return the inputs."""
        context.progress(0.2)
        context.log(f"sent {task.id}")
        try:
            await asyncio.sleep(float(task.inputs.get("seconds", 0)))
        except asyncio.CancelledError:
            context.log(f"canceled {task.id}")
            raise
        match task.inputs.get("raise"):
            case "public":
                raise EngineError("The provider account has no credit left.")
            case "private":
                raise ValueError("an internal detail")
            case _:
                pass
        written = context.scratch / "far.txt"
        written.write_text(task.id)
        key = self._outside.key(self._key)
        return Result((Artifact("text/plain", path=written),), {"key": key}, "full", 1_500)

    async def close(self) -> None:
        """Do nothing."""
