"""Four voices through a row of chords, by the rules of the old school.

Every chord has its candidates, and the cheapest road through all of them is found at once: small steps, no
crossing, no fifths or octaves in parallel, leading notes that lead, and a treble that sings.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey

Array = NDArray[Any]

RANGES = ((38, 57), (48, 66), (55, 73), (62, 81))  # bass, tenor, alto, treble
_WIDEST = 12
_FORBIDDEN = 500.0
_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def candidates(chord: Chord, home: MusicalKey) -> Array:
    """All settings of a chord that may stand, one in each row from the bass up."""
    bass = _within(chord.bass, RANGES[0])
    uppers = [[p for tone in set(chord.classes) for p in _within(tone, span)] for span in RANGES[1:]]
    needed = {chord.root, chord.classes[1]} | ({chord.classes[3]} if len(chord.classes) > 3 else set())
    leading = (home.tonic - 1) % OCTAVE
    found = [
        (low, *upper)
        for low, upper in product(bass, product(*uppers))
        if low <= upper[0] < upper[1] < upper[2]
        and upper[1] - upper[0] <= _WIDEST
        and upper[2] - upper[1] <= _WIDEST
        and needed <= {pitch % OCTAVE for pitch in (low, *upper)}
        and sum(pitch % OCTAVE == leading for pitch in (low, *upper)) < 2
    ]
    return np.array(found, np.int32)


def _within(pitch_class: int, span: tuple[int, int]) -> list[int]:
    return [pitch for pitch in range(span[0], span[1] + 1) if pitch % OCTAVE == pitch_class]


def led(choices: list[Array], home: MusicalKey, goal: Array, rng: np.random.Generator) -> Array:
    """The best road: one row of four pitches for each chord. `goal` is where the treble would like to be."""
    costs = [
        _standing(rows, aim, home) + rng.uniform(0, 1.2, len(rows))
        for rows, aim in zip(choices, goal, strict=True)
    ]
    total, back = costs[0], []
    for before, after, cost in zip(choices, choices[1:], costs[1:], strict=False):
        whole = total[:, None] + _moving(before, after, home)
        back.append(whole.argmin(0))
        total = whole.min(0) + cost
    at = int(total.argmin())
    road = [at]
    for came in reversed(back):
        at = int(came[at])
        road.append(at)
    return np.array([rows[index] for rows, index in zip(choices, reversed(road), strict=True)])


def _standing(rows: Array, aim: float, home: MusicalKey) -> Array:
    """What a setting costs by itself: the treble off its aim, a low or high bass, few tonics."""
    tonics = (rows % OCTAVE == home.tonic).sum(1)
    return 0.35 * np.abs(rows[:, 3] - aim) + 0.05 * np.abs(rows[:, 0] - 46) - 1.2 * tonics


def _moving(before: Array, after: Array, home: MusicalKey) -> Array:
    """What it costs to go from each row of `before` to each of `after`."""
    step = after[None] - before[:, None]
    size = np.abs(step)
    cost = (size[..., 1] + size[..., 2]) * 0.5 + size[..., 0] * 0.15
    treble = size[..., 3]
    cost = cost + np.choose(np.minimum(treble, 9), [1.6, 0, 0, 0.5, 0.7, 1.2, 3, 2, 3, 6])
    cost = cost + np.where(size[..., 1:3] > 7, 4, 0).sum(-1) + np.where(size[..., 0] > 12, 20, 0)
    cost = cost + _FORBIDDEN * parallels(before[:, None], after[None]).astype(float)
    leading = (before % OCTAVE == (home.tonic - 1) % OCTAVE)[:, None] & (after[None] != before[:, None])
    resolved = step == 1
    return cost + np.where(leading & ~resolved, np.array([0.5, 1.5, 1.5, 5.0]), 0).sum(-1)


def parallels(before: Array, after: Array) -> Array:
    """Whether any two voices go together from one fifth or octave to the next."""
    found: Any = np.zeros(np.broadcast_shapes(before.shape, after.shape)[:-1], bool)
    for low, high in _PAIRS:
        was = (before[..., high] - before[..., low]) % OCTAVE
        now = (after[..., high] - after[..., low]) % OCTAVE
        moves = (after[..., low] != before[..., low]) & (after[..., high] != before[..., high])
        found = found | (moves & (was == now) & ((was == 0) | (was == 7)))
    return found
