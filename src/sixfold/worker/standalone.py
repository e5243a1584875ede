"""A worker without a zygote, for sandboxes: `python -m sixfold.worker.standalone DESCRIPTOR ORDER`.

DESCRIPTOR is the number of the worker's socket, and ORDER is an encoded `SpawnWorker`. The process is already
isolated by the sandbox.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from sixfold import process_resources
from sixfold.worker import main, protocol


def text(order: protocol.SpawnWorker) -> str:
    """Encode an order as a command line argument."""
    return protocol.encode(order).hex()


def run(words: list[str]) -> NoReturn:
    """Run the worker that the arguments describe."""
    order = protocol.to_zygote.decode(bytes.fromhex(words[1]))
    if not isinstance(order, protocol.SpawnWorker):
        raise TypeError("the argument must be a SpawnWorker message")
    os.umask(0o077)
    process_resources.limit_processes()
    process_resources.lower_file_limit()
    main.work(int(words[0]), order)


if __name__ == "__main__":
    run(sys.argv[1:])
