"""One note of a modelled piano: three strings a hair apart, struck by a hammer, on a board that resounds.

Strings are stiff, so their partials stand wider apart than whole numbers (f n sqrt(1 + B n²)); a hammer
leaves out what it touches in a node, and is harder the harder it strikes; the strings of one note die fast
while they swing together and slowly once they do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sixfold.engines.audio.music import synthesis
from sixfold.engines.audio.music.synthesis import RATE, Array, Partials

_MOST_PARTIALS = 44
_STRUCK_AT = 0.12  # of the string's length
_CENTS = (-0.9, 0.15, 1.0)
_TOGETHER = (0.42, 0.34, 0.24)


@dataclass(frozen=True, slots=True)
class StringSound:
    """A piano's character.

    `hardness` is up to where the hammer's spectrum reaches in Hz at medium force; `knock` and `width` are
    its noise and its breadth; the room dies in `room_seconds`, is dull above `room_hertz`, and has a `share`.
    """

    hardness: float
    knock: float
    width: float
    sustain: float
    room_seconds: float
    room_hertz: float
    share: float


SOUNDS = {
    "felt": StringSound(620, 0.060, 0.35, 0.75, 0.9, 1900, 0.10),
    "studio": StringSound(1500, 0.022, 0.55, 1.0, 1.4, 4200, 0.13),
    "bright": StringSound(3100, 0.014, 0.75, 1.1, 1.9, 7500, 0.16),
}


def struck(pitch: int, force: float, seconds: float, sound: StringSound, rng: np.random.Generator) -> Array:
    """The note, stereo (2, samples), ringing for `seconds`; `force` from 0 to 1."""
    partials = _partials(pitch, force, sound, rng)
    length = round(seconds * RATE)
    wave = synthesis.ring(partials, length)
    attack = 0.0035 - 0.0025 * force
    wave = synthesis.rise(wave, attack)
    knock = _knock(pitch, force, sound, rng)
    count = min(length, knock.shape[1])
    wave[:, :count] += knock[:, :count]
    return wave


def _partials(pitch: int, force: float, sound: StringSound, rng: np.random.Generator) -> Partials:
    base = synthesis.pitch_hertz(pitch)
    stiff = 2.2e-4 * 2 ** ((pitch - 48) / 9.5) if pitch > 48 else 2.2e-4 * 2 ** ((48 - pitch) / 30)
    count = int(min(_MOST_PARTIALS, max(3, 15_000 / base)))
    number = np.arange(1, count + 1)
    hertz = base * number * np.sqrt(1 + stiff * number**2)
    reach = sound.hardness * 2 ** (2.1 * (force - 0.5)) * (base / 220) ** 0.35
    strength = np.abs(np.sin(math.pi * number * _STRUCK_AT)) / number**1.75
    strength *= 1 / (1 + (hertz / reach) ** 2) * rng.uniform(0.75, 1.25, count)
    strength *= 1 - 0.55 * np.exp(-((hertz / 75) ** 2))  # a board moves little air so low
    strength /= math.sqrt(float((strength**2).sum()))
    life = sound.sustain * 13.0 * (110 / base) ** 0.62 / (1 + (hertz / 2600) ** 1.1) ** 0.9
    life = np.clip(life * rng.uniform(0.8, 1.2, count), 0.12, 24)
    cents = np.array(_CENTS) * (1.0 if pitch > 40 else 0.35)
    all_hertz = (hertz[:, None] * 2 ** (cents / 1200)[None]).ravel()
    shares = np.array(_TOGETHER)[None] * rng.uniform(0.85, 1.15, (count, 3))
    lives = life[:, None] * np.array([0.45, 1.0, 1.7])[None]
    angle = np.clip((pitch - 62) / 42, -1, 1) * sound.width * 0.6
    lean = np.clip(angle + rng.normal(0, sound.width * 0.35, (count, 1)), -0.95, 0.95)
    both = (strength[:, None] * shares)[None] * np.sqrt(1 + np.array([[[-1.0]], [[1.0]]]) * lean[None])
    phase = rng.normal(0, 0.25, (2, count, 1)) * sound.width + np.zeros((1, 1, 3))
    # Mean force: what strikes twice as hard is about twice as loud.
    both *= (0.18 + 0.82 * force) * 0.5
    return Partials(all_hertz, both.reshape(2, -1), lives.ravel(), phase.reshape(2, -1) + math.pi / 2)


def _knock(pitch: int, force: float, sound: StringSound, rng: np.random.Generator) -> Array:
    """The hammer's own noise, and the board's answer to it."""
    length = round(0.18 * RATE)
    thud = synthesis.shaped(length, rng, 70, 320) * synthesis.dying(length, 0.11)
    click = synthesis.shaped(length, rng, 900, 900 + sound.hardness * 2) * synthesis.dying(length, 0.03)
    high = float(np.clip((pitch - 50) / 40, 0, 1))
    wave = synthesis.rise((thud * (1.1 - 0.5 * high) + click * (0.12 + 0.5 * high * force)), 0.002)
    lean = np.array([[1.0], [0.85]]) if pitch < 62 else np.array([[0.85], [1.0]])
    return (wave[None] * lean * sound.knock * (0.3 + 0.7 * force)).astype(np.float32)


def sympathy(rng: np.random.Generator, seconds: float = 2.4) -> Array:
    """What the other strings do while the pedal is down, as an answer to a click."""
    pitches = np.arange(36, 89)
    base = 440.0 * 2 ** ((pitches - 69) / 12)
    hertz = np.concatenate([base, base * 2.001, base * 3.003])
    strength = np.concatenate([np.ones(base.size), np.full(base.size, 0.5), np.full(base.size, 0.25)])
    strength *= 1 / (1 + (hertz / 900) ** 1.5)
    life = np.full(hertz.size, seconds * 0.8)
    both = np.stack([strength, strength])
    phase = rng.uniform(0, math.tau, (2, hertz.size))
    wave = synthesis.rise(synthesis.ring(Partials(hertz, both, life, phase), round(seconds * RATE)), 0.03)
    return (wave / np.sqrt((wave * wave).sum() / 2)).astype(np.float32)
