"""Synthesis of birds, insects, crowds and cities."""

from __future__ import annotations

import math

import numpy as np

from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer, band, decay, level


def birds(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize a few birds; each repeats a phrase at a fixed position."""
    out = buffer.silence()
    for _ in range(4):
        pitch, pan = float(rng.uniform(2300, 4600)), float(rng.uniform(-0.9, 0.9))
        notes = [
            (
                float(rng.uniform(0.05, 0.16)),
                pitch * float(rng.uniform(0.8, 1.25)),
                float(rng.uniform(-0.45, 0.5)),
            )
            for _ in range(int(rng.integers(2, 6)))
        ]
        gain, count = (
            float(rng.uniform(0.05, 0.16)),
            max(1, round(buffer.seconds / float(rng.uniform(2.0, 3.6)))),
        )
        for index in range(count):
            second = (index + float(rng.uniform(0.0, 0.7))) / count * buffer.seconds
            for length, note, slide in notes:
                buffer.put(out, _chirp(length, note, slide) * np.float32(gain), second, pan)
                second += length + 0.045
    return level(buffer.add_reverb(out, rng, 1.1, 0.28))


def _chirp(length: float, pitch: float, slide: float) -> Array:
    time = np.arange(round(length * RATE), dtype=np.float32) / RATE
    part = time / np.float32(length)
    tone = np.sin(math.tau * pitch * (time + slide * time * part / 2) + 1.2 * np.sin(math.tau * 31 * time))
    return (tone * np.sin(math.pi * part) ** 1.5).astype(np.float32)


def insects(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize crickets at night."""
    out = buffer.silence()
    time = np.arange(buffer.samples, dtype=np.float32) / RATE
    for _ in range(5):
        rate = round(float(rng.uniform(2.0, 3.2)) * buffer.seconds) / buffer.seconds
        pitch = round(float(rng.uniform(3900, 4900)) * buffer.seconds) / buffer.seconds
        pulses = round(62 * buffer.seconds) / buffer.seconds
        beat = (time * np.float32(rate) + np.float32(rng.random())) % 1.0
        gate = np.clip(1 - np.abs(beat - 0.22) / 0.2, 0, 1) ** 0.7
        trill = 0.5 + 0.5 * np.sin(math.tau * pulses * time)
        wave = (
            np.sin(math.tau * pitch * time + float(rng.uniform(0, 6)))
            * gate
            * trill
            * float(rng.uniform(0.4, 1))
        )
        buffer.put(out, wave.astype(np.float32), 0.0, float(rng.uniform(-0.9, 0.9)))
    return level(out + buffer.noise(rng, band(300, 2500, 0.6)) * np.float32(0.02))


def crowd(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize many simultaneous unintelligible voices."""
    out = buffer.noise(rng, band(180, 1500, 0.7)) * np.float32(0.25)
    for _ in range(14):
        formant = float(rng.uniform(380, 900))
        voice = buffer.noise(rng, band(formant * 0.7, formant * 1.3, 0.2, 3), 1)[0]
        voice = voice + buffer.noise(rng, band(formant * 2.4, formant * 3.4, 0.4, 3), 1)[0] * np.float32(0.35)
        syllables = buffer.wander(rng, float(rng.uniform(2.4, 4.2)), 0.0, 1.0)[0] ** 2
        phrases = np.clip(buffer.wander(rng, 0.4, -0.5, 1.2)[0], 0, 1)
        buffer.put(out, voice * syllables * phrases, 0.0, float(rng.uniform(-0.95, 0.95)))
    return level(buffer.add_reverb(out, rng, 0.7, 0.2))


def city(buffer: LoopBuffer, rng: np.random.Generator) -> Array:
    """Synthesize city traffic: a low hum, passing cars and a distant horn."""
    out = buffer.noise(rng, band(38, 210, 0.6)) * buffer.wander(rng, 0.3, 0.7, 1.0) * np.float32(0.1)
    out += buffer.noise(rng, band(250, 1300, 0.7)) * np.float32(0.02)
    for index in range(max(1, round(buffer.seconds / 2.6))):
        length = float(rng.uniform(2.2, 3.6))
        passing = LoopBuffer(round(min(length, buffer.seconds) * RATE))
        part = np.linspace(0, 1, passing.samples, dtype=np.float32)
        car = passing.noise(rng, band(120, 1100, 0.6), 1)[0] * np.sin(math.pi * part) ** 4
        second = (index + float(rng.uniform(0, 0.8))) * 2.6
        sign = 1 if rng.random() < 0.5 else -1
        buffer.put(out, car * (1 - part) * np.float32(0.09), second, -0.8 * sign)
        buffer.put(out, car * part * np.float32(0.09), second, 0.8 * sign)
    shape = decay(0.9, 0.03)
    time = np.arange(shape.size, dtype=np.float32) / RATE
    horn = sum(np.sin(math.tau * pitch * k * time) / k for pitch in (349.2, 440.0) for k in (1, 2, 3))
    buffer.put(out, (horn * shape * 0.012).astype(np.float32), float(rng.uniform(0, buffer.seconds)), 0.5)
    return level(buffer.add_reverb(out, rng, 1.4, 0.18))
