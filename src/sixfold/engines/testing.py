"""Tiny engines for tests of everything around engines; named only by `module:attribute`, never in a list."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import subprocess
import sys
import time
from typing import Any

from sixfold.core.work.engines import Artifact, Context, EngineError, Result, Task, UnusableInput


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
        return Result(artifacts, {"inputs": dict(inputs), "files": files, "model": task.model}, "full")


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
    """Starts a process of its own and leaves it running."""

    name = "parent"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Start it."""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return Result(data={"pid": child.pid})


class BurnEngine:
    """Spends processor time for ever."""

    name = "burn"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Turn, and turn."""
        while True:
            pass
