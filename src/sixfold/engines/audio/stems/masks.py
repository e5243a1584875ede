"""Which part of a mix belongs to whom, judged by where it stands between left and right, and how it moves.

A singer stands in the middle, changes pitch all the time, and has no low end; a drum is a moment and covers
all pitches; a bass is low and in the middle; the rest is what stays where it is. None is certain, so every
part of the spectrum is shared out (masks that add up to one), and put together again it is the mix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sixfold.engines.audio.files import RATE
from sixfold.engines.audio.stems import stft
from sixfold.engines.audio.stems.stft import Array

PART_SECONDS = 20.0  # of a mix that are looked at together
_STEADY, _BROAD = 17, 31  # moments, and frequencies, over which a median runs
_POWER = 2.0
_BASS_HERTZ, _BASS_WIDTH = 170.0, 45.0
_VOICE_LOW, _VOICE_HIGH = 140.0, 9500.0


def shared(moments: Array) -> Mapping[str, Array]:
    """The masks of vocals, drums, bass and other: float32 (moments, frequencies), one in all."""
    left, right = moments
    size = (np.abs(left) + np.abs(right)).astype(np.float32)
    hertz = np.fft.rfftfreq(stft.SIZE, 1 / RATE)
    struck = _struck(size)
    low = 1 / (1 + np.exp((hertz - _BASS_HERTZ) / _BASS_WIDTH))
    sung = _sung(size, _middle(left, right), hertz)
    drums = struck
    bass = (1 - drums) * low
    vocals = (1 - drums) * (1 - low) * sung
    rest = np.maximum(0, 1 - drums - bass - vocals)
    whole = drums + bass + vocals + rest
    parts = {"vocals": vocals, "drums": drums, "bass": bass, "other": rest}
    return {name: (mask / whole).astype(np.float32) for name, mask in parts.items()}


def _struck(size: Array) -> Array:
    """How much of each place is a stroke: broad over the frequencies and short in time."""
    steady = stft.median(size, _STEADY, 0) ** _POWER
    broad = stft.median(size, _BROAD, 1) ** _POWER
    return broad / (broad + steady + 1e-12)


def _middle(left: Array, right: Array) -> Array:
    """How much of each place comes from the middle: the same on both sides, in size and in phase."""
    both = np.abs(left) ** 2 + np.abs(right) ** 2 + 1e-12
    alike = 2 * np.real(left * right.conj()) / both
    return np.clip((alike - 0.6) / 0.4, 0, 1) ** 2


def _sung(size: Array, middle: Array, hertz: Array) -> Array:
    """How much of each place is a voice: in the middle, within its range, and not there all along."""
    inside = 1 / (1 + (_VOICE_LOW / np.maximum(hertz, 1)) ** 6) / (1 + (hertz / _VOICE_HIGH) ** 6)
    held = _held(size)
    moving = np.clip((size - held) / (size + 1e-9), 0, 1)
    return middle * inside * (0.45 + 0.55 * moving)


def _held(size: Array) -> Array:
    """What of each frequency goes on for a second and more."""
    thin = size[::4]
    long = stft.median(thin, 15, 0)
    return np.repeat(long, 4, axis=0)[: size.shape[0]]


def apart(
    mix: Array, wanted: Mapping[str, tuple[str, ...]], step: Callable[[float], None]
) -> dict[str, Array]:
    """The mix (2, samples) as named sounds, each made of the parts that it is said to hold."""
    out = {name: np.zeros_like(mix) for name in wanted}
    samples, length = mix.shape[1], round(PART_SECONDS * RATE)
    fade = stft.SIZE * 4
    for begin in range(0, samples, length):
        first, last = max(0, begin - fade), min(samples, begin + length + fade)
        part = mix[:, first:last]
        moments = stft.spectra(part)
        masks = shared(moments)
        keep = slice(begin, min(samples, begin + length))
        for name, held in wanted.items():
            mask = sum(masks[one] for one in held)
            made = stft.sound(moments * mask, part.shape[1])
            out[name][:, keep] = made[:, keep.start - first : keep.stop - first]
        step(min(1.0, (begin + length) / samples))
    return out
