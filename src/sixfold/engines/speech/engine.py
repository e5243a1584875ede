"""Speech without weights: 26 voices of a formant synthesiser, at any speed, sentence by sentence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.speech import espeak, post_processing, synthesis, time_stretch, voices
from sixfold.engines.speech.espeak import EspeakStyle
from sixfold.engines.speech.synthesis import SpeechRequest

Wave = NDArray[np.float32]

_RATE = 22_050


class SpeechEngine:
    """Says `text` (`input`, `prompt`) in one of the voices of `data/voices.toml`."""

    name = "speech"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """One file of sound: its length goes with `speed`, to the hundredth."""
        wanted = synthesis.order(task)
        artifact = synthesis.recorded(wanted, lambda text: said(text, wanted), _RATE, context)
        seconds = artifact.info["duration"]
        context.log(f"{len(wanted.sentences)} sentences in {seconds:g} s, spoken by {wanted.voice.id}")
        return Result((artifact,), {"voice": wanted.voice.id, "duration": seconds}, "preview")


def said(text: str, wanted: SpeechRequest) -> Wave:
    """A sentence at the speed that was asked for: by the synthesiser's own pace as far as that goes."""
    natural = post_processing.trimmed(_spoken(text, wanted, wanted.voice.pace))
    if wanted.speed == 1:
        return natural
    pace = round(min(espeak.FASTEST, max(espeak.SLOWEST, wanted.voice.pace * wanted.speed)))
    return time_stretch.to_length(
        post_processing.trimmed(_spoken(text, wanted, pace)), round(natural.size / wanted.speed), _RATE
    )


def _spoken(text: str, wanted: SpeechRequest, pace: int) -> Wave:
    voice = wanted.voice
    manner = EspeakStyle(
        f"{voices.accent(voice, wanted.language)}+{voice.colour}", voice.pitch, voice.lilt, pace
    )
    wave, rate = espeak.said(text, manner)
    if rate != _RATE:
        raise RuntimeError(f"espeak-ng speaks at {rate} Hz")
    return wave
