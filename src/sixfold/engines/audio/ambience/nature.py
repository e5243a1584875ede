"""Synthesis of wind, water, weather and fire."""

from __future__ import annotations

import math

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer, band, decay, level


def wind(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize gusts of wind with a whistle at their peaks."""
    gusts = buffer.wander(rng, 0.22, 0.25, 1.0)
    rush = buffer.noise(rng, band(70, 520, 0.7)) * gusts
    whistle = buffer.noise(rng, band(480, 900, 0.2, 4)) * gusts**3 * np.float32(0.28)
    return level(rush + whistle)


def sea(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize waves that rise, break and run out, over a distant roar."""
    count = max(1, round(buffer.seconds / 6.5))
    phase = np.arange(buffer.samples, dtype=np.float32) * np.float32(count / buffer.samples)
    bend = buffer.wander(rng, 0.1, -0.08, 0.08)[0]
    beat = (phase + bend) % 1.0
    swell = np.where(beat < 0.38, (beat / 0.38) ** 2.2, np.exp(-(beat - 0.38) * 4.6))
    late = np.roll(swell, round(0.25 * RATE))
    body = buffer.noise(rng, band(90, 1400, 0.55)) * (0.22 + swell)
    foam = buffer.noise(rng, band(1500, 8500, 0.3)) * late * np.float32(0.55)
    return level(body + foam)


def stream(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize running water: bright noise and rising bubbles."""
    out = buffer.noise(rng, band(420, 4200, 0.35)) * np.float32(0.05)
    for _ in range(round(38 * buffer.seconds)):
        length, pitch = float(rng.uniform(0.025, 0.09)), float(rng.uniform(380, 1700))
        shape = decay(length, 0.003)
        time = np.arange(shape.size, dtype=np.float32) / RATE
        bubble = np.sin(math.tau * (pitch * time + pitch * 1.6 * time * time)) * shape
        buffer.put(
            out,
            (bubble * rng.uniform(0.02, 0.13)).astype(np.float32),
            float(rng.uniform(0, buffer.seconds)),
            float(rng.uniform(-0.8, 0.8)),
        )
    return level(out)


def rain(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize rain: a steady hiss with single drops."""
    out = buffer.noise(rng, band(900, 9500, 0.25)) * np.float32(0.1) * buffer.wander(rng, 0.3, 0.85, 1.0)
    out += buffer.noise(rng, band(160, 700, 0.3)) * np.float32(0.02)
    drop = decay(0.012, 0.0006)
    for _ in range(round(60 * buffer.seconds)):
        pitch = float(rng.uniform(900, 4200))
        time = np.arange(drop.size, dtype=np.float32) / RATE
        tick = np.sin(math.tau * pitch * time) * drop * float(rng.exponential(0.07))
        buffer.put(
            out, tick.astype(np.float32), float(rng.uniform(0, buffer.seconds)), float(rng.uniform(-1, 1))
        )
    return level(out)


def thunder(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize thunder: cracks, each with a long rumble."""
    out = buffer.silence()
    count = max(1, round(buffer.seconds / 7))
    for index in range(count):
        rumble = LoopBuffer(round(min(buffer.seconds, 4.5) * RATE))
        time = np.arange(rumble.samples, dtype=np.float32) / RATE
        rolling = rumble.wander(rng, 1.6, 0.25, 1.0)[0] * np.exp(-time * np.float32(1.1))
        low = rumble.noise(rng, band(28, 110, 0.4), 1)[0] * rolling * np.minimum(1, time / 0.05)
        crack = rumble.noise(rng, band(120, 1800, 0.6), 1)[0] * np.exp(-time * 7) * np.float32(0.5)
        wave = (low + crack) * np.minimum(1, time / 0.004) * np.minimum(1, (time[-1] - time) / 0.3)
        begin = (index + float(rng.uniform(0.12, 0.4))) / count * buffer.seconds
        buffer.put(out, wave.astype(np.float32), begin, float(rng.uniform(-0.5, 0.5)))
    return level(out)


def fire(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize a fire: a low flutter and crackling wood."""
    out = buffer.noise(rng, band(45, 260, 0.6)) * buffer.wander(rng, 2.2, 0.45, 1.0, 2) * np.float32(0.07)
    out += buffer.noise(rng, band(600, 3200, 0.4)) * np.float32(0.008)
    for _ in range(round(15 * buffer.seconds)):
        length = float(rng.uniform(0.004, 0.03))
        shape = decay(length, 0.0004)
        snap = rng.standard_normal(shape.size).astype(np.float32) * shape * float(rng.exponential(0.22))
        buffer.put(out, snap, float(rng.uniform(0, buffer.seconds)), float(rng.uniform(-0.7, 0.7)))
    return level(out)


def leaves(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize foliage in a light wind."""
    gusts = buffer.wander(rng, 0.35, 0.15, 1.0, 2)
    return level(buffer.noise(rng, band(1300, 7000, 0.4)) * gusts * gusts)


def depths(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize underwater sound: a muffled rumble and bubbles."""
    out = buffer.noise(rng, band(40, 240, 0.5)) * buffer.wander(rng, 0.25, 0.6, 1.0) * np.float32(0.1)
    for _ in range(round(5 * buffer.seconds)):
        shape = decay(float(rng.uniform(0.05, 0.16)), 0.006)
        time = np.arange(shape.size, dtype=np.float32) / RATE
        pitch = float(rng.uniform(180, 620))
        bubble = (
            np.sin(math.tau * (pitch * time + pitch * 2.2 * time * time)) * shape * rng.uniform(0.03, 0.14)
        )
        buffer.put(
            out,
            bubble.astype(np.float32),
            float(rng.uniform(0, buffer.seconds)),
            float(rng.uniform(-0.8, 0.8)),
        )
    return level(out)
