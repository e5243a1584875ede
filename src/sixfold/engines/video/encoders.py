"""Opening an encoder: what every film says of its pictures, and what one encoder does to its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

AV1 = "libsvtav1"
_BT709, _VIDEO_RANGE = 1, 1
_KEY_SECONDS = 2  # from one picture that stands for itself to the next
_THREADS = Path("/proc/self/task")


def begin(stream: Any, size: tuple[int, int], rate: Fraction, tick: Fraction) -> None:
    """Tell a new stream its pictures' size (width, height), rate, tick and colours, and open its encoder."""
    stream.width, stream.height = size
    codec = stream.codec_context
    codec.gop_size = max(1, round(_KEY_SECONDS * rate))
    codec.color_primaries = codec.color_trc = codec.colorspace = _BT709
    codec.color_range = _VIDEO_RANGE
    codec.time_base = tick
    _open(stream)


def colour(frame: Any) -> None:
    """Say of a frame in which colours it is: as its stream does."""
    frame.color_range, frame.colorspace = _VIDEO_RANGE, _BT709


def _open(stream: Any) -> None:
    """Open the encoder of a fully described stream now, where opening it affects the whole process.

    As root, SVT-AV1 gives the thread that opens it the highest real-time priority; its own threads and every
    program that is started later inherit that, and starve everything else on the machine.
    """
    if stream.codec_context.name != AV1:
        return
    before = set(_hurried())
    stream.codec_context.open()
    for thread in set(_hurried()) - before:
        with suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _hurried() -> Iterator[int]:
    """The threads of this process with a real-time priority."""
    for path in _THREADS.iterdir() if sys.platform == "linux" else ():
        with suppress(ProcessLookupError):
            if os.sched_getscheduler(int(path.name)) == os.SCHED_FIFO:
                yield int(path.name)
