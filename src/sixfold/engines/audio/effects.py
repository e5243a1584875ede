"""Sound effects from a prompt: continuous sounds (rain, sea, a crowd) and events (a bell, steps, a bang)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.audio import files
from sixfold.engines.audio.ambience import loudness, track
from sixfold.engines.audio.ambience.loop_buffer import RATE, Array, LoopBuffer
from sixfold.engines.image.scene import noise

Rng = np.random.Generator
# Samples of the fades at both ends, which prevent clicks.
_FADE = 480


class EffectsEngine:
    """Synthesizes sound effects; the same prompt and seed result in the same bytes."""

    name = "effects"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return one audio file of the requested duration."""
        prompt, seconds = str(task.inputs["prompt"]), float(task.inputs["duration_seconds"])
        sound = generate(prompt, seconds, int(task.inputs.get("seed") or 0))
        context.progress(0.8)
        return Result((files.write(sound, "mp3", context.scratch / "effect"),), words=words(prompt))


def is_supported(prompt: str) -> bool:
    return bool(list(_events(prompt)) or track.mix_of(prompt).layers)


def words(prompt: str) -> PromptWords:
    """Return the prompt words that name the sounds, and the ignored words."""
    events = (re.compile(EVENTS[name][0]) for name in _events(prompt))
    return prompt_words.of_parts(prompt, (track.words(prompt), prompt_words.of_patterns(prompt, events)))


