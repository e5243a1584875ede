"""Engine for piano music in three styles, composed and synthesized."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
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
# Progress after composition and after playing.
_COMPOSED, _PLAYED = 0.1, 0.8


class PlayingStyle(msgspec.Struct, frozen=True):
    """A style: its composer, the depth of its dynamics, and the delay of off-beats at 120 BPM, in beats."""

    compose: Callable[[MusicalKey, Sequence[PieceSection], np.random.Generator], list[Note]]
    depth: float
    swing: float = 0.0


STYLES = {
    "open-piano-baroque": PlayingStyle(baroque.compose, 0.14),
    "open-piano-jazz": PlayingStyle(jazz.compose, 0.18, 1 / 6),
    "open-piano-minimal": PlayingStyle(minimal.compose, 0.3),
}


class PianoEngine:
    """Composes and plays piano music; the same inputs result in the same bytes."""

    name = "piano"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return one piece of exactly `bars` bars at `tempo`."""
        inputs = task.inputs
        home = theory.key(str(inputs["key"]))
        notes = compose(
            str(inputs["model"]), home, int(inputs["bars"]), int(inputs["tempo"]), int(inputs["seed"])
        )
        context.progress(_COMPOSED)
        return perform(notes, task, context)


def compose(model: str, home: MusicalKey, bars: int, tempo: int, seed: int) -> list[Note]:
    """Compose a piece in one of `STYLES`."""
    style = STYLES[model]
    sections = structure.form(bars)
    notes = style.compose(home, sections, noise.stream(seed, model))
    delay = style.swing * float(np.clip(1.25 - tempo / 480, 0.6, 1.05))
    return structure.apply_dynamics(
        list(score.swing(score.cut(notes, bars * structure.BAR), delay)), sections, style.depth
    )


def perform(notes: Sequence[Note], task: Task, context: Context) -> Result:
    """Return the notes as an audio file of the requested piano."""
    inputs = task.inputs
    tempo, bars, seed = int(inputs["tempo"]), int(inputs["bars"]), int(inputs["seed"])
    sound = strings.SOUNDS[str(inputs["sound"])]
    seconds = bars * structure.BAR * 60 / tempo

    def progress(fraction: float) -> None:
        context.progress(_COMPOSED + (_PLAYED - _COMPOSED) * fraction)

    dry = render.play(notes, tempo, seconds, render.Piano(sound, seed), progress)
    context.progress(_PLAYED)
    signal = render.add_room(dry, sound, seed)
    context.progress(0.95)
    path = context.scratch / f"piano.{_FORMAT}"
    return Result((files.write(signal, _FORMAT, path),), {"notes": len(notes)})
