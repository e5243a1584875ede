"""Speech synthesis without weights: 26 voices of a formant synthesizer at any speed."""

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
    """Speaks `text` (`input`, `prompt`) in one of the voices of `data/voices.toml`."""

    name = "speech"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """Return an audio file, whose length matches `speed` within 1 %."""
        request = synthesis.parse(task)
        artifact = synthesis.record(request, lambda text: speak(text, request), _RATE, context)
        seconds = artifact.info["duration"]
        count = len(request.sentences)
        context.log(f"{count} sentence{'' if count == 1 else 's'}, {seconds:g} s, voice {request.voice.id}")
        return Result((artifact,), {"voice": request.voice.id, "duration": seconds}, "preview")


def speak(text: str, request: SpeechRequest) -> Wave:
    """Return a sentence at the requested speed, using the synthesizer's speed setting as far as possible."""
    natural = post_processing.trim(_synthesize(text, request, request.voice.pace))
    if request.speed == 1:
        return natural
    pace = round(min(espeak.FASTEST, max(espeak.SLOWEST, request.voice.pace * request.speed)))
    return time_stretch.to_length(
        post_processing.trim(_synthesize(text, request, pace)), round(natural.size / request.speed), _RATE
    )


def _synthesize(text: str, request: SpeechRequest, pace: int) -> Wave:
    voice = request.voice
    style = EspeakStyle(
        f"{voices.accent(voice, request.language)}+{voice.color}", voice.pitch, voice.lilt, pace
    )
    wave, rate = espeak.synthesize(text, style)
    if rate != _RATE:
        raise RuntimeError(f"espeak-ng must produce {_RATE} Hz (got {rate})")
    return wave
