"""Recognition of English speech by PocketSphinx with the model of its package.

The model has two variants: the original variant is for human voices, the adapted variant for the embedded
synthesizer's voices. The beginning of a recording is decoded with both, the rest with the more confident one.
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

_FRAMES = 100  # frames per second
# The seconds of speech that both decoders process.
_TRIAL_SECONDS = 8.0
# The weight of the language model relative to the acoustic model.
_LANGUAGE_WEIGHT = 9.5
_NO_WORD = re.compile(r"<.*>|\[.*\]|\+\+.*\+\+")
_VARIANT = re.compile(r"\(\d+\)$")


class SphinxDecoder:
    """A loaded recognizer, which needs about 120 MB of memory."""

    def __init__(self, **options: Any) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(
            samprate=transcription.RATE, loglevel="FATAL", bestpath=True, lw=_LANGUAGE_WEIGHT, **options
        )

    def decode(self, wave: NDArray[np.float32], start: float) -> TimedSegment:
        """Transcribe audio at 16 kHz that begins at `start` seconds of the recording."""
        samples = np.rint(np.clip(wave, -1, 1) * 32_767).astype("<i2").tobytes()
        # Reset the state, so that the result does not depend on earlier audio.
        self._decoder.reinit_feat()
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


def adapted_decoder() -> SphinxDecoder:
    """Return a recognizer with the model adapted to the embedded synthesizer's voices."""
    from pocketsphinx import get_model_path

    model = Path(get_model_path()) / "en-us" / "en-us"
    with tempfile.TemporaryDirectory() as folder:
        means = acoustic_adaptation.write(model, acoustic_adaptation.adapted(model), Path(folder) / "means")
        return SphinxDecoder(mean=str(means))


class SphinxEngine:
    """Transcribes `audio_url` in preview quality, with a confidence for every word."""

    name = "listening"
    version = "3"

    def __init__(self) -> None:
        self.original, self.adapted = SphinxDecoder(), adapted_decoder()

    def run(self, task: Task, context: Context) -> Result:
        """Return the text with its segments and words."""
        context.progress(0.01)
        wave = transcription.load_audio(task)
        ranges = transcription.speech_ranges(wave)
        segments: list[TimedSegment] = []
        decoders, decoder, tried = (self.original, self.adapted), self.original, 0.0
        trials: tuple[list[TimedSegment], list[TimedSegment]] = ([], [])
        for number, (start, end) in enumerate(ranges):
            context.progress(0.05 + 0.95 * number / len(ranges))
            if tried < _TRIAL_SECONDS:
                for trial, each in zip(trials, decoders, strict=True):
                    trial.append(each.decode(wave[start:end], start / transcription.RATE))
                tried += (end - start) / transcription.RATE
                better = int(_confidence(trials[1]) > _confidence(trials[0]))
                segments, decoder = list(trials[better]), decoders[better]
            else:
                segments.append(decoder.decode(wave[start:end], start / transcription.RATE))
        segments = [segment for segment in segments if segment.words]
        voices = "embedded" if decoder is self.adapted else "human"
        seconds = wave.size / transcription.RATE
        context.log(
            f"{len(segments)} segments in {seconds:.1f} s, decoded with the model for {voices} voices"
        )
        return transcription.result(segments, wave.size / transcription.RATE, task, "preview", "en")


def _confidence(segments: list[TimedSegment]) -> float:
    """Return the sum of the words' confidences, weighted by their duration."""
    return sum((word.end - word.start) * word.confidence for part in segments for word in part.words)
