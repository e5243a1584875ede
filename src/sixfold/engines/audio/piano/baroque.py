"""Baroque style: four-part harmony with figured treble, and a middle section of broken chords."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import Chord, MusicalKey
from sixfold.engines.audio.piano import voices
from sixfold.engines.audio.piano.structure import BAR, PieceSection

Array = voices.Array

_HALF = 2.0  # the duration of a chord in beats
# The chords that may follow each chord, with their weights.
_NEXT: dict[str, tuple[tuple[str, float], ...]] = {
    "I": (("IV", 4), ("V", 1), ("vi", 2), ("ii/3", 2), ("V/3", 2), ("I/3", 4)),
    "I/3": (("IV", 4), ("ii/3", 2), ("I", 2)),
    "ii": (("V", 4), ("V7", 2)),
    "ii/3": (("V", 4), ("V7", 2), ("vii°/3", 1)),
    "iii": (("vi", 4), ("IV", 2)),
    "IV": (("V", 2), ("ii", 1), ("I", 3), ("I/3", 2), ("vii°/3", 1)),
    "V": (("I", 6), ("vi", 2)),
    "V/3": (("I", 5),),
    "V7": (("I", 5), ("vi", 2)),
    "vi": (("IV", 4), ("ii/3", 3), ("I/3", 2)),
    "vii°/3": (("I", 3), ("I/3", 3)),
    "V/V": (("V", 5),),
    "V/vi": (("vi", 5),),
}
_CADENCES: dict[str, tuple[tuple[str, ...], ...]] = {
    "half": (("ii/3", "V"), ("IV", "V")),
    "full": (("V7", "I"), ("V", "I")),
    "turn": (("V/vi", "vi", "ii/3", "V7"), ("vi", "V/V", "V", "V7"), ("IV", "V7")),
    "end": (("V7", "I", "I"), ("V", "I", "I")),
}
_RHYTHMS: tuple[tuple[float, ...], ...] = (
    (0.5, 0.5, 0.5, 0.5),
    (1.0, 0.5, 0.5),
    (0.5, 0.25, 0.25, 0.5, 0.5),
    (0.75, 0.25, 0.5, 0.5),
    (0.25, 0.25, 0.25, 0.25, 0.5, 0.5),
)


def skeleton(
    home: MusicalKey, sections: Sequence[PieceSection], rng: np.random.Generator
) -> tuple[list[Chord], Array]:
    """Return the chords, one per half bar, and their four voices."""
    names: list[str] = []
    first: list[str] = []
    for section in sections:
        slots = round(section.bars * BAR / _HALF)
        row = _walk(slots, section.cadence, rng) if section.name == "B" or not first else first
        first = first or row
        names += _with_cadence(row, slots, section.cadence, rng)
    chords = [theory.chord(name, home) for name in names]
    rise = np.sin(np.linspace(0, np.pi * len(sections), len(chords)) % np.pi)
    goal = 68 + 6 * rise + rng.normal(0, 1.2, len(chords))
    goal[-1] = theory.nearest(home.tonic, 70)
    return chords, voices.lead([voices.candidates(chord, home) for chord in chords], home, goal, rng)


def _walk(slots: int, cadence: str, rng: np.random.Generator) -> list[str]:
    row = ["vi" if cadence == "turn" else "I"]
    while len(row) < slots:
        names, weights = zip(*_NEXT[row[-1]], strict=True)
        row.append(str(rng.choice(names, p=np.array(weights) / sum(weights))))
    return row


def _with_cadence(row: Sequence[str], slots: int, cadence: str, rng: np.random.Generator) -> list[str]:
    """Return the progression with `slots` chords, ending in a cadence that fits the chord before it."""
    progression = [*row, *["I", "IV", "V", "I"] * 4][:slots]
    cadences = [list(close)[-slots:] for close in _CADENCES[cadence]]
    order = [cadences[int(at)] for at in rng.permutation(len(cadences))]
    for close in order:
        before = progression[: slots - len(close)]
        if not before or close[0] in [name for name, _ in _NEXT[before[-1]]]:
            return [*before, *close]
    close = order[0]
    before = [*progression[: slots - len(close) - 1], "I" if close[0] != "I" else "V"]
    return [*before, *close]


def compose(home: MusicalKey, sections: Sequence[PieceSection], rng: np.random.Generator) -> list[Note]:
    chords, rows = skeleton(home, sections, rng)
    main, other = (_RHYTHMS[int(at)] for at in rng.permutation(len(_RHYTHMS))[:2])
    notes: list[Note] = []
    for section in sections:
        begin = round(section.bar * BAR / _HALF)
        slots = round(section.bars * BAR / _HALF)
        last = begin + slots == len(chords)
        for slot in range(begin, begin + slots - (2 if last else 0)):
            follows = rows[min(slot + 1, len(rows) - 1)]
            place = _Slot(slot * _HALF, chords[slot], rows[slot], follows, home)
            if section.name == "B":
                notes += _broken(place)
            else:
                rhythm = other if slot % 4 == 3 or (section.name == "A'" and slot % 2) else main
                notes += _figured_slot(place, rhythm, rng)
        if last:
            notes += _final(rows[-2 if len(rows) > 1 else -1], (len(chords) - min(2, slots)) * _HALF, home)
    return notes


class _Slot:
    """Half a bar: its chord, its voices, and the voices of the next half bar."""

    def __init__(self, beat: float, chord: Chord, now: Array, after: Array, home: MusicalKey) -> None:
        self.beat = beat
        self.chord = chord
        self.now = [int(pitch) for pitch in now]
        self.after = [int(pitch) for pitch in after]
        self.home = home


def _figured_slot(slot: _Slot, rhythm: Sequence[float], rng: np.random.Generator) -> list[Note]:
    """Return a treble figure, sustained middle voices and a walking bass."""
    notes: list[Note] = []
    beat = slot.beat
    for count, (length, pitch) in enumerate(zip(rhythm, _figure(slot, len(rhythm), rng), strict=True)):
        strong = 0.66 if count == 0 else 0.56 if beat % 1 == 0 else 0.48
        notes.append(Note(beat, length * 0.95, pitch, strong))
        beat += length
    notes += [Note(slot.beat, _HALF * 0.97, pitch, 0.36) for pitch in slot.now[1:3]]
    bass, goal = slot.now[0], slot.after[0]
    notes.append(Note(slot.beat, 0.98, bass, 0.54))
    between = bass + 12 if bass < 45 else bass - 12
    if 2 < abs(goal - bass) < 6:
        between = slot.home.step(bass, 1 if goal > bass else -1)
        between = between if slot.chord.has(between) else slot.home.step(bass, 2 if goal > bass else -2)
    notes.append(Note(slot.beat + 1, 0.95, between, 0.46))
    return notes


def _figure(slot: _Slot, count: int, rng: np.random.Generator) -> list[int]:
    """Return `count` pitches from the slot's treble note toward the next one, by steps or by chord tones."""
    start, goal = slot.now[3], slot.after[3]
    ladder = slot.home.ladder(start - 14, start + 14)
    tones = [pitch for pitch in range(start - 9, start + 10) if slot.chord.has(pitch)]
    start_index = min(range(len(ladder)), key=lambda at: abs(ladder[at] - start))
    goal_index = min(range(len(ladder)), key=lambda at: abs(ladder[at] - goal))
    gap = goal_index - start_index
    if abs(gap) >= count:
        targets = np.linspace(start, goal, count + 1)[1:-1]
        return [start, *[min(tones, key=lambda tone, at=at: abs(tone - at)) for at in targets]][:count]
    toward = 1 if gap > 0 or (gap == 0 and rng.random() < 0.5) else -1
    spare = count - abs(gap)
    out = max(0, spare // 2)
    path = [start_index]
    for turn in range(1, count):
        path.append(path[-1] - toward if turn <= out else path[-1] + toward)
    # The target note is not anticipated.
    if path[-1] == goal_index:
        path[-1] = goal_index + toward
    return [ladder[int(np.clip(at, 0, len(ladder) - 1))] for at in path[:count]]


def _broken(slot: _Slot) -> list[Note]:
    """Return the chord as broken sixteenths over a sustained bass."""
    low, tenor, alto, treble = slot.now
    figure = (low, tenor, alto, treble, alto, treble, alto, tenor)
    notes = [Note(slot.beat, _HALF * 0.98, low, 0.55)]
    for at, pitch in enumerate(figure[1:], start=1):
        weight = 0.58 if pitch == treble else 0.42
        notes.append(Note(slot.beat + at * 0.25, _HALF - at * 0.25, pitch, weight))
    return notes


def _final(row: Array, beat: float, home: MusicalKey) -> list[Note]:
    """Return the last chord as an arpeggio."""
    low = theory.nearest(home.tonic, 40)
    pitches = sorted({low, *(int(pitch) for pitch in row)})
    return [Note(beat + 0.05 * at, BAR - 0.05 * at, pitch, 0.56) for at, pitch in enumerate(pitches)]
