"""Wind, water, weather and fire."""

from __future__ import annotations

import math

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer, band, decay, level


def wind(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Gusts: a low rush that swells, and a whistle that comes with its peaks."""
    gusts = tape.wander(rng, 0.22, 0.25, 1.0)
    rush = tape.noise(rng, band(70, 520, 0.7)) * gusts
    whistle = tape.noise(rng, band(480, 900, 0.2, 4)) * gusts**3 * np.float32(0.28)
    return level(rush + whistle)


def sea(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Waves that rise, break and run out, over a distant roar."""
    count = max(1, round(tape.seconds / 6.5))
    phase = np.arange(tape.samples, dtype=np.float32) * np.float32(count / tape.samples)
    bend = tape.wander(rng, 0.1, -0.08, 0.08)[0]
    beat = (phase + bend) % 1.0
    swell = np.where(beat < 0.38, (beat / 0.38) ** 2.2, np.exp(-(beat - 0.38) * 4.6))
    late = np.roll(swell, round(0.25 * RATE))
    body = tape.noise(rng, band(90, 1400, 0.55)) * (0.22 + swell)
    foam = tape.noise(rng, band(1500, 8500, 0.3)) * late * np.float32(0.55)
    return level(body + foam)


def stream(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Running water: a bright rush, and bubbles that sing as they rise."""
    out = tape.noise(rng, band(420, 4200, 0.35)) * np.float32(0.05)
    for _ in range(round(38 * tape.seconds)):
        length, pitch = float(rng.uniform(0.025, 0.09)), float(rng.uniform(380, 1700))
        shape = decay(length, 0.003)
        time = np.arange(shape.size, dtype=np.float32) / RATE
        bubble = np.sin(math.tau * (pitch * time + pitch * 1.6 * time * time)) * shape
        tape.put(
            out,
            (bubble * rng.uniform(0.02, 0.13)).astype(np.float32),
            float(rng.uniform(0, tape.seconds)),
            float(rng.uniform(-0.8, 0.8)),
        )
    return level(out)


def rain(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """A steady hiss with drops that fall nearer by."""
    out = tape.noise(rng, band(900, 9500, 0.25)) * np.float32(0.1) * tape.wander(rng, 0.3, 0.85, 1.0)
    out += tape.noise(rng, band(160, 700, 0.3)) * np.float32(0.02)
    drop = decay(0.012, 0.0006)
    for _ in range(round(60 * tape.seconds)):
        pitch = float(rng.uniform(900, 4200))
        time = np.arange(drop.size, dtype=np.float32) / RATE
        tick = np.sin(math.tau * pitch * time) * drop * float(rng.exponential(0.07))
        tape.put(out, tick.astype(np.float32), float(rng.uniform(0, tape.seconds)), float(rng.uniform(-1, 1)))
    return level(out)


def thunder(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Rolls of thunder, each a crack and a long rumble."""
    out = tape.silence()
    count = max(1, round(tape.seconds / 7))
    for index in range(count):
        rumble = LoopBuffer(round(min(tape.seconds, 4.5) * RATE))
        time = np.arange(rumble.samples, dtype=np.float32) / RATE
        rolling = rumble.wander(rng, 1.6, 0.25, 1.0)[0] * np.exp(-time * np.float32(1.1))
        low = rumble.noise(rng, band(28, 110, 0.4), 1)[0] * rolling * np.minimum(1, time / 0.05)
        crack = rumble.noise(rng, band(120, 1800, 0.6), 1)[0] * np.exp(-time * 7) * np.float32(0.5)
        wave = (low + crack) * np.minimum(1, time / 0.004) * np.minimum(1, (time[-1] - time) / 0.3)
        begin = (index + float(rng.uniform(0.12, 0.4))) / count * tape.seconds
        tape.put(out, wave.astype(np.float32), begin, float(rng.uniform(-0.5, 0.5)))
    return level(out)


def fire(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """A low flutter, and wood that crackles."""
    out = tape.noise(rng, band(45, 260, 0.6)) * tape.wander(rng, 2.2, 0.45, 1.0, 2) * np.float32(0.07)
    out += tape.noise(rng, band(600, 3200, 0.4)) * np.float32(0.008)
    for _ in range(round(15 * tape.seconds)):
        length = float(rng.uniform(0.004, 0.03))
        shape = decay(length, 0.0004)
        snap = rng.standard_normal(shape.size).astype(np.float32) * shape * float(rng.exponential(0.22))
        tape.put(out, snap, float(rng.uniform(0, tape.seconds)), float(rng.uniform(-0.7, 0.7)))
    return level(out)


def leaves(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Foliage in a light wind."""
    gusts = tape.wander(rng, 0.35, 0.15, 1.0, 2)
    return level(tape.noise(rng, band(1300, 7000, 0.4)) * gusts * gusts)


def depths(tape: LoopBuffer, rng: np.random.Generator) -> Array:
    """Under water: a muffled mass, and bubbles."""
    out = tape.noise(rng, band(40, 240, 0.5)) * tape.wander(rng, 0.25, 0.6, 1.0) * np.float32(0.1)
    for _ in range(round(5 * tape.seconds)):
        shape = decay(float(rng.uniform(0.05, 0.16)), 0.006)
        time = np.arange(shape.size, dtype=np.float32) / RATE
        pitch = float(rng.uniform(180, 620))
        bubble = (
            np.sin(math.tau * (pitch * time + pitch * 2.2 * time * time)) * shape * rng.uniform(0.03, 0.14)
        )
        tape.put(
            out, bubble.astype(np.float32), float(rng.uniform(0, tape.seconds)), float(rng.uniform(-0.8, 0.8))
        )
    return level(out)
