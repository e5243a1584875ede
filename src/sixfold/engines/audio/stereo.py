"""Any sound in two channels. A single one is as loud in both: FFmpeg's own way takes three decibels off."""

from __future__ import annotations

from typing import Any

import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

Array = NDArray[Any]


class StereoSignal:
    """Brings one sound's frames to two channels at `rate`, whatever channels the first of them has."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler: AudioResampler | None = None

    def pieces(self, frame: Any) -> list[Array]:
        """What is complete with this frame, each 2xN float32; with None, the rest.

        Raises `ValueError` or an `FFmpegError` for a frame that is not like the first.
        """
        if self._resampler is None:
            if frame is None:
                return []
            layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
            self._resampler = AudioResampler(format="fltp", layout=layout, rate=self._rate)
        made = [part.to_ndarray() for part in self._resampler.resample(frame)]
        return [np.broadcast_to(part, (2, part.shape[1])) for part in made]
