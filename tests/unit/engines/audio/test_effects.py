"""Sound effects: length and content as requested, never silent and never clipped."""

from __future__ import annotations

import numpy as np
import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.audio import effects
from sixfold.engines.audio.ambience.loop_buffer import RATE


@pytest.mark.parametrize("prompt", [*effects.EVENTS, "heavy rain on a roof", "footsteps in the rain"])
def test_effect_is_audible_and_begins_and_ends_silently(prompt: str) -> None:
    result = effects.generate(prompt, 2, 3)
    assert result.shape == (2, 2 * RATE)
    assert result.dtype == np.float32
    assert 0.02 < np.abs(result).max() <= 1
    assert np.abs(result[:, [0, -1]]).max() < 0.01
    assert np.array_equal(result, effects.generate(prompt, 2, 3))


def test_events_vary_in_level_more_than_steady_sounds() -> None:
    def swing(prompt: str) -> float:
        """Return the variation of the level between fiftieths of a second."""
        parts = np.square(effects.generate(prompt, 3, 1)[0]).reshape(-1, RATE // 50).mean(1)
        return float(np.std(parts) / np.mean(parts))

    assert swing("steps") > 3 * swing("steady rain")


def test_bell_has_a_higher_pitch_than_an_explosion() -> None:
    def center(prompt: str) -> float:
        spectrum = np.abs(np.fft.rfft(effects.generate(prompt, 2, 1)[0]))
        return float((spectrum * np.fft.rfftfreq(2 * RATE, 1 / RATE)).sum() / spectrum.sum())

    assert center("beep") > 900
    assert center("explosion") < center("bell")


def test_prompt_without_known_effects_lists_the_known_ones() -> None:
    assert not effects.is_supported("quarterly report")
    with pytest.raises(UnusableInput, match=r"bell, birds"):
        effects.generate("quarterly report", 1, 0)
