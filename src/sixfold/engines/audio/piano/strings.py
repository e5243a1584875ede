"""Physical model of a piano note: three slightly detuned strings, a hammer and a soundboard.

Strings are stiff, so their partials are inharmonic (f n sqrt(1 + B n²)). The hammer's position suppresses
some partials, and its hardness grows with the force. The strings of a note decay fast while they are in phase
and slowly afterwards.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from sixfold.engines.audio.music import synthesis
from sixfold.engines.audio.music.synthesis import RATE, Array, Partials

_MAX_PARTIALS = 44
_HAMMER_POSITION = 0.12  # as a fraction of the string's length
_CENTS = (-0.9, 0.15, 1.0)
_STRING_SHARES = (0.42, 0.34, 0.24)


class StringSound(msgspec.Struct, frozen=True):
    """The parameters of a piano.

    `hardness` is the bandwidth of the hammer in Hz at medium force, `knock` the level of its noise, and
    `width` the stereo width. The room decays in `room_seconds`, is damped above `room_hertz`, and is mixed by
    `share`.
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


def strike(pitch: int, force: float, seconds: float, sound: StringSound, rng: np.random.Generator) -> Array:
    """Return a note in stereo (2, samples) that rings for `seconds`; `force` is 0 to 1."""
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
    count = int(min(_MAX_PARTIALS, max(3, 15_000 / base)))
    number = np.arange(1, count + 1)
    hertz = base * number * np.sqrt(1 + stiff * number**2)
    reach = sound.hardness * 2 ** (2.1 * (force - 0.5)) * (base / 220) ** 0.35
    strength = np.abs(np.sin(math.pi * number * _HAMMER_POSITION)) / number**1.75
    strength *= 1 / (1 + (hertz / reach) ** 2) * rng.uniform(0.75, 1.25, count)
    # The soundboard radiates little at low frequencies.
    strength *= 1 - 0.55 * np.exp(-((hertz / 75) ** 2))
    strength /= math.sqrt(float((strength**2).sum()))
    life = sound.sustain * 13.0 * (110 / base) ** 0.62 / (1 + (hertz / 2600) ** 1.1) ** 0.9
    life = np.clip(life * rng.uniform(0.8, 1.2, count), 0.12, 24)
    cents = np.array(_CENTS) * (1.0 if pitch > 40 else 0.35)
    all_hertz = (hertz[:, None] * 2 ** (cents / 1200)[None]).ravel()
    shares = np.array(_STRING_SHARES)[None] * rng.uniform(0.85, 1.15, (count, 3))
    lives = life[:, None] * np.array([0.45, 1.0, 1.7])[None]
    angle = np.clip((pitch - 62) / 42, -1, 1) * sound.width * 0.6
    pan = np.clip(angle + rng.normal(0, sound.width * 0.35, (count, 1)), -0.95, 0.95)
    stereo = (strength[:, None] * shares)[None] * np.sqrt(1 + np.array([[[-1.0]], [[1.0]]]) * pan[None])
    phase = rng.normal(0, 0.25, (2, count, 1)) * sound.width + np.zeros((1, 1, 3))
    # Twice the force is about twice as loud.
    stereo *= (0.18 + 0.82 * force) * 0.5
    return Partials(all_hertz, stereo.reshape(2, -1), lives.ravel(), phase.reshape(2, -1) + math.pi / 2)


def _knock(pitch: int, force: float, sound: StringSound, rng: np.random.Generator) -> Array:
    length = round(0.18 * RATE)
    thud = synthesis.band_noise(length, rng, 70, 320) * synthesis.decay(length, 0.11)
    click = synthesis.band_noise(length, rng, 900, 900 + sound.hardness * 2) * synthesis.decay(length, 0.03)
    high = float(np.clip((pitch - 50) / 40, 0, 1))
    wave = synthesis.rise((thud * (1.1 - 0.5 * high) + click * (0.12 + 0.5 * high * force)), 0.002)
    pan = np.array([[1.0], [0.85]]) if pitch < 62 else np.array([[0.85], [1.0]])
    return (wave[None] * pan * sound.knock * (0.3 + 0.7 * force)).astype(np.float32)


def sympathy(rng: np.random.Generator, seconds: float = 2.4) -> Array:
    """Return the impulse response of the undamped strings while the pedal is held."""
    pitches = np.arange(36, 89)
    base = 440.0 * 2 ** ((pitches - 69) / 12)
    hertz = np.concatenate([base, base * 2.001, base * 3.003])
    strength = np.concatenate([np.ones(base.size), np.full(base.size, 0.5), np.full(base.size, 0.25)])
    strength *= 1 / (1 + (hertz / 900) ** 1.5)
    life = np.full(hertz.size, seconds * 0.8)
    stereo = np.stack([strength, strength])
    phase = rng.uniform(0, math.tau, (2, hertz.size))
    wave = synthesis.rise(synthesis.ring(Partials(hertz, stereo, life, phase), round(seconds * RATE)), 0.03)
    return (wave / np.sqrt((wave * wave).sum() / 2)).astype(np.float32)
