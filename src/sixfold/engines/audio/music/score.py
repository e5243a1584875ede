"""What is played: notes on a grid of beats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Note:
    """One note: when and how long in beats, a MIDI pitch, a loudness from 0 to 1, and who plays it."""

    beat: float
    beats: float
    pitch: int
    loud: float = 0.7
    part: str = "piano"


def moved(
    notes: Iterable[Note], beats: float = 0.0, semitones: int = 0, louder: float = 1.0
) -> Iterator[Note]:
    """The notes at another time, pitch and loudness."""
    for note in notes:
        yield replace(
            note, beat=note.beat + beats, pitch=note.pitch + semitones, loud=min(1.0, note.loud * louder)
        )


def swung(notes: Iterable[Note], late: float) -> Iterator[Note]:
    """The notes with each second half of a beat `late` (in beats)."""
    for note in notes:
        within = note.beat % 1
        if abs(within - 0.5) < 0.01:
            yield replace(note, beat=note.beat + late, beats=max(0.1, note.beats - late))
        else:
            yield note


def cut(notes: Iterable[Note], beats: float) -> Iterator[Note]:
    """What of the notes lies before a beat."""
    for note in notes:
        if note.beat < beats - 1e-6:
            yield replace(note, beats=min(note.beats, beats - note.beat))
