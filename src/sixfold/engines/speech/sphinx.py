"""English to text without further weights: PocketSphinx with the model that comes in its package.

Of the model there are two: as it comes, for people, and moved to our own synthesiser's voices. The beginning
of a recording is heard with both, and the one that is surer of it hears the rest.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.speech import acoustic_adaptation, transcription
from sixfold.engines.speech.transcription import TimedSegment, TimedWord

_FRAMES = 100  # a second
_TRIED = 8.0  # seconds of speech that both hear, at least
_LANGUAGE = 9.5  # what the likelihood of words counts beside that of sounds
_NO_WORD = re.compile(r"<.*>|\[.*\]|\+\+.*\+\+")
_VARIANT = re.compile(r"\(\d+\)$")


class SphinxDecoder:
    """The recogniser, loaded: about 120 MB."""

    def __init__(self, **options: Any) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(
            samprate=transcription.RATE, loglevel="FATAL", bestpath=True, lw=_LANGUAGE, **options
        )

    def heard(self, wave: NDArray[np.float32], start: float) -> TimedSegment:
        """What is said in a stretch of 16 kHz that begins at `start` seconds."""
        samples = np.rint(np.clip(wave, -1, 1) * 32_767).astype("<i2").tobytes()
        self._decoder.reinit_feat()  # what it heard before leaves nothing behind
        self._decoder.start_utt()
        self._decoder.process_raw(samples, no_search=False, full_utt=True)
        self._decoder.end_utt()
        words = [
            TimedWord(
                _VARIANT.sub("", part.word),
                start + part.start_frame / _FRAMES,
                start + (part.end_frame + 1) / _FRAMES,
                min(1.0, max(0.0, float(part.prob))),
            )
            for part in self._decoder.seg() or ()
            if not _NO_WORD.fullmatch(part.word)
        ]
        end = words[-1].end if words else start + wave.size / transcription.RATE
        text = " ".join(word.word for word in words)
        return TimedSegment(text, words[0].start if words else start, end, words)


def moved() -> SphinxDecoder:
    """The recogniser with its model moved to our own voices."""
    from pocketsphinx import get_model_path

    model = Path(get_model_path()) / "en-us" / "en-us"
    with tempfile.TemporaryDirectory() as folder:
        means = acoustic_adaptation.write(model, acoustic_adaptation.moved(model), Path(folder) / "means")
        return SphinxDecoder(mean=str(means))


class SphinxEngine:
    """Writes down `audio_url`, stretch by stretch; `preview`, with how sure it is of every word."""

    name = "listening"
    version = "3"

    def __init__(self) -> None:
        self.plain, self.moved = SphinxDecoder(), moved()

    def run(self, task: Task, context: Context) -> Result:
        """The text, its segments and words."""
        context.progress(0.01)
        wave = transcription.sound(task)
        stretches = transcription.spoken(wave)
        segments: list[TimedSegment] = []
        both, ear, tried = (self.plain, self.moved), self.plain, 0.0
        first: tuple[list[TimedSegment], list[TimedSegment]] = ([], [])
        for number, (start, end) in enumerate(stretches):
            context.progress(0.05 + 0.95 * number / len(stretches))
            if tried < _TRIED:
                for found, one in zip(first, both, strict=True):
                    found.append(one.heard(wave[start:end], start / transcription.RATE))
                tried += (end - start) / transcription.RATE
                better = int(_sure(first[1]) > _sure(first[0]))
                segments, ear = list(first[better]), both[better]
            else:
                segments.append(ear.heard(wave[start:end], start / transcription.RATE))
        segments = [segment for segment in segments if segment.words]
        which = "our own voices" if ear is self.moved else "people"
        context.log(
            f"{len(segments)} segments in {wave.size / transcription.RATE:.1f} s, heard as {which} speak"
        )
        return transcription.told(segments, wave, task, "preview", "en")


def _sure(segments: list[TimedSegment]) -> float:
    """How sure all that was heard is, by the length of words."""
    return sum((word.end - word.start) * word.confidence for part in segments for word in part.words)
