"""Opening an encoder, and taking back what one of them does to its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

AV1 = "libsvtav1"
_THREADS = Path("/proc/self/task")


def opened(stream: Any) -> None:
    """Open the encoder of a stream of which all has been said, where its opening does not keep to itself.

    As root, SVT-AV1 turns the thread that opens it into a real-time one of the highest rank; its own threads
    and every program that is started later inherit that, and nothing else on the machine has its turn.
    """
    if stream.codec_context.name != AV1:
        return
    before = set(_hurried())
    stream.codec_context.open()
    for thread in set(_hurried()) - before:
        with suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _hurried() -> Iterator[int]:
    """The threads of this process that go before all others."""
    for path in _THREADS.iterdir() if sys.platform == "linux" else ():
        with suppress(ProcessLookupError):
            if os.sched_getscheduler(int(path.name)) == os.SCHED_FIFO:
                yield int(path.name)
