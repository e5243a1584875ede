"""Soft masks for vocals, drums, bass and other, from stereo position and spectral shape.

Vocals are centered, change pitch constantly and have no low frequencies; drums are short and cover all
frequencies; the bass is low and centered; the rest is static. The masks add up to one for every bin, so the
stems add up to the mix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sixfold.engines.audio.files import RATE
from sixfold.engines.audio.stems import stft
from sixfold.engines.audio.stems.stft import Array

PART_SECONDS = 20.0  # the part that is processed at a time
# Widths of the medians over time frames and over frequency bins.
_TIME_WIDTH, _FREQUENCY_WIDTH = 17, 31
_POWER = 2.0
_BASS_HERTZ, _BASS_WIDTH = 170.0, 45.0
_VOICE_LOW, _VOICE_HIGH = 140.0, 9500.0


def soft_masks(frames: Array) -> Mapping[str, Array]:
    """Return the masks of vocals, drums, bass and other, float32 (frames, bins), which add up to one."""
    left, right = frames
    magnitude = (np.abs(left) + np.abs(right)).astype(np.float32)
    hertz = np.fft.rfftfreq(stft.SIZE, 1 / RATE)
    percussive = _percussive(magnitude)
    low = 1 / (1 + np.exp((hertz - _BASS_HERTZ) / _BASS_WIDTH))
    vocal = _vocal(magnitude, _centered(left, right), hertz)
    drums = percussive
    bass = (1 - drums) * low
    vocals = (1 - drums) * (1 - low) * vocal
    other_stem = np.maximum(0, 1 - drums - bass - vocals)
    total = drums + bass + vocals + other_stem
    parts = {"vocals": vocals, "drums": drums, "bass": bass, "other": other_stem}
    return {name: (mask / total).astype(np.float32) for name, mask in parts.items()}


def _percussive(magnitude: Array) -> Array:
    """Return the percussive fraction of each bin: broad over frequency and short in time."""
    sustained = stft.median(magnitude, _TIME_WIDTH, 0) ** _POWER
    broad = stft.median(magnitude, _FREQUENCY_WIDTH, 1) ** _POWER
    return broad / (broad + sustained + 1e-12)


def _centered(left: Array, right: Array) -> Array:
    """Return the centered fraction of each bin: equal in magnitude and phase on both sides."""
    power = np.abs(left) ** 2 + np.abs(right) ** 2 + 1e-12
    similarity = 2 * np.real(left * right.conj()) / power
    return np.clip((similarity - 0.6) / 0.4, 0, 1) ** 2


def _vocal(magnitude: Array, middle: Array, hertz: Array) -> Array:
    """Return the vocal fraction of each bin: centered, in the vocal range, and changing."""
    inside = 1 / (1 + (_VOICE_LOW / np.maximum(hertz, 1)) ** 6) / (1 + (hertz / _VOICE_HIGH) ** 6)
    sustained = _sustained(magnitude)
    moving = np.clip((magnitude - sustained) / (magnitude + 1e-9), 0, 1)
    return middle * inside * (0.45 + 0.55 * moving)


def _sustained(magnitude: Array) -> Array:
    """Return the part of each frequency that lasts a second or longer."""
    thin = magnitude[::4]
    long = stft.median(thin, 15, 0)
    return np.repeat(long, 4, axis=0)[: magnitude.shape[0]]


def separate(
    mix: Array, stems: Mapping[str, tuple[str, ...]], progress: Callable[[float], None]
) -> dict[str, Array]:
    """Separate a mix (2, samples) into named stems, each the sum of the listed parts."""
    out = {name: np.zeros_like(mix) for name in stems}
    samples, length = mix.shape[1], round(PART_SECONDS * RATE)
    fade = stft.SIZE * 4
    for begin in range(0, samples, length):
        first, last = max(0, begin - fade), min(samples, begin + length + fade)
        part = mix[:, first:last]
        frames = stft.forward(part)
        masks = soft_masks(frames)
        inner = slice(begin, min(samples, begin + length))
        for name, parts in stems.items():
            mask = sum(masks[part_name] for part_name in parts)
            stem = stft.inverse(frames * mask, part.shape[1])
            out[name][:, inner] = stem[:, inner.start - first : inner.stop - first]
        progress(min(1.0, (begin + length) / samples))
    return out
