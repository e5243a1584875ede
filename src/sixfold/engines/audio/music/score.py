"""Notes on a grid of beats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace


class Note(msgspec.Struct, frozen=True):
    """A note with start and length in beats, MIDI pitch, loudness from 0 to 1, and the part that plays it."""

    beat: float
    beats: float
    pitch: int
    loudness: float = 0.7
    part: str = "piano"


def transform(
    notes: Iterable[Note], beats: float = 0.0, semitones: int = 0, louder: float = 1.0
) -> Iterator[Note]:
    """Yield the notes shifted in time, transposed and scaled in loudness."""
    for note in notes:
        yield replace(
            note,
            beat=note.beat + beats,
            pitch=note.pitch + semitones,
            loudness=min(1.0, note.loudness * louder),
        )


def swing(notes: Iterable[Note], delay: float) -> Iterator[Note]:
    """Yield the notes; notes in the second half of a beat are delayed by `delay` beats."""
    for note in notes:
        within = note.beat % 1
        if abs(within - 0.5) < 0.01:
            yield replace(note, beat=note.beat + delay, beats=max(0.1, note.beats - delay))
        else:
            yield note


def cut(notes: Iterable[Note], beats: float) -> Iterator[Note]:
    """Yield the notes before a beat, shortened to end there."""
    for note in notes:
        if note.beat < beats - 1e-6:
            yield replace(note, beats=min(note.beats, beats - note.beat))
