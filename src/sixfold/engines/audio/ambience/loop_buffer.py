"""A seamless stereo loop and the operations on it.

Everything is periodic over the loop: noise is shaped in the frequency domain, and events and echoes wrap
around the end. A track can therefore be looped without a click.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32

RATE = 48_000


class LoopBuffer(msgspec.Struct, frozen=True):
    """A stereo loop of `samples` samples per channel."""

    samples: int

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.samples / RATE

    def silence(self) -> Array:
        """Return two silent channels."""
        return np.zeros((2, self.samples), np.float32)

    def frequencies(self) -> Array:
        """Return the frequency in Hz of each bin of the loop's spectrum."""
        return np.fft.rfftfreq(self.samples, 1 / RATE).astype(np.float32)

    def noise(self, rng: np.random.Generator, gain: Callable[[Array], Array], channels: int = 2) -> Array:
        """Return noise with the spectrum `gain`, a function of the frequency in Hz, and an RMS of 1."""
        bins = self.samples // 2 + 1
        shape = gain(np.maximum(self.frequencies(), 1.0)).astype(np.float32)
        shape[0] = 0
        phases = rng.random((channels, bins), dtype=np.float32) * np.float32(math.tau)
        spread = np.sqrt(-np.log(np.maximum(rng.random((channels, bins), dtype=np.float32), 1e-7)))
        spectrum = (shape * spread) * np.exp(1j * phases)
        wave = np.fft.irfft(spectrum, self.samples, axis=1).astype(np.float32)
        return wave / np.float32(max(float(np.sqrt((wave * wave).mean())), 1e-9))

    def wander(
        self, rng: np.random.Generator, hertz: float, low: float, high: float, channels: int = 1
    ) -> Array:
        """Return a slow random curve between `low` and `high` that changes about `hertz` times per second."""
        steps = max(2, round(self.seconds * hertz * 2))
        points = rng.random((channels, steps)).astype(np.float32)
        position = np.linspace(0, steps, self.samples, endpoint=False, dtype=np.float32)
        index = position.astype(np.int64)
        part = (1 - np.cos((position - index) * np.float32(math.pi))) / 2
        curve = points[:, index % steps] * (1 - part) + points[:, (index + 1) % steps] * part
        return np.float32(low) + np.float32(high - low) * curve

    def put(self, target: Array, wave: Array, second: float, pan: float = 0.0) -> None:
        """Add a mono wave at `second`, panned from left (-1) to right (1), wrapping around the loop's end."""
        begin = round(second * RATE) % self.samples
        angle = (pan + 1) * math.pi / 4
        sides = np.array([[math.cos(angle)], [math.sin(angle)]], np.float32) * wave[None, : self.samples]
        first = min(sides.shape[1], self.samples - begin)
        target[:, begin : begin + first] += sides[:, :first]
        if first < sides.shape[1]:
            target[:, : sides.shape[1] - first] += sides[:, first:]

    def add_reverb(self, wave: Array, rng: np.random.Generator, seconds: float, share: float) -> Array:
        """Return the wave with a `share` of reverberation that decays in `seconds`."""
        length = min(self.samples, round(seconds * RATE))
        time = np.arange(length, dtype=np.float32) / RATE
        reverb = rng.standard_normal((2, length)).astype(np.float32) * np.exp(
            -time * np.float32(6.9 / seconds)
        )
        reverb *= np.minimum(1, time / 0.012)
        tail = np.zeros((2, self.samples), np.float32)
        tail[:, :length] = reverb
        spectrum = np.fft.rfft(wave, axis=1) * np.fft.rfft(tail, axis=1) * _low_pass(self.frequencies(), 5200)
        wet = np.fft.irfft(spectrum, self.samples, axis=1).astype(np.float32)
        gain = float(np.sqrt((wave * wave).mean())) / max(float(np.sqrt((wet * wet).mean())), 1e-9)
        return wave * np.float32(1 - share) + wet * np.float32(share * gain)


def _low_pass(frequency: Array, corner: float) -> Array:
    return 1 / (1 + (frequency / np.float32(corner)) ** 2)


def band(low: float, high: float, slope: float = 0.0, order: int = 2) -> Callable[[Array], Array]:
    """Return a band-pass spectrum between two corners in Hz with a `slope` (0.5 is pink, 1 brown)."""

    def gain(frequency: Array) -> Array:
        response = (
            1 / np.sqrt(1 + (low / frequency) ** (2 * order)) / np.sqrt(1 + (frequency / high) ** (2 * order))
        )
        return response * (frequency / low) ** -slope

    return gain


def level(wave: Array, rms: float = 0.1) -> Array:
    """Scale a wave to the root mean square `rms`."""
    return wave * np.float32(rms / max(float(np.sqrt((wave * wave).mean())), 1e-9))


def decay(seconds: float, attack: float = 0.004) -> Array:
    """Return an envelope that rises in `attack` seconds and decays to a thousandth in `seconds`."""
    time = np.arange(max(2, round(seconds * RATE)), dtype=np.float32) / RATE
    return np.minimum(1, time / np.float32(attack)) * np.exp(-time * np.float32(6.9 / seconds))
