"""Generation of melodies from motifs, with selection of the best of several candidates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey

# Rhythms of a bar of four and of three beats, in eighths: x begins a note, - holds it, . is a rest.
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
_CENTER = 71
_REACH = 9


class MelodyLine(msgspec.Struct, frozen=True):
    """The constraints of a melody: key, one chord per bar, beats per bar, and density of notes.

    `syllables` are the numbers of syllables of the lines of lyrics, which take two bars each; without lyrics,
    the rhythm is free.
    """

    home: MusicalKey
    chords: Sequence[Chord]
    beats: int
    density: float
    pentatonic: bool = False
    syllables: tuple[int, ...] = ()
    center: int = _CENTER


def best(line: MelodyLine, rng: np.random.Generator, candidates: int) -> list[Note]:
    """Return the candidate melody with the highest score, from beat 0 on."""
    melodies = [generate(line, rng) for _ in range(max(1, candidates))]
    return max(melodies, key=lambda notes: score(notes, line))


def generate(line: MelodyLine, rng: np.random.Generator) -> list[Note]:
    """Return a candidate melody with the repeated bar structure a b a c."""
    bars = len(line.chords)
    if line.syllables:
        rhythm = [_rhythm_for(count, line.beats) for count in line.syllables]
        plan = [bar for pair in rhythm for bar in pair]
        plan = (plan * (bars // len(plan) + 1))[:bars]
    else:
        plan = _rhythm_plan(line, bars, rng)
    contours = {index: rng.integers(-2, 3, 16) for index in range(3)}
    notes: list[Note] = []
    pitch = theory.nearest(line.chords[0].classes[int(rng.integers(2))], line.center)
    for bar, pattern in enumerate(plan):
        shape = contours[(0, 1, 0, 2)[bar % 4]]
        goal = line.center + _arch(bar, bars)
        for at, length in _onsets(pattern):
            beat = at / 2
            pitch = _next(pitch, line, bar, beat, int(shape[at % 16]), goal)
            accent = 0.74 if at == 0 else 0.66 if beat % 1 == 0 else 0.58
            notes.append(Note(bar * line.beats + beat, length / 2 * 0.94, pitch, accent))
    return _close(notes, line)


def _arch(bar: int, bars: int) -> float:
    return 4.0 * float(np.sin(np.pi * (bar % 8 + 0.5) / min(8, max(2, bars))))


def _rhythm_plan(line: MelodyLine, bars: int, rng: np.random.Generator) -> list[str]:
    motif, answer, turn = (
        _RHYTHMS[line.beats][int(at)] for at in rng.permutation(len(_RHYTHMS[line.beats]))[:3]
    )
    close = _CLOSING[line.beats][int(rng.integers(len(_CLOSING[line.beats])))]
    rows = [motif, answer, motif, close, motif, answer, turn, close]
    plan = [rows[bar % 8] for bar in range(bars)]
    if line.density < 0.5:
        plan = [pattern if bar % 2 == 0 else _sustain(pattern) for bar, pattern in enumerate(plan)]
        plan = [_thin(pattern) for pattern in plan]
    if bars > 1:
        plan[-1] = close
    return plan


def _sustain(pattern: str) -> str:
    return "x" + "-" * (len(pattern) - 1)


def _thin(pattern: str) -> str:
    """Drop every other note of a rhythm and extend the note before it."""
    keep, out = False, ""
    for sign in pattern:
        keep = not keep if sign == "x" else keep
        out += "x" if sign == "x" and keep else "-" if sign == "x" else sign
    return out if "x" in out else _sustain(pattern)


def _rhythm_for(count: int, beats: int) -> tuple[str, str]:
    """Return the rhythms of the two bars of a line with `count` syllables, with a rest at the end."""
    cells_total = beats * 4
    usable = cells_total - 3
    cells = min(count, usable)
    positions = np.unique(np.round(np.linspace(0, usable - 1, cells)).astype(int))
    signs = ["-"] * usable + ["-", ".", "."]
    for position in positions:
        signs[position] = "x"
    text = "".join(signs)
    return text[: cells_total // 2], text[cells_total // 2 :]


def _onsets(pattern: str) -> list[tuple[int, int]]:
    """Return the start and length of each note of a rhythm, in eighths."""
    onsets: list[tuple[int, int]] = []
    for position, sign in enumerate(pattern):
        if sign == "x":
            tail = pattern[position + 1 :]
            onsets.append((position, 1 + len(tail) - len(tail.lstrip("-"))))
    return onsets


def _next(pitch: int, line: MelodyLine, bar: int, beat: float, step: int, goal: float) -> int:
    """Return the next pitch: a chord tone on strong beats, else a tone of the scale."""
    chord = line.chords[bar]
    target = pitch + step * 2 + 0.25 * (goal - pitch)
    # A phrase ends on the tonic if the chord contains it.
    if beat == 0 and bar % 4 == 3 and chord.has(line.home.tonic):
        return theory.nearest(line.home.tonic, pitch)
    if beat in (0, 2):
        tones = [p for p in range(pitch - 8, pitch + 9) if chord.has(p)]
    else:
        steps = _PENTATONIC[line.home.minor] if line.pentatonic else ()
        within = {(line.home.tonic + s) % OCTAVE for s in steps} or set(line.home.scale)
        tones = [p for p in range(pitch - 5, pitch + 6) if p % OCTAVE in within]
    low, high = line.center - _REACH, line.center + _REACH + 3
    inside = [p for p in tones if low <= p <= high] or tones or [pitch]
    return min(inside, key=lambda p: abs(p - target) + (1.5 if p == pitch else 0))


def _close(notes: list[Note], line: MelodyLine) -> list[Note]:
    """Move the last note to the nearest root of the last chord."""
    if not notes:
        return notes
    last = notes[-1]
    pitch = theory.nearest(line.chords[-1].root, last.pitch)
    return [*notes[:-1], Note(last.beat, last.beats, pitch, last.loudness)]


def score(notes: Sequence[Note], line: MelodyLine) -> float:
    """Rate a melody; small steps, a single highest note, variety and strong chord tones score high."""
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
