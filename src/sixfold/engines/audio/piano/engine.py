"""The engine: a composer in three manners, and the piano that plays what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.music import score, theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import MusicalKey
from sixfold.engines.audio.piano import baroque, jazz, minimal, render, strings, structure
from sixfold.engines.audio.piano.structure import PieceSection
from sixfold.engines.image.scene import noise

_FORMAT = "mp3"
_COMPOSED, _PLAYED = 0.1, 0.8  # of the progress


@dataclass(frozen=True, slots=True)
class PlayingStyle:
    """How a model composes, how much its dynamics move, and how late its off-beats come at 120 BPM."""

    compose: Callable[[MusicalKey, Sequence[PieceSection], np.random.Generator], list[Note]]
    depth: float
    swing: float = 0.0


MANNERS = {
    "open-piano-baroque": PlayingStyle(baroque.compose, 0.14),
    "open-piano-jazz": PlayingStyle(jazz.compose, 0.18, 1 / 6),
    "open-piano-minimal": PlayingStyle(minimal.compose, 0.3),
}


class PianoEngine:
    """Composes and plays; the same inputs give the same bytes."""

    name = "piano"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """One piece of exactly `bars` bars at `tempo`."""
        inputs = task.inputs
        home = theory.key(str(inputs["key"]))
        notes = composed(
            str(inputs["model"]), home, int(inputs["bars"]), int(inputs["tempo"]), int(inputs["seed"])
        )
        context.progress(_COMPOSED)
        return performed(notes, task, context)


def composed(model: str, home: MusicalKey, bars: int, tempo: int, seed: int) -> list[Note]:
    """What one of `MANNERS` writes."""
    manner = MANNERS[model]
    sections = structure.form(bars)
    notes = manner.compose(home, sections, noise.stream(seed, model))
    late = manner.swing * float(np.clip(1.25 - tempo / 480, 0.6, 1.05))
    return structure.phrased(
        list(score.swung(score.cut(notes, bars * structure.BAR), late)), sections, manner.depth
    )


def performed(notes: Sequence[Note], task: Task, context: Context) -> Result:
    """The notes at the piano that the task asks for, as a file."""
    inputs = task.inputs
    tempo, bars, seed = int(inputs["tempo"]), int(inputs["bars"]), int(inputs["seed"])
    sound = strings.SOUNDS[str(inputs["sound"])]
    seconds = bars * structure.BAR * 60 / tempo

    def step(part: float) -> None:
        context.progress(_COMPOSED + (_PLAYED - _COMPOSED) * part)

    dry = render.played(notes, tempo, seconds, render.Piano(sound, seed), step)
    context.progress(_PLAYED)
    made = render.recorded(dry, sound, seed)
    context.progress(0.95)
    return Result(
        (files.written(made, _FORMAT, context.scratch / f"piano.{_FORMAT}"),), {"notes": len(notes)}
    )
