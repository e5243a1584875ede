"""Voice leading: four voices through a chord progression by the rules of classical harmony.

Every chord has candidate voicings, and dynamic programming finds the cheapest path through them: small steps,
no crossing, no parallel fifths or octaves, resolved leading notes and a melodic treble.
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
    """Return all valid voicings of a chord, one per row from the bass up."""
    bass = _within(chord.bass, RANGES[0])
    uppers = [[p for tone in set(chord.classes) for p in _within(tone, span)] for span in RANGES[1:]]
    needed = {chord.root, chord.classes[1]} | ({chord.classes[3]} if len(chord.classes) > 3 else set())
    leading = (home.tonic - 1) % OCTAVE
    voicings = [
        (low, *upper)
        for low, upper in product(bass, product(*uppers))
        if low <= upper[0] < upper[1] < upper[2]
        and upper[1] - upper[0] <= _WIDEST
        and upper[2] - upper[1] <= _WIDEST
        and needed <= {pitch % OCTAVE for pitch in (low, *upper)}
        and sum(pitch % OCTAVE == leading for pitch in (low, *upper)) < 2
    ]
    return np.array(voicings, np.int32)


def _within(pitch_class: int, span: tuple[int, int]) -> list[int]:
    return [pitch for pitch in range(span[0], span[1] + 1) if pitch % OCTAVE == pitch_class]


def lead(choices: list[Array], home: MusicalKey, goal: Array, rng: np.random.Generator) -> Array:
    """Return the cheapest path, a row of four pitches per chord; `goal` is the preferred treble pitch."""
    costs = [
        _voicing_cost(rows, aim, home) + rng.uniform(0, 1.2, len(rows))
        for rows, aim in zip(choices, goal, strict=True)
    ]
    total, back = costs[0], []
    for before, after, cost in zip(choices, choices[1:], costs[1:], strict=False):
        sums = total[:, None] + _move_cost(before, after, home)
        back.append(sums.argmin(0))
        total = sums.min(0) + cost
    index = int(total.argmin())
    path = [index]
    for previous in reversed(back):
        index = int(previous[index])
        path.append(index)
    return np.array([rows[index] for rows, index in zip(choices, reversed(path), strict=True)])


def _voicing_cost(rows: Array, aim: float, home: MusicalKey) -> Array:
    """Return the cost of each voicing: the distances of treble and bass from their goals, less the tonics."""
    tonics = (rows % OCTAVE == home.tonic).sum(1)
    return 0.35 * np.abs(rows[:, 3] - aim) + 0.05 * np.abs(rows[:, 0] - 46) - 1.2 * tonics


def _move_cost(before: Array, after: Array, home: MusicalKey) -> Array:
    """Return the cost of moving from each row of `before` to each row of `after`."""
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
    """Return, for each pair of voicings, whether two voices move in parallel fifths or octaves."""
    result: Any = np.zeros(np.broadcast_shapes(before.shape, after.shape)[:-1], bool)
    for low, high in _PAIRS:
        was = (before[..., high] - before[..., low]) % OCTAVE
        now = (after[..., high] - after[..., low]) % OCTAVE
        moves = (after[..., low] != before[..., low]) & (after[..., high] != before[..., high])
        result = result | (moves & (was == now) & ((was == 0) | (was == 7)))
    return result
