"""Engine for piano music from a user's policy: an ONNX model that predicts the next token.

The model has one int64 input `[1, n]`: the last 512 tokens at most. Token 0 advances by a sixteenth; tokens 1
to 88 strike a key of the piano, from the lowest A. The first output has 89 scores for the next token, or
`[1, n, 89]`, of which the last row counts. Keys outside of the requested scale are masked, and at most four
keys are struck at once, so that key, bars and tempo hold for any policy.
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
_STEPS = 4  # steps per beat
_MAX_SIMULTANEOUS = 4
_CONTEXT = 512  # tokens
_MAX_BEATS = 2.0  # the longest note
# In this many steps at the end, only the tonic is allowed.
_ENDING = 4
_COMPOSED = 0.1

Scores = NDArray[np.float32]


class PolicyEngine:
    """Composes with the policy in `policy_url` and plays the result on the same piano."""

    name = "piano-policy"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return one piece of exactly `bars` bars at `tempo`."""
        inputs = task.inputs
        home = theory.key(str(inputs["key"]))
        policy = _Policy(task.files["policy_url"])
        rng = noise.stream(int(inputs["seed"]), "policy")
        notes = compose(policy, home, int(inputs["bars"]), rng, context)
        return engine.perform(notes, task, context)


class _Policy:
    def __init__(self, path: Path) -> None:
        try:
            self._session = onnx_session.OnnxSession(str(path))
        except EngineError as error:
            raise UnusableInput("policy_url is not a readable ONNX model") from error

    def scores(self, tokens: list[int]) -> Scores:
        """Return the scores of the next token; raises `UnusableInput` for an unsuitable model."""
        tokens_input = np.array([tokens[-_CONTEXT:]], np.int64)
        try:
            output = self._session.run(tokens_input)
        except EngineError as error:
            raise UnusableInput("policy_url must have one int64 input of tokens `[1, n]`") from error
        last = output.reshape(-1, output.shape[-1])[-1] if output.size else output.reshape(-1)
        if last.shape != (_KEYS + 1,) or not np.isfinite(last).all():
            raise UnusableInput(f"policy_url must output {_KEYS + 1} finite scores for the next token")
        return last


def compose(
    policy: Any, home: MusicalKey, bars: int, rng: np.random.Generator, context: Context
) -> list[Note]:
    """Return the notes that the policy generates for `bars` bars."""
    allowed = np.array([True, *((key + _LOWEST) % 12 in home.scale for key in range(_KEYS))])
    tokens, sounding, notes = [_REST], dict[int, float](), list[Note]()
    steps = round(bars * structure.BAR * _STEPS)
    for step in range(steps):
        beat, struck_keys = step / _STEPS, set[int]()
        context.progress(_COMPOSED * step / steps)
        while len(struck_keys) < _MAX_SIMULTANEOUS:
            mask = allowed.copy()
            mask[[key + 1 for key in struck_keys]] = False
            if step >= steps - _ENDING:
                mask[1:] &= [(key + _LOWEST) % 12 == home.tonic for key in range(_KEYS)]
            token = _sample(policy.scores(tokens), mask, rng)
            if token == _REST:
                break
            tokens.append(token)
            key = token - 1
            struck_keys.add(key)
            notes += _end_note(sounding, key, beat)
            sounding[key] = beat
        tokens.append(_REST)
    for key in sorted(sounding):
        notes += _end_note(sounding, key, bars * structure.BAR, forget=False)
    return sorted(notes, key=lambda note: (note.beat, note.pitch))


def _sample(scores: Scores, mask: NDArray[np.bool_], rng: np.random.Generator) -> int:
    """Sample an allowed token by the softmax of the scores."""
    probabilities = np.where(mask, np.exp(scores.astype(np.float64) - scores[mask].max()), 0.0)
    return int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))


def _end_note(sounding: dict[int, float], key: int, beat: float, *, forget: bool = True) -> list[Note]:
    """Return the note that ends on a key, in a list, or an empty list if the key is not sounding."""
    start = sounding.pop(key, None) if forget else sounding.get(key)
    if start is None:
        return []
    loudness = 0.62 + 0.14 * (start % structure.BAR == 0) + 0.06 * (start % 1 == 0)
    return [Note(start, min(_MAX_BEATS, max(1 / _STEPS, beat - start)), key + _LOWEST, loudness)]
