"""Pieces by a policy that somebody brings: an ONNX model that says, step by step, which key is struck next.

The model has one input of int64, `[1, n]`: the tokens so far, at most the last 512. Token 0 is "the next
sixteenth"; 1 to 88 strike that key of the piano now, from the lowest A. Its first output holds 89 scores for
the token that follows, or `[1, n, 89]`, of which the last count. Keys outside of the asked scale are never
struck, and no more than four at once, so that key, bars and tempo are kept whatever the policy likes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import MusicalKey
from sixfold.engines.audio.piano import engine, structure
from sixfold.engines.image import onnx_session
from sixfold.engines.image.scene import noise

_KEYS, _LOWEST = 88, 21  # MIDI of the lowest A
_REST = 0
_STEPS = 4  # of a beat
_AT_ONCE = 4
_SEEN = 512
_LONGEST = 2.0  # beats that a note rings at most
_ENDING = 4  # steps at the end in which nothing new begins but the tonic
_COMPOSED = 0.1

Scores = NDArray[np.float32]


class PolicyEngine:
    """Composes by the policy in `policy_url`, and plays it at the same piano."""

    name = "piano-policy"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """One piece of exactly `bars` bars at `tempo`."""
        inputs = task.inputs
        home = theory.key(str(inputs["key"]))
        policy = _Policy(task.files["policy_url"])
        rng = noise.stream(int(inputs["seed"]), "policy")
        notes = composed(policy, home, int(inputs["bars"]), rng, context)
        return engine.performed(notes, task, context)


class _Policy:
    """The model, asked for scores."""

    def __init__(self, path: Path) -> None:
        try:
            self._session = onnx_session.OnnxSession(str(path))
        except EngineError as error:
            raise UnusableInput("policy_url is no ONNX model that can be loaded") from error

    def scores(self, tokens: list[int]) -> Scores:
        """What it says of each token, as the next one; raises `UnusableInput`."""
        asked = np.array([tokens[-_SEEN:]], np.int64)
        try:
            told = self._session.run(asked)
        except EngineError as error:
            raise UnusableInput("policy_url does not take tokens as a piano policy does") from error
        last = told.reshape(-1, told.shape[-1])[-1] if told.size else told.reshape(-1)
        if last.shape != (_KEYS + 1,) or not np.isfinite(last).all():
            raise UnusableInput(f"policy_url must give {_KEYS + 1} finite scores for the next token")
        return last


def composed(
    policy: Any, home: MusicalKey, bars: int, rng: np.random.Generator, context: Context
) -> list[Note]:
    """The notes that the policy strikes within so many bars."""
    allowed = np.array([True, *((key + _LOWEST) % 12 in home.scale for key in range(_KEYS))])
    tokens, begun, notes = [_REST], dict[int, float](), list[Note]()
    steps = round(bars * structure.BAR * _STEPS)
    for step in range(steps):
        beat, struck = step / _STEPS, set[int]()
        context.progress(_COMPOSED * step / steps)
        while len(struck) < _AT_ONCE:
            open_ = allowed.copy()
            open_[[key + 1 for key in struck]] = False
            if step >= steps - _ENDING:
                open_[1:] &= [(key + _LOWEST) % 12 == home.tonic for key in range(_KEYS)]
            token = _drawn(policy.scores(tokens), open_, rng)
            if token == _REST:
                break
            tokens.append(token)
            key = token - 1
            struck.add(key)
            notes += _ended(begun, key, beat)
            begun[key] = beat
        tokens.append(_REST)
    for key in sorted(begun):
        notes += _ended(begun, key, bars * structure.BAR, forget=False)
    return sorted(notes, key=lambda note: (note.beat, note.pitch))


def _drawn(scores: Scores, open_: NDArray[np.bool_], rng: np.random.Generator) -> int:
    """A token by its score, of those that are open."""
    chances = np.where(open_, np.exp(scores.astype(np.float64) - scores[open_].max()), 0.0)
    return int(rng.choice(len(chances), p=chances / chances.sum()))


def _ended(begun: dict[int, float], key: int, beat: float, *, forget: bool = True) -> list[Note]:
    """The note that rang on a key until now, if one did."""
    start = begun.pop(key, None) if forget else begun.get(key)
    if start is None:
        return []
    loud = 0.62 + 0.14 * (start % structure.BAR == 0) + 0.06 * (start % 1 == 0)
    return [Note(start, min(_LONGEST, max(1 / _STEPS, beat - start)), key + _LOWEST, loud)]
