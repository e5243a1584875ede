"""Execution of a function in a separate process, with limits on memory and CPU time.

Usage: python -m sixfold.engines.limited_process MODULE:FUNCTION MEMORY_BYTES SECONDS < arguments

The arguments are a MessagePack array.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import msgspec

from sixfold import import_string, settings
from sixfold.core.catalog.engines import UnusableInput

_UNUSABLE = 3
Argument = str | int | float | None


def call(target: str, memory_bytes: int, seconds: int, message: str, *arguments: Argument) -> Any:
    """Return the result of the function named `module:function`, from a process with an address space limit.

    Raises `UnusableInput` with the function's reason, or `message` if the process ended otherwise.
    """
    command = [sys.executable, "-P", "-m", __name__, target, str(memory_bytes), str(seconds)]
    try:
        process = subprocess.run(  # noqa: S603  # this interpreter, and a function that the caller names
            command,
            input=msgspec.msgpack.encode(arguments),
            capture_output=True,
            env=settings.worker_environment(),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnusableInput(message) from error
    if process.returncode == 0:
        return msgspec.msgpack.decode(process.stdout)
    raise UnusableInput(process.stderr.decode() if process.returncode == _UNUSABLE else message)


def main() -> int:
    """Call the function within the limits and write its result; return the exit status."""
    memory, seconds = int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        result = import_string.load(sys.argv[1])(*msgspec.msgpack.decode(sys.stdin.buffer.read()))
    except UnusableInput as error:
        sys.stderr.write(str(error))
        return _UNUSABLE
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
