"""What every speaker shares: an order read from any model's inputs, and sentences into one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, Task, UnusableInput
from sixfold.engines.speech import files, post_processing, sentences, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_TEXTS = ("text", "input", "prompt")
_FORMATS = ("format", "response_format", "audio_format")
_PAUSE_SECONDS = 0.26  # between two sentences, at speed 1
_AROUND_SECONDS = 0.12  # of silence before the first and after the last


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What is to be said, by whom, how fast, and as which file."""

    sentences: tuple[str, ...]
    voice: SpeakingVoice
    language: str
    speed: float
    format: str


def order(task: Task) -> SpeechRequest:
    """The order of a task, whichever model's names it has; raises `UnusableInput`."""
    said = next((str(task.inputs[name]) for name in _TEXTS if task.inputs.get(name)), "")
    parts = sentences.split(said)
    if not parts:
        raise UnusableInput("The text has nothing in it that can be said.")
    return SpeechRequest(
        sentences=tuple(parts),
        voice=voices.find(str(task.inputs.get("voice") or "")),
        language=voices.language(str(task.inputs.get("language") or "")),
        speed=float(task.inputs.get("speed") or 1),
        format=next((str(task.inputs[name]) for name in _FORMATS if task.inputs.get(name)), "mp3"),
    )


def recorded(
    wanted: SpeechRequest, speak: Callable[[str], Wave], rate: int, context: Context, share: float = 1.0
) -> Artifact:
    """One file of all sentences as `speak` says them; progress goes up to `share`."""
    context.progress(0.01)
    pieces = _levelled(_paced(wanted, speak, rate, lambda done: context.progress(done * share)), rate)
    return files.write(pieces, rate, wanted.format, context.scratch / f"speech.{wanted.format}")


def _paced(
    wanted: SpeechRequest, speak: Callable[[str], Wave], rate: int, progress: Callable[[float], None]
) -> Iterator[Wave]:
    """The sentences with their pauses."""
    around, pause = (
        np.zeros(max(0, round((seconds / wanted.speed - post_processing.TAIL_SECONDS) * rate)), np.float32)
        for seconds in (_AROUND_SECONDS, _PAUSE_SECONDS)
    )
    yield around
    for number, sentence in enumerate(wanted.sentences):
        if number:
            yield pause
        yield post_processing.treated(post_processing.trimmed(speak(sentence)), rate, wanted.voice.warmth)
        progress((number + 1) / len(wanted.sentences))
    yield around


def _levelled(pieces: Iterator[Wave], rate: int) -> Iterator[Wave]:
    """The pieces at one loudness, which the first of them settle."""
    first: list[Wave] = []
    held = 0
    for piece in pieces:
        first.append(piece)
        held += piece.size
        if held > post_processing.SAMPLE_SECONDS * rate:
            break
    factor = post_processing.gain(
        np.concatenate(first)[: round(2 * post_processing.SAMPLE_SECONDS * rate)], rate
    )
    for piece in first:
        yield post_processing.levelled(piece, factor)
    for piece in pieces:
        yield post_processing.levelled(piece, factor)
