"""Ambient sound from a prompt: content, loudness and looping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.engines.audio.ambience import loudness, track
from sixfold.engines.audio.ambience.loop_buffer import RATE, LoopBuffer
from tests.harness.cases import nightly_after

Array = NDArray[Any]
SECONDS = 3.0


def spectrum(sound: Array) -> tuple[Array, Array]:
    """Return frequencies and their power."""
    mono = sound.mean(0)
    return np.fft.rfftfreq(mono.size, 1 / RATE), np.abs(np.fft.rfft(mono)) ** 2


def share(sound: Array, low: float, high: float) -> float:
    """Return the share of the power between two frequencies."""
    frequency, power = spectrum(sound)
    return float(power[(frequency >= low) & (frequency < high)].sum() / power.sum())


def unevenness(sound: Array) -> float:
    """Return the variation of the level between windows of 10 ms."""
    blocks = sound.mean(0)[: sound.shape[1] // 480 * 480].reshape(-1, 480)
    level = np.sqrt((blocks**2).mean(1))
    return float(level.std() / level.mean())


BANDS = [
    ("wind", 60, 700, 0.8),
    ("sea", 80, 2000, 0.7),
    ("stream", 350, 6000, 0.85),
    ("rain", 800, 16000, 0.75),
    ("thunder", 20, 250, 0.6),
    ("fire", 20, 350, 0.5),
    ("leaves", 1000, 9000, 0.8),
    ("depths", 20, 700, 0.9),
    ("birds", 1500, 8000, 0.85),
    ("insects", 3500, 5500, 0.8),
    ("crowd", 150, 3500, 0.85),
    ("city", 20, 1500, 0.9),
]


@pytest.mark.parametrize(("name", "low", "high", "least"), BANDS)
def test_every_layer_has_the_frequencies_of_its_kind(
    name: str, low: float, high: float, least: float
) -> None:
    result = track.LAYERS[name](LoopBuffer(round(SECONDS * RATE)), np.random.default_rng(1))
    assert result.shape == (2, round(SECONDS * RATE))
    assert share(result, low, high) > least


def test_burst_sounds_are_uneven_and_steady_sounds_even() -> None:
    tape = LoopBuffer(round(6 * RATE))

    def changes(name: str) -> float:
        return unevenness(track.LAYERS[name](tape, np.random.default_rng(2)))

    assert changes("rain") < 0.25 < changes("sea")
    assert changes("birds") > 0.6
    assert changes("thunder") > 0.6


WORDS = [
    ("waves on a beach", "sea"),
    ("a thunderstorm over the hills", "thunder"),
    ("rain on a window", "rain"),
    ("a campfire at night", "fire"),
    ("a windy mountain pass", "wind"),
    ("a brook in the woods", "stream"),
    ("birds in a garden", "birds"),
    ("a crowded market", "crowd"),
    ("traffic in new york", "city"),
    ("a coral reef", "depths"),
    ("crickets in the grass", "insects"),
    ("autumn leaves", "leaves"),
]


@pytest.mark.parametrize(("prompt", "loudest"), WORDS)
def test_prompt_selects_the_loudest_layer(prompt: str, loudest: str) -> None:
    mix = track.mix_of(prompt)
    assert max(mix.layers, key=lambda name: mix.layers[name]) == loudest


def test_negated_sounds_are_left_out() -> None:
    assert "wind" not in track.mix_of("a mill without wind").layers
    assert "rain" not in track.mix_of("a street, no rain").layers
    assert "rain" in track.mix_of("a street in the rain, no people").layers


@pytest.mark.parametrize("prompt", ["", "a teapot", "qwxyz", "silence"])
def test_prompt_without_known_sounds_gets_calm_music(prompt: str) -> None:
    result = track.render(prompt, 1.0, 1)
    assert track.mix_of(prompt).description == ["music (calm) +0 dB"]
    assert np.abs(result).mean() > 0.01


@pytest.mark.parametrize("prompt", ["a campfire", "thunder", "waves", "a teapot", "birds at dawn", "a crowd"])
@pytest.mark.parametrize("seconds", nightly_after(1, [1.0, 4.5]))
def test_tracks_have_equal_loudness_and_never_clip(prompt: str, seconds: float) -> None:
    result = track.render(prompt, seconds, 3)
    assert result.shape == (2, round(seconds * RATE))
    assert result.dtype == np.float32
    assert loudness.integrated(result) == pytest.approx(loudness.TARGET, abs=0.7)
    assert np.abs(result).max() <= loudness.CEILING


@pytest.mark.parametrize(
    "prompt", ["waves", "a teapot", "wind", "crickets in the grass", "a river", "city traffic"]
)
def test_track_loops_without_a_click(prompt: str) -> None:
    result = track.render(prompt, 2.0, 5)
    steps = np.abs(np.diff(result, axis=1))
    assert np.abs(result[:, 0] - result[:, -1]).max() <= steps.max()


def test_stereo_channels_differ() -> None:
    result = track.render("rain on a window", 2.0, 1)
    assert abs(np.corrcoef(result)[0, 1]) < 0.5


def test_equal_prompt_and_seed_give_equal_samples() -> None:
    first, second, other = (track.render("a campfire by the sea", 1.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_loudness_equals_that_of_the_itu_recommendation() -> None:
    """BS.1770: a sine of 997 Hz at full scale in one channel is -3.01 LUFS."""
    time = np.arange(5 * RATE) / RATE
    tone = np.sin(2 * np.pi * 997 * time)
    left = np.stack([tone, np.zeros_like(tone)]).astype(np.float32)
    assert loudness.integrated(left) == pytest.approx(-3.01, abs=0.05)
    assert loudness.integrated(np.stack([tone, tone]).astype(np.float32) * 0.1) == pytest.approx(
        -20.0, abs=0.05
    )
    assert loudness.integrated(np.zeros((2, RATE), np.float32)) == -70.0
