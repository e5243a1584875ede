"""Encoder settings for conversions that a user requests, for files as small as with ffmpeg's defaults.

Other engines encode as they render and favor speed (`video/encode.py`). Here a short video is encoded with
the settings of ffmpeg's command line; a longer video is encoded faster, because a run has a time limit.
The choice depends only on the video, and each encoder has one thread: equal inputs result in equal bytes on
every machine.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sixfold.engines.video.encode import KINDS, VideoKind

_KEYFRAME_SECONDS = 10
_AUDIO_BIT_RATES = {"mp4": 128_000, "webm": 96_000}
_VP9 = {"deadline": "good", "crf": "32", "b": "0", "row-mt": "0"}
_X264 = {"crf": "23", "profile": "high"}
# Each set of options is used up to this number of megapixels in all frames. One core encodes 10 to 15 of them
# per second with x264's preset medium, 2 with the first set for VP9, 3 with the second, and 15 or more with
# `KINDS`.
_OPTIONS: Mapping[str, Sequence[tuple[float, Mapping[str, str]]]] = {
    "mp4": ((2500, {**_X264, "preset": "medium"}),),
    "webm": ((200, {**_VP9, "cpu-used": "1"}), (600, {**_VP9, "cpu-used": "2"})),
}
# x264's mbtree reads memory that it did not write. With this option of glibc's mallopt, fresh memory has
# fixed bytes.
_M_PERTURB, _FILL = -6, 85


def kind(name: str, size: tuple[int, int], frames: int) -> tuple[VideoKind, bool]:
    """Return the preset of `mp4` or `webm`, and whether its files are as small as ffmpeg's."""
    megapixels = size[0] * size[1] * frames / 1e6
    fast = KINDS[name]
    options = next((each for limit, each in _OPTIONS[name] if megapixels <= limit), None)
    is_small = options is not None
    codec_options = dict(options or fast.options)
    if fast.codec == "libx264" and is_small and not _fix_fresh_memory():
        codec_options["x264-params"] = "mbtree=0"
    return replace(
        fast, options=codec_options, keyframe_seconds=_KEYFRAME_SECONDS, audio_bit_rate=_AUDIO_BIT_RATES[name]
    ), is_small


@functools.cache
def _fix_fresh_memory() -> bool:
    """Make malloc fill the memory that it allocates; return False if the C library does not support it."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_PERTURB, _FILL) == 1
