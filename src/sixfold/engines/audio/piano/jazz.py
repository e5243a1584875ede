"""Jazz style: ii-V progressions, rootless voicings in the left hand, a running line in the right hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey
from sixfold.engines.audio.piano.structure import BAR, PieceSection

_HALF = 2.0  # beats
_ROWS = {
    "A": ("6 6 ii7 V7 6 vi7 ii7 V7", "6 6 IV7 IV7 6 6 ii7 V7", "6 IV7 6 6 ii7 V7 6 6"),
    "B": ("V7/vi V7/vi vi7 vi7 V7/V V7/V V7 V7", "IVmaj7 IVmaj7 ii7 V7 6 vi7 ii7 V7"),
}
_CLOSES = {"half": "ii7 V7", "full": "ii7 V7 6 6", "turn": "ii7 V7", "end": "ii7 V7 6 6"}
# Rhythms of a line in eighths over two bars: x is played, o is held, . is a rest.
_LINES = (
    ".xxxxxxx xxxxxo..",
    "x.xxxxxx xoo...xx",
    "xxxxxxxx xo......",
    "..xxxxxx xxxoo..x",
    "x..xx.xx xxxxxxo.",
    "xxx.xxxx x..xx.xo",
)
_COMPING = ((1.5,), (1.0, 2.5), (1.5, 3.0), (1.5, 3.5), (2.5,), (1.0, 3.5))
_LOW, _HIGH = 62, 86
_SCALES = {10: (0, 2, 4, 5, 7, 9, 10), 11: (0, 2, 4, 5, 7, 9, 11), 9: (0, 2, 4, 5, 7, 9, 11)}
_DORIAN, _ALTERED = (0, 2, 3, 5, 7, 9, 10), (0, 1, 4, 5, 7, 8, 10)


def changes(home: MusicalKey, sections: Sequence[PieceSection], rng: np.random.Generator) -> list[Chord]:
    """Return the chords, one per half bar."""
    rows_by_section = {name: rows[int(rng.integers(len(rows)))].split() for name, rows in _ROWS.items()}
    names: list[str] = []
    for section in sections:
        slots = round(section.bars * BAR / _HALF)
        close = _CLOSES[section.cadence].split()[-slots:]
        row = (rows_by_section[section.name[0]] * (slots // 8 + 1))[: slots - len(close)]
        names += [*row, *close]
    return [theory.chord(name if name[0] in "IViv" else f"I{name}", home) for name in names]


def compose(home: MusicalKey, sections: Sequence[PieceSection], rng: np.random.Generator) -> list[Note]:
    """Compose the whole piece without swing, which is added later."""
    chords = changes(home, sections, rng)
    notes: list[Note] = []
    left = 57.0
    for section in sections:
        own = np.random.default_rng(
            [int(rng.bit_generator.state["state"]["state"] % 2**32), ord(section.name[0])]
        )
        begin = section.bar * 2
        slots = section.bars * 2
        last = begin + slots == len(chords)
        for bar in range(section.bars - (1 if last else 0)):
            pair = chords[begin + 2 * bar : begin + 2 * bar + 2]
            comp, left = _comp((section.bar + bar) * BAR, pair, left, own)
            notes += comp
        notes += _line(section, chords[begin : begin + slots], own, last)
    notes += _final(home, len(chords) * _HALF - BAR)
    return notes


def rootless(chord: Chord, near: float) -> list[int]:
    """Return the third, fifth or sixth, seventh and ninth in the inversion nearest to `near`."""
    third, fifth, seventh = chord.tones[1:4]
    sixth = 9 if (third, seventh) == (4, 10) else fifth
    ninth = 14
    # The tonic chord contains its root.
    if seventh == 9:
        seventh = 12
    forms = ((third, sixth, seventh, ninth), (seventh - 12, ninth - 12, third, sixth))
    voicings: list[list[int]] = []
    for form in forms:
        for octave in (36, 48, 60):
            pitches = [chord.root + octave + tone for tone in form]
            if pitches[0] >= 49:
                voicings.append(pitches)
    return min(voicings, key=lambda pitches: abs(float(np.mean(pitches)) - near))


def _comp(
    beat: float, pair: Sequence[Chord], near: float, rng: np.random.Generator
) -> tuple[list[Note], float]:
    """Return a bar of the left hand (roots on strong beats, chords between them), and the new `near`."""
    notes: list[Note] = []
    for half, chord in enumerate(pair):
        if half == 0 or chord != pair[0]:
            low = theory.nearest(chord.bass, 46)
            home = chord.tones[-1] == 9
            notes.append(Note(beat + half * _HALF, 1.8 if home else 0.9, low, 0.52 if home else 0.42))
    for at in _COMPING[int(rng.integers(len(_COMPING)))]:
        chord = pair[min(len(pair) - 1, int(at // _HALF))]
        pitches = rootless(chord, near)
        near = 0.7 * float(np.mean(pitches)) + 0.3 * 57
        length = 0.4 if rng.random() < 0.5 else 0.9
        notes += [Note(beat + at, length, pitch, 0.36) for pitch in pitches]
    return notes, near


def _scale(chord: Chord) -> tuple[int, ...]:
    if chord.tones[1] == 3:
        return _DORIAN
    if chord.tones[-1] == 13:
        return _ALTERED
    return _SCALES.get(chord.tones[-1], _SCALES[11])


def _line(section: PieceSection, chords: Sequence[Chord], rng: np.random.Generator, last: bool) -> list[Note]:
    """Return the right hand of a section: guide tones on the beat, approached by steps and half steps."""
    notes: list[Note] = []
    pitch, direction = 74, -1
    eighths = section.bars * 8 - (8 if last else 0)
    plan = "".join(
        _LINES[int(rng.integers(len(_LINES)))].replace(" ", "") for _ in range(-(-section.bars // 2))
    )[:eighths]
    for at, sign in enumerate(plan):
        if sign == "o" and notes:
            last_note = notes[-1]
            notes[-1] = Note(last_note.beat, last_note.beats + 0.5, last_note.pitch, last_note.loudness)
        if sign != "x":
            continue
        chord = chords[min(at // 4, len(chords) - 1)]
        if pitch > _HIGH - 4 or pitch < _LOW + 4:
            direction = -1 if pitch > 74 else 1
        elif rng.random() < 0.16:
            direction = -direction
        pitch = _next(pitch, direction, chord, chords[min((at + 1) // 4, len(chords) - 1)], at, rng)
        # Off-beats are accented.
        loudness = 0.62 if at % 2 else 0.54
        notes.append(Note(section.bar * BAR + at * 0.5, 0.47, pitch, loudness + 0.04 * float(rng.random())))
    return notes


def _next(pitch: int, direction: int, chord: Chord, after: Chord, at: int, rng: np.random.Generator) -> int:
    guides = chord.tones[:3] if chord.tones[-1] == 9 else chord.tones[1:]
    if at % 2 == 0:
        options = [
            p
            for p in range(pitch - 7, pitch + 8)
            if (p - chord.root) % OCTAVE in {g % OCTAVE for g in guides}
        ]
        ahead = [p for p in options if 0 < (p - pitch) * direction <= 5] or [p for p in options if p != pitch]
        return (
            min(ahead, key=lambda p: abs(p - pitch))
            if rng.random() < 0.75
            else ahead[int(rng.integers(len(ahead)))]
        )
    # Approach the first note of the next bar by a half step.
    if at % 8 == 7 and rng.random() < 0.6:
        goal = theory.nearest((after.root + after.tones[1]) % OCTAVE, pitch + 2 * direction)
        return goal + (1 if rng.random() < 0.5 else -1)
    steps = [p for p in range(pitch - 4, pitch + 5) if (p - chord.root) % OCTAVE in _scale(chord)]
    ahead = [p for p in steps if (p - pitch) * direction > 0]
    return min(ahead, key=lambda p: abs(p - pitch)) if ahead else pitch + direction


def _final(home: MusicalKey, beat: float) -> list[Note]:
    """Return the tonic chord with the sixth and ninth, and two high notes."""
    low = theory.nearest(home.tonic, 38)
    chord = [low, low + 12, low + 16, low + 21, low + 26, low + 31]
    notes = [Note(beat, BAR, pitch, 0.5) for pitch in chord]
    notes += [Note(beat + 1, BAR - 1, low + 43, 0.42), Note(beat + 1.5, BAR - 1.5, low + 48, 0.46)]
    return notes