def generate(prompt: str, seconds: float, seed: int) -> Array:
    """Return the sound as float32 (2, samples) at 48 kHz; raises `UnusableInput` for another prompt."""
    if not is_supported(prompt):
        supported = ", ".join(sorted({*EVENTS, *track.LAYERS}))
        raise UnusableInput(f"The prompt must name a supported sound: {supported}")
    samples = round(seconds * RATE)
    buffer = LoopBuffer(max(RATE // 2, samples))
    out = buffer.silence()
    for name, db in track.mix_of(prompt).layers.items():
        layer = track.LAYERS[name](buffer, noise.stream(seed, "effects", name))
        out += layer * np.float32(10 ** (db / 20))
    out = out[:, :samples]
    for name in _events(prompt):
        _play(out, name, noise.stream(seed, "effects", name))
    fade = np.minimum(1, np.arange(1, samples + 1) / _FADE) * np.minimum(1, np.arange(samples, 0, -1) / _FADE)
    return loudness.normalize(out * fade.astype(np.float32))


def _events(prompt: str) -> Iterator[str]:
    text = prompt.casefold()
    return (name for name, (words, _, _) in EVENTS.items() if re.search(words, text))


def _play(out: Array, name: str, rng: Rng) -> None:
    """Add an event at its usual intervals, each time slightly varied in sound and position."""
    _, interval, synthesize = EVENTS[name]
    position = 0.05
    while round(position * RATE) < out.shape[1]:
        sound = synthesize(rng)
        first = round(position * RATE)
        part = sound[: out.shape[1] - first]
        side = 0.5 + 0.25 * float(rng.uniform(-1, 1))
        out[0, first : first + len(part)] += part * np.float32(np.sqrt(1 - side))
        out[1, first : first + len(part)] += part * np.float32(np.sqrt(side))
        position += interval * float(rng.uniform(0.92, 1.08))


def _time(seconds: float) -> Array:
    return np.arange(round(seconds * RATE), dtype=np.float64) / RATE


def _decaying_partials(pitches: tuple[float, ...], decays: tuple[float, ...], seconds: float) -> Array:
    """Return decaying partials with an attack of two milliseconds."""
    t = _time(seconds)
    parts = [
        np.sin(2 * np.pi * f * t) * np.exp(-t / d) / (k + 1)
        for k, (f, d) in enumerate(zip(pitches, decays, strict=True))
    ]
    return np.sum(parts, 0) * np.minimum(1, t / 0.002)


def _smooth(raw_noise: Array, samples: int) -> Array:
    return np.convolve(raw_noise, np.hanning(samples + 2)[1:-1] / (samples / 2), "same")


def _bell(rng: Rng) -> Array:
    f = 520 * float(rng.uniform(0.97, 1.03))
    ratios = (0.5, 1.0, 1.19, 1.56, 2.0, 2.66, 3.01)
    return _decaying_partials(tuple(f * r for r in ratios), (2.2, 1.8, 1.4, 1.0, 0.8, 0.5, 0.4), 3.0)


def _beep(_rng: Rng) -> Array:
    t = _time(0.16)
    return 0.6 * np.sin(2 * np.pi * 1200 * t) * np.minimum(1, np.minimum(t, 0.16 - t) / 0.006)


def _laser(rng: Rng) -> Array:
    t = _time(0.35)
    top = 2400 * float(rng.uniform(0.8, 1.2))
    phase = np.cumsum(180 + (top - 180) * np.exp(-t * 11)) / RATE
    return 0.6 * np.sin(2 * np.pi * phase + 1.5 * np.sin(4 * np.pi * phase)) * np.exp(-t * 7)


def _explosion(rng: Rng) -> Array:
    t = _time(2.6)
    raw_noise = rng.standard_normal(len(t))
    low, mid = _smooth(raw_noise, 420) * 9, _smooth(raw_noise, 40) * 2
    thump = np.sin(2 * np.pi * np.cumsum(38 + 60 * np.exp(-t * 9)) / RATE) * np.exp(-t * 3)
    return (thump + low * np.exp(-t * 1.8) + mid * np.exp(-t * 5)) * np.minimum(1, t / 0.004)


def _steps(rng: Rng) -> Array:
    t = _time(0.22)
    heel = _smooth(rng.standard_normal(len(t)), 60) * 3 * np.exp(-t * 45)
    sole = _smooth(rng.standard_normal(len(t)), 14) * np.exp(-(((t - 0.09) / 0.028) ** 2))
    return heel * np.minimum(1, t / 0.002) + 0.5 * sole


def _click(rng: Rng) -> Array:
    t = _time(0.05)
    return rng.standard_normal(len(t)) * np.exp(-t * 500) + 0.6 * np.sin(2 * np.pi * 2100 * t) * np.exp(
        -t * 180
    )


def _knock(rng: Rng) -> Array:
    f = 150 * float(rng.uniform(0.95, 1.05))
    return 1.2 * _decaying_partials((f, f * 1.7, f * 2.9), (0.06, 0.04, 0.025), 0.3)


def _whoosh(rng: Rng) -> Array:
    t = _time(0.9)
    swell = np.exp(-(((t - 0.42) / 0.16) ** 2))
    raw_noise = rng.standard_normal(len(t))
    return swell * (_smooth(raw_noise, 50) * 2 * (1 - swell) + _smooth(raw_noise, 10) * swell)


# The words of an event, the interval between its repetitions in seconds, and the synthesizer.
EVENTS: Mapping[str, tuple[str, float, Callable[[Rng], Array]]] = {
    "bell": (r"\bbells?\b|\bchimes?\b|\bgong\b|\bdoorbell\b", 2.4, _bell),
    "beep": (r"\bbeep\w*\b|\balarm\b|\bbuzzer\b|\bnotification\b", 0.5, _beep),
    "laser": (r"\blasers?\b|\bblasters?\b|\bzap\w*\b|\bray ?gun\b", 0.9, _laser),
    "explosion": (r"\bexplo\w+\b|\bboom\w*\b|\bblast\b|\bcannons?\b|\bbomb\w*\b", 3.2, _explosion),
    "steps": (r"\bfootsteps?\b|\bsteps\b|\bwalking\b|\brunning\b", 0.55, _steps),
    "click": (r"\bclick\w*\b|\btick\w*\b|\bclock\b|\btyping\b|\bkeyboard\b", 0.5, _click),
    "knock": (r"\bknock\w*\b|\bdoor\b", 0.6, _knock),
    "whoosh": (r"\bwhoosh\w*\b|\bswoosh\w*\b|\bswish\w*\b|\bfly(?:ing)? by\b", 1.6, _whoosh),
}
