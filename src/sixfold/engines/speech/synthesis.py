"""Common parts of the speech engines: parsing of a task's inputs and recording of sentences to a file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, Task, UnusableInput
from sixfold.engines.speech import files, post_processing, sentences, spoken_forms, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_TEXTS = ("text", "input", "prompt")
_FORMATS = ("format", "response_format", "audio_format")
# Silence between sentences, and before the first and after the last one, at speed 1.
_PAUSE_SECONDS, _EDGE_SECONDS = 0.26, 0.12


class SpeechRequest(msgspec.Struct, frozen=True):
    """The sentences to speak, with voice, language hint, speed and file format."""

    sentences: tuple[str, ...]
    voice: SpeakingVoice
    language: str
    speed: float
    format: str


def parse(task: Task) -> SpeechRequest:
    """Parse the inputs of a task, whose names differ by model; raises `UnusableInput`."""
    text = next((str(task.inputs[name]) for name in _TEXTS if task.inputs.get(name)), "")
    parts = sentences.split(text)
    if not parts:
        raise UnusableInput("The text must contain letters or digits.")
    return SpeechRequest(
        sentences=tuple(parts),
        voice=voices.find(str(task.inputs.get("voice") or "")),
        language=voices.language(str(task.inputs.get("language") or "")),
        speed=float(task.inputs.get("speed") or 1),
        format=next((str(task.inputs[name]) for name in _FORMATS if task.inputs.get(name)), "mp3"),
    )


def record(
    request: SpeechRequest, speak: Callable[[str], Wave], rate: int, context: Context, share: float = 1.0
) -> Artifact:
    """Write all sentences as synthesized by `speak` to a file, and report progress from 0 to `share`."""
    context.progress(0.01)
    pieces = _normalize(_with_pauses(request, speak, rate, lambda done: context.progress(done * share)), rate)
    return files.write(pieces, rate, request.format, context.scratch / f"speech.{request.format}")


def _with_pauses(
    request: SpeechRequest, speak: Callable[[str], Wave], rate: int, progress: Callable[[float], None]
) -> Iterator[Wave]:
    edge, pause = (
        np.zeros(max(0, round((seconds / request.speed - post_processing.TAIL_SECONDS) * rate)), np.float32)
        for seconds in (_EDGE_SECONDS, _PAUSE_SECONDS)
    )
    yield edge
    language = request.language or request.voice.language
    for number, written in enumerate(request.sentences):
        sentence = spoken_forms.spoken(written, language)
        if number:
            yield pause
        yield post_processing.process(post_processing.trim(speak(sentence)), rate, request.voice.warmth)
        progress((number + 1) / len(request.sentences))
    yield edge


def _normalize(pieces: Iterator[Wave], rate: int) -> Iterator[Wave]:
    """Apply a constant gain that is determined by the loudness of the first pieces."""
    first: list[Wave] = []
    length = 0
    for piece in pieces:
        first.append(piece)
        length += piece.size
        if length > post_processing.SAMPLE_SECONDS * rate:
            break
    factor = post_processing.gain(
        np.concatenate(first)[: round(2 * post_processing.SAMPLE_SECONDS * rate)], rate
    )
    for piece in itertools.chain(first, pieces):
        yield post_processing.apply_gain(piece, factor)
