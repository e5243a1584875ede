"""Conversion to stereo that keeps the level of mono signals, which FFmpeg would reduce by 3 dB."""

from __future__ import annotations

from typing import Any

import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

Array = NDArray[Any]


class StereoSignal:
    """Converts the frames of a signal to two channels at `rate`, from the layout of the first frame."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler: AudioResampler | None = None

    def pieces(self, frame: Any) -> list[Array]:
        """Return the samples available after a frame, as arrays of 2xN float32; None flushes the rest.

        Raises `ValueError` or an `FFmpegError` if the format differs from the first frame's.
        """
        if self._resampler is None:
            if frame is None:
                return []
            layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
            self._resampler = AudioResampler(format="fltp", layout=layout, rate=self._rate)
        parts = [part.to_ndarray() for part in self._resampler.resample(frame)]
        return [np.broadcast_to(part, (2, part.shape[1])) for part in parts]
