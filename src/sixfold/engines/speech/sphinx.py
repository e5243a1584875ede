"""English to text without further weights: PocketSphinx with the model that comes in its package."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.work.engines import Context, Result, Task
from sixfold.engines.speech import hearing
from sixfold.engines.speech.hearing import Segment, Word

_FRAMES = 100  # a second
_NO_WORD = re.compile(r"<.*>|\[.*\]|\+\+.*\+\+")
_VARIANT = re.compile(r"\(\d+\)$")


class Sphinx:
    """The recogniser, loaded: about 120 MB."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(samprate=hearing.RATE, loglevel="FATAL", bestpath=True)

    def heard(self, wave: NDArray[np.float32], start: float) -> Segment:
        """What is said in a stretch of 16 kHz that begins at `start` seconds."""
        samples = np.rint(np.clip(wave, -1, 1) * 32_767).astype("<i2").tobytes()
        self._decoder.reinit_feat()  # what it heard before leaves nothing behind
        self._decoder.start_utt()
        self._decoder.process_raw(samples, no_search=False, full_utt=True)
        self._decoder.end_utt()
        words = [
            Word(
                _VARIANT.sub("", part.word),
                start + part.start_frame / _FRAMES,
                start + (part.end_frame + 1) / _FRAMES,
                min(1.0, max(0.0, float(part.prob))),
            )
            for part in self._decoder.seg() or ()
            if not _NO_WORD.fullmatch(part.word)
        ]
        end = words[-1].end if words else start + wave.size / hearing.RATE
        text = " ".join(word.word for word in words)
        return Segment(text, words[0].start if words else start, end, words)


class ListeningEngine:
    """Writes down `audio_url`, stretch by stretch; `preview`, with how sure it is of every word."""

    name = "listening"
    version = "1"

    def __init__(self) -> None:
        self._sphinx = Sphinx()

    def run(self, task: Task, context: Context) -> Result:
        """The text, its segments and words."""
        context.progress(0.01)
        wave = hearing.sound(task)
        stretches = hearing.spoken(wave)
        segments: list[Segment] = []
        for number, (start, end) in enumerate(stretches):
            context.progress(0.05 + 0.95 * number / len(stretches))
            found = self._sphinx.heard(wave[start:end], start / hearing.RATE)
            if found.words:
                segments.append(found)
        context.log(f"{len(segments)} segments in {wave.size / hearing.RATE:.1f} s")
        return hearing.told(segments, wave, task, "preview", "en")
