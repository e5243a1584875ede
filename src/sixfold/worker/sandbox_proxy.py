"""The way into a sandbox: `python -m sixfold.worker.sandbox_proxy DESCRIPTOR PORT MEMORY PROGRAM…`, run
inside.

It runs the program, which listens on a port where nobody outside can reach it, and joins each connection that
comes to the listening socket with one to that port. It ends with the program, and with its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys

from sixfold import open_files

_PIECE_BYTES = 1 << 16


async def run(listening: socket.socket, port: int, program: list[str]) -> int:
    """Run the program and let others in; gives its status."""
    process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.DEVNULL)

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            inside, out = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_passed(reader, out), _passed(inside, writer))
        writer.close()

    await asyncio.start_unix_server(joined, sock=listening)
    return await process.wait()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def main(words: list[str]) -> int:
    """Take the limits and begin."""
    limit = int(words[2])
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_files.lower_limit()
    os.umask(0o077)
    listening = socket.socket(fileno=int(words[0]))
    return asyncio.run(run(listening, int(words[1]), words[3:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
