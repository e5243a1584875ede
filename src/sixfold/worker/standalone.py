"""A worker that no zygote forked: `python -m sixfold.worker.standalone DESCRIPTOR ORDER`, for one in a
sandbox.

It speaks on the socket with that number, and its order is the text of a `SpawnWorker`. Whoever started it has
cut it off already; what is left to do is what any worker does.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import NoReturn

from sixfold import open_files
from sixfold.worker import main, protocol

MAX_PROCESSES = 1024  # the kernel counts them for each sandbox, and never for root


def text(order: protocol.SpawnWorker) -> str:
    """An order as a word of a command line."""
    return protocol.encode(order).hex()


def run(words: list[str]) -> NoReturn:
    """Be the worker that the words describe."""
    order = protocol.to_zygote.decode(bytes.fromhex(words[1]))
    if not isinstance(order, protocol.SpawnWorker):
        raise TypeError("a worker is started by the order to be one")
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
    open_files.lower_limit()
    main.work(int(words[0]), order)


if __name__ == "__main__":
    run(sys.argv[1:])
