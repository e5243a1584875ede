"""Run an image function in a process of its own, where the image's decoder holds the GIL.

Pillow's decoders of WebP and AVIF hold it for up to a second, in which no other thread of a server runs.

Usage: python -m sixfold.engines.image.isolated MODULE:FUNCTION MEMORY_BYTES < arguments in MessagePack
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from sixfold import import_string, settings
from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import headers

_HOLDING_GIL = frozenset({"WEBP", "AVIF"})
_SECONDS = 60
# The address space of the interpreter with its libraries and their threads.
_BASE_BYTES = 2 * 2**30
_UNUSABLE = 3
_UNREADABLE = "The image cannot be read."
_Argument = str | int | float | None


def header(path: Path) -> headers.ImageHeader:
    """Return the header of an image file of any size; raise `UnreadableImage`."""
    with headers.open_image(path, sys.maxsize) as file:
        return headers.read(file)


def is_needed(*paths: Path) -> bool:
    """Return whether the decoder of one of these images holds the GIL; raise `UnreadableImage`."""
    return any(header(path).format in _HOLDING_GIL for path in paths)


def call(target: str, memory_bytes: int, *arguments: _Argument) -> Any:
    """Return what the function named `module:function` returns, from a process with a memory limit.

    Arguments and result are plain values. Raises `UnusableInput`.
    """
    command = [sys.executable, "-P", "-m", __name__, target, str(_BASE_BYTES + memory_bytes)]
    try:
        done = subprocess.run(  # noqa: S603  # this interpreter, and a function that the caller names
            command,
            input=msgspec.msgpack.encode(arguments),
            capture_output=True,
            env=settings.worker_environment(),
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnusableInput(_UNREADABLE) from error
    if done.returncode == 0:
        return msgspec.msgpack.decode(done.stdout)
    raise UnusableInput(done.stderr.decode() if done.returncode == _UNUSABLE else _UNREADABLE)


def main() -> int:
    """Call the function, with limits on memory and CPU time."""
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    try:
        result = import_string.named(sys.argv[1])(*msgspec.msgpack.decode(sys.stdin.buffer.read()))
    except UnusableInput as error:
        sys.stderr.write(str(error))
        return _UNUSABLE
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
