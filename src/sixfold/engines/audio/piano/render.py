"""A score at the piano: touch, pedal, room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE
from sixfold.engines.audio.music import mixing, synthesis
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.piano import strings
from sixfold.engines.audio.piano.strings import StringSound
from sixfold.engines.image.scene import noise

Array = mixing.Array

_FORCES = 7  # how many degrees of force a key has of its own; loudness between them is only volume
_LONGEST = 7.0
_HUMAN_SECONDS = 0.0035
_FALL_SECONDS = 0.11  # of the damper
_SYMPATHY = 0.025
_LAST_SECONDS = 0.35


class Piano:
    """Struck strings, each of them made once."""

    def __init__(self, sound: StringSound, seed: int) -> None:
        self._sound = sound
        self.seed = seed
        self._made: dict[tuple[int, int], Array] = {}

    def note(self, pitch: int, loud: float, seconds: float) -> tuple[Array, float]:
        """A note that is held for `seconds`, and the gain that it is played at."""
        degree = min(_FORCES - 1, int(loud * _FORCES))
        force = (degree + 0.5) / _FORCES
        wanted = min(_LONGEST, seconds + _FALL_SECONDS * 3)
        made = self._made.get((pitch, degree))
        if made is None or made.shape[1] < round(wanted * RATE):
            rng = noise.stream(self.seed, "string", pitch)
            made = strings.struck(pitch, force, min(_LONGEST, wanted * 1.3 + 0.3), self._sound, rng)
            self._made[pitch, degree] = made
        fall = _FALL_SECONDS * (2.2 if pitch > 88 else 1.4 if pitch < 45 else 1.0)
        return synthesis.released(made, round(seconds * RATE), fall * 3), (0.18 + 0.82 * loud) / (
            0.18 + 0.82 * force
        )


def played(
    notes: Sequence[Note], tempo: float, seconds: float, piano: Piano, step: Callable[[float], None]
) -> Array:
    """The notes without a room, as they reach two microphones; `step` hears how far it is."""
    out = mixing.silence(seconds)
    rng = noise.stream(piano.seed, "hands")
    beat = 60 / tempo
    for count, note in enumerate(notes):
        late = float(np.clip(rng.normal(0, _HUMAN_SECONDS), -0.008, 0.008)) if note.beat else 0.0
        loud = float(np.clip(note.loud * rng.uniform(0.93, 1.07), 0.02, 1))
        wave, gain = piano.note(note.pitch, loud, max(0.05, note.beats * beat))
        mixing.put(out, wave, note.beat * beat + late, gain)
        if count % 16 == 0:
            step(count / len(notes))
    return out


def recorded(dry: Array, sound: StringSound, seed: int) -> Array:
    """The same with the open strings, in the room, at the level of streams."""
    rng = noise.stream(seed, "room")
    resonant = mixing.convolved(dry, strings.sympathy(rng)) * np.float32(_SYMPATHY * sound.sustain)
    wet = mixing.convolved(dry + resonant, mixing.room(rng, sound.room_seconds, sound.room_hertz))
    mixed = (dry + resonant) * np.float32(1 - sound.share) + wet * np.float32(sound.share * 1.6)
    return mixing.mastered(mixed, _LAST_SECONDS)
