"""Melodies: a motif, its answer, and what follows from them; of several candidates the best is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey

# Rhythms of one bar of four beats, in eighths; and of three. x begins a note, - holds it, . is silence.
_RHYTHMS = {
    4: (
        "x-x-xxx-",
        "x--xx-x-",
        "xxx-x-x-",
        "x---x-xx",
        ".xx-x-x-",
        "x-xxx---",
        "x--x--x-",
        "x-x-x---",
        ".xxxx---",
    ),
    3: ("x---x-", "x-xxx-", "x-x-x-", "x-----", "xxxxx-"),
}
_CLOSING = {4: ("x-x-x---", "x---x---", "x--x----"), 3: ("x-----", "x-x---")}
_PENTATONIC = {False: (0, 2, 4, 7, 9), True: (0, 3, 5, 7, 10)}
_CENTRE = 71
_REACH = 9


@dataclass(frozen=True, slots=True)
class MelodyLine:
    """What a melody stands on: its key, its chords (one a bar), beats of a bar, and how busy it is.

    `syllables` are those of the lines that it is to carry, two bars each; none leave it free.
    """

    home: MusicalKey
    chords: Sequence[Chord]
    beats: int
    density: float
    pentatonic: bool = False
    syllables: tuple[int, ...] = ()
    centre: int = _CENTRE


def best(line: MelodyLine, rng: np.random.Generator, candidates: int) -> list[Note]:
    """The best of so many candidates, from beat 0 on."""
    found = [drawn(line, rng) for _ in range(max(1, candidates))]
    return max(found, key=lambda notes: worth(notes, line))


def drawn(line: MelodyLine, rng: np.random.Generator) -> list[Note]:
    """One candidate: bars a b a' c, over and over."""
    bars = len(line.chords)
    if line.syllables:
        rhythm = [_carrying(count, line.beats) for count in line.syllables]
        plan = [bar for pair in rhythm for bar in pair]
        plan = (plan * (bars // len(plan) + 1))[:bars]
    else:
        plan = _plan(line, bars, rng)
    contours = {index: rng.integers(-2, 3, 16) for index in range(3)}
    notes: list[Note] = []
    pitch = theory.nearest(line.chords[0].classes[int(rng.integers(2))], line.centre)
    for bar, pattern in enumerate(plan):
        shape = contours[(0, 1, 0, 2)[bar % 4]]
        goal = line.centre + _arch(bar, bars)
        for at, length in _onsets(pattern):
            beat = at / 2
            pitch = _next(pitch, line, bar, beat, int(shape[at % 16]), goal)
            accent = 0.74 if at == 0 else 0.66 if beat % 1 == 0 else 0.58
            notes.append(Note(bar * line.beats + beat, length / 2 * 0.94, pitch, accent))
    return _closed(notes, line)


def _arch(bar: int, bars: int) -> float:
    return 4.0 * float(np.sin(np.pi * (bar % 8 + 0.5) / min(8, max(2, bars))))


def _plan(line: MelodyLine, bars: int, rng: np.random.Generator) -> list[str]:
    motif, answer, turn = (
        _RHYTHMS[line.beats][int(at)] for at in rng.permutation(len(_RHYTHMS[line.beats]))[:3]
    )
    close = _CLOSING[line.beats][int(rng.integers(len(_CLOSING[line.beats])))]
    rows = [motif, answer, motif, close, motif, answer, turn, close]
    plan = [rows[bar % 8] for bar in range(bars)]
    if line.density < 0.5:
        plan = [pattern if bar % 2 == 0 else _held(pattern) for bar, pattern in enumerate(plan)]
        plan = [_thinned(pattern) for pattern in plan]
    if bars > 1:
        plan[-1] = close
    return plan


def _held(pattern: str) -> str:
    return "x" + "-" * (len(pattern) - 1)


def _thinned(pattern: str) -> str:
    """Every other note of a rhythm, the one before it held on."""
    kept, out = False, ""
    for sign in pattern:
        kept = not kept if sign == "x" else kept
        out += "x" if sign == "x" and kept else "-" if sign == "x" else sign
    return out if "x" in out else _held(pattern)


def _carrying(count: int, beats: int) -> tuple[str, str]:
    """Two bars for a line of `count` syllables, with a breath at the end."""
    whole = beats * 4
    usable = whole - 3
    cells = min(count, usable)
    places = np.unique(np.round(np.linspace(0, usable - 1, cells)).astype(int))
    signs = ["-"] * usable + ["-", ".", "."]
    for place in places:
        signs[place] = "x"
    text = "".join(signs)
    return text[: whole // 2], text[whole // 2 :]


def _onsets(pattern: str) -> list[tuple[int, int]]:
    """Each note of a rhythm: where it begins, and how long it is, in eighths."""
    found: list[tuple[int, int]] = []
    for at, sign in enumerate(pattern):
        if sign == "x":
            rest = pattern[at + 1 :]
            found.append((at, 1 + len(rest) - len(rest.lstrip("-"))))
    return found


def _next(pitch: int, line: MelodyLine, bar: int, beat: float, step: int, goal: float) -> int:
    """The following pitch: a chord's tone on strong beats, else a step of the scale."""
    chord = line.chords[bar]
    wanted = pitch + step * 2 + 0.25 * (goal - pitch)
    if beat == 0 and bar % 4 == 3 and chord.has(line.home.tonic):  # a phrase comes home where it can
        return theory.nearest(line.home.tonic, pitch)
    if beat in (0, 2):
        tones = [p for p in range(pitch - 8, pitch + 9) if chord.has(p)]
    else:
        steps = _PENTATONIC[line.home.minor] if line.pentatonic else ()
        within = {(line.home.tonic + s) % OCTAVE for s in steps} or set(line.home.scale)
        tones = [p for p in range(pitch - 5, pitch + 6) if p % OCTAVE in within]
    low, high = line.centre - _REACH, line.centre + _REACH + 3
    inside = [p for p in tones if low <= p <= high] or tones or [pitch]
    return min(inside, key=lambda p: abs(p - wanted) + (1.5 if p == pitch else 0))


def _closed(notes: list[Note], line: MelodyLine) -> list[Note]:
    """The last note on a tone of the last chord, its root where that is near."""
    if not notes:
        return notes
    last = notes[-1]
    pitch = theory.nearest(line.chords[-1].root, last.pitch)
    return [*notes[:-1], Note(last.beat, last.beats, pitch, last.loud)]


def worth(notes: Sequence[Note], line: MelodyLine) -> float:
    """How well a melody sings: steps more than leaps, one summit, many notes, strong beats in the chord."""
    if len(notes) < 2:
        return 0.0
    pitches = np.array([note.pitch for note in notes])
    size = np.abs(np.diff(pitches))
    singing = float(((size > 0) & (size <= 2)).mean() - 1.2 * (size > 7).mean() - 0.7 * (size == 0).mean())
    summit = 1 / float((pitches == pitches.max()).sum())
    variety = len(set(pitches.tolist())) / 12
    strong = [note for note in notes if note.beat % 2 == 0]
    fitting = [line.chords[int(note.beat // line.beats)].has(note.pitch) for note in strong]
    return singing + 0.4 * summit + min(0.7, variety) + 0.5 * (float(np.mean(fitting)) if fitting else 0)
