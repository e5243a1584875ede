"""A proxy that runs inside a sandbox and connects its program to the outside.

`python -m sixfold.worker.sandbox_proxy DESCRIPTOR PORT MEMORY PROGRAM…` starts the program, which listens on
a port that is unreachable from outside. It forwards each connection to the listening socket to that port, and
exits with the exit status of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from typing import Any

from sixfold import process_resources

_PIECE_BYTES = 1 << 16


async def run(listening: socket.socket, port: int, program: list[str]) -> int:
    """Run the program, forward connections to it, and return its exit status."""
    process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.DEVNULL)

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            inside, out = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_passed(reader, out), _passed(inside, writer))
        writer.close()

    # Since Python 3.13, a server deletes the file of its socket, which here belongs to the driver.
    options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    await asyncio.start_unix_server(joined, sock=listening, **options)
    return await process.wait()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def main(words: list[str]) -> int:
    """Apply the limits and run the program."""
    limit = int(words[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    process_resources.limit_processes()
    process_resources.lower_file_limit()
    os.umask(0o077)
    listening = socket.socket(fileno=int(words[0]))
    return asyncio.run(run(listening, int(words[1]), words[3:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
