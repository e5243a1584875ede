"""Minimal style: repeated cells of unequal lengths that shift against each other, over slow harmonies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import Chord, MusicalKey
from sixfold.engines.audio.piano.structure import BAR, PieceSection

_EIGHTH = 0.5
_ROWS = {
    "A": ("I I IV/5 I", "I iii IV I", "I I/3 IV I", "Isus2 I IV I"),
    "B": ("vi IV I/3 V", "IV vi ii V", "ii IV vi Vsus4"),
}
_CELLS = ((0, 2, 1, 3), (0, 1, 2, 3, 2, 1), (0, 2, 3, 1, 2), (3, 1, 2, 0, 2, 1, 3), (0, 3, 2, 3, 1, 3))
_BASSES = ((0, 2, 1, 2, 0, 2, 1, 2), (0, 1, 2, 1, 0, 1, 2, 1), (0, 2, 1, 2, 3, 2, 1, 2))


def compose(home: MusicalKey, sections: Sequence[PieceSection], rng: np.random.Generator) -> list[Note]:
    """Compose the whole piece, with the pedal held through each bar."""
    rows = {name: str(rng.choice(options)) for name, options in _ROWS.items()}
    left = _BASSES[int(rng.integers(len(_BASSES)))]
    cells = {name: _CELLS[int(at)] for name, at in zip("AB", rng.permutation(len(_CELLS)), strict=False)}
    total = sections[-1].bar + sections[-1].bars
    notes: list[Note] = []
    for section in sections:
        chords = theory.chords(rows[section.name[0]], home)
        bars_per_chord = max(1, section.bars // len(chords))
        for bar in range(section.bars):
            beat = (section.bar + bar) * BAR
            if section.bar + bar == total - 1:
                notes += _final(home, beat)
                continue
            chord = chords[bar // bars_per_chord % len(chords)]
            if section.bar + bar == total - 2:
                chord = theory.chord("Vsus4", home)
            notes += _left(beat, chord, left)
            notes += _right(beat, chord, cells[section.name[0]], section, bar)
            if section.name in ("A'", "B") or bar >= section.bars // 2:
                notes += _above(beat, chord, home, bar)
    return notes


def _spread(chord: Chord, low: int, count: int) -> list[int]:
    """Return `count` tones of the chord from near `low` up."""
    pitches = [pitch for pitch in range(low - 4, low + 30) if chord.has(pitch)]
    return pitches[:count]


def _left(beat: float, chord: Chord, figure: Sequence[int]) -> list[Note]:
    low = theory.nearest(chord.bass, 46)
    pitches = [low, *[p for p in _spread(chord, low + 10, 4) if p > low + 4]][:4]
    notes: list[Note] = []
    for at, index in enumerate(figure):
        pitch = pitches[min(index, len(pitches) - 1)]
        notes.append(Note(beat + at * _EIGHTH, BAR - at * _EIGHTH, pitch, 0.46 if at == 0 else 0.34))
    return notes


def _right(beat: float, chord: Chord, cell: Sequence[int], section: PieceSection, bar: int) -> list[Note]:
    """Return the right hand: the cell continues across bars and so shifts against the left hand."""
    pitches = _spread(chord, 64, 4)
    notes: list[Note] = []
    fast = section.name == "B"
    unit = _EIGHTH / 2 if fast else _EIGHTH
    per_bar = round(BAR / unit)
    introduced = len(cell) if bar or section.name != "A" or section.bar else max(2, len(cell) // 2)
    for at in range(per_bar):
        position = (bar * per_bar + at) % len(cell)
        # The first bar introduces only half of the cell.
        if position >= introduced:
            continue
        accent = 0.6 if position == 0 else 0.45
        length = min(BAR - at * unit, 2.0)
        notes.append(Note(beat + at * unit, length, pitches[cell[position]], accent * (0.85 if fast else 1)))
    return notes


def _above(beat: float, chord: Chord, home: MusicalKey, bar: int) -> list[Note]:
    """Return a bar of the slow upper voice."""
    options = [pitch for pitch in range(76, 89) if chord.has(pitch)]
    pitch = options[bar % len(options)]
    notes = [Note(beat, 2.5 if bar % 2 else BAR, pitch, 0.56)]
    if bar % 2:
        notes.append(Note(beat + 2.5, 1.5, home.step(pitch, -1), 0.46))
    return notes


def _final(home: MusicalKey, beat: float) -> list[Note]:
    low = theory.nearest(home.tonic, 40)
    return [
        Note(beat + at * 0.12, BAR - at * 0.12, low + tone, 0.46)
        for at, tone in enumerate((0, 12, 19, 28, 36, 40))
    ]
