"""Rendering of an arranged song: instruments and drums, reverberation and mastering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sixfold.engines.audio.music import drums, instruments, mixing, synthesis
from sixfold.engines.audio.music.arrangement import ArrangedSong, SongRequest
from sixfold.engines.audio.music.instruments import InstrumentVoice
from sixfold.engines.audio.music.mixing import Array
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.synthesis import RATE
from sixfold.engines.image.scene import noise

_PANS = {"comp": -0.25, "lead": 0.12, "pad": 0.0, "bass": 0.0}
_MIX = {"lead": 0.62, "comp": 0.42, "pad": 0.3, "bass": 0.78}
_DRUMS = 0.72
# The number of loudness levels at which notes are synthesized.
_LEVELS = 4
# Notes whose lengths round to the same multiple of this share a sound.
_GRID = 0.25
_LAST_SECONDS = 1.6
_TAKES = 3  # variants of each drum stroke


class BandRenderer:
    """Renders the notes of a song and caches the sounds."""

    def __init__(self, request: SongRequest) -> None:
        band = request.band
        names = {
            "bass": band.genre.bass[0],
            "comp": band.genre.comp[0],
            "pad": band.genre.pad,
            "lead": band.lead,
        }
        self.voices = {part: instruments.VOICES[name] for part, name in names.items() if name}
        self._seed = request.seed
        self._notes: dict[tuple[str, int, int, int], Array] = {}
        self._strokes: dict[tuple[str, int], Array] = {}

    def note(self, part: str, pitch: int, loudness: float, seconds: float) -> Array:
        """Return the sound of a note, without the gain for its loudness."""
        voice = self.voices[part]
        pitch = _transpose_into(pitch, voice)
        level = min(_LEVELS - 1, int(loudness * _LEVELS))
        length = max(1, round(seconds / _GRID)) if seconds > _GRID else 0
        key = (part, pitch, level, length)
        if key not in self._notes:
            rng = noise.stream(self._seed, *key)
            sustain_seconds = length * _GRID * 0.98 if length else 0.11
            self._notes[key] = instruments.synthesize(
                voice, pitch, (level + 0.5) / _LEVELS, sustain_seconds, rng
            )
        return self._notes[key]

    def stroke(self, name: str, take: int) -> Array:
        """Return a drum stroke; consecutive takes differ."""
        key = (name, take % _TAKES)
        if key not in self._strokes:
            self._strokes[key] = drums.STROKES[name](noise.stream(self._seed, "stroke", *key))
        return self._strokes[key]


def _transpose_into(pitch: int, voice: InstrumentVoice) -> int:
    while pitch > voice.high:
        pitch -= 12
    while pitch < voice.low:
        pitch += 12
    return pitch


def render(
    song: ArrangedSong, request: SongRequest, seconds: float, progress: Callable[[float], None]
) -> Array:
    """Render a song to a signal of exactly `seconds` and report progress from 0 to 1."""
    renderer = BandRenderer(request)
    beat = 60 / request.tempo
    back, front, wet = (mixing.silence(seconds) for _ in range(3))
    for count, note in enumerate(song.notes):
        second = note.beat * beat
        if note.part in drums.STROKES:
            wave = renderer.stroke(note.part, count)
            gain = drums.LEVELS[note.part] * note.loudness * _DRUMS
            mixing.put(front, wave, second, gain, drums.PANS.get(note.part, 0.0))
            if note.part != "kick":
                mixing.put(wet, wave, second, gain * 0.12)
        elif note.part in renderer.voices:
            voice = renderer.voices[note.part]
            wave = renderer.note(note.part, note.pitch, note.loudness, note.beats * beat)
            gain = note.loudness * _MIX[note.part]
            pan = _PANS[note.part]
            mixing.put(front if note.part == "lead" else back, wave, second, gain, pan)
            mixing.put(wet, wave, second, gain * voice.wet, pan * 1.5)
        if count % 64 == 0:
            progress(count / len(song.notes))
    genre = request.band.genre
    if genre.duck:
        back *= _ducking(
            [note for note in song.notes if note.part == "kick"], beat, back.shape[1], genre.duck
        )
    mixed = back + front
    if genre.room:
        response = mixing.reverb(noise.stream(request.seed, "room"), genre.room, 5200, 0.02)
        mixed += mixing.convolve(wet, response) * np.float32(1.3)
    if genre.dust:
        mixed += _dust(noise.stream(request.seed, "dust"), mixed.shape[1]) * np.float32(genre.dust)
    return mixing.master(mixed, min(_LAST_SECONDS, seconds / 6))


def _ducking(kicks: Sequence[Note], beat: float, length: int, depth: float) -> Array:
    """Return the gain that ducks the band at every kick, by sample."""
    gain = np.ones(length, np.float32)
    span = round(0.24 * RATE)
    dip = (1 - depth * np.cos(np.linspace(0, np.pi / 2, span)) ** 2).astype(np.float32)
    for kick in kicks:
        begin = round(kick.beat * beat * RATE)
        part = gain[begin : begin + span]
        np.minimum(part, dip[: part.size], out=part)
    return gain


def _dust(rng: np.random.Generator, length: int) -> Array:
    """Return the hiss and crackle of a vinyl record."""
    hiss = np.tile(synthesis.band_noise(4 * RATE, rng, 800, 7000), -(-length // (4 * RATE)))[
        :length
    ] * np.float32(0.25)
    specks = (rng.random(length) < 9 / RATE) * rng.normal(0, 9, length)
    return np.stack([hiss + specks, hiss + specks]).astype(np.float32)
