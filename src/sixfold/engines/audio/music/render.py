"""A song on paper becomes sound: voices and drums at their places, a room behind them, the finished level."""

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
_DEGREES = 4  # of loudness that a voice has sounds for
_GRID = 0.25  # seconds: notes about as long share one sound
_LAST_SECONDS = 1.6
_TAKES = 3  # of a drum's stroke


class BandRenderer:
    """The voices of one song, each sound of theirs made once."""

    def __init__(self, wish: SongRequest) -> None:
        band = wish.band
        names = {
            "bass": band.genre.bass[0],
            "comp": band.genre.comp[0],
            "pad": band.genre.pad,
            "lead": band.lead,
        }
        self.voices = {part: instruments.VOICES[name] for part, name in names.items() if name}
        self._seed = wish.seed
        self._made: dict[tuple[str, int, int, int], Array] = {}
        self._strokes: dict[tuple[str, int], Array] = {}

    def note(self, part: str, pitch: int, loud: float, seconds: float) -> Array:
        """A note as it is played; its own loudness is still to come."""
        voice = self.voices[part]
        pitch = _within(pitch, voice)
        degree = min(_DEGREES - 1, int(loud * _DEGREES))
        length = max(1, round(seconds / _GRID)) if seconds > _GRID else 0
        key = (part, pitch, degree, length)
        if key not in self._made:
            rng = noise.stream(self._seed, *key)
            held = length * _GRID * 0.98 if length else 0.11
            self._made[key] = instruments.sounded(voice, pitch, (degree + 0.5) / _DEGREES, held, rng)
        return self._made[key]

    def stroke(self, name: str, take: int) -> Array:
        """A drum's stroke; no two in a row are the same."""
        key = (name, take % _TAKES)
        if key not in self._strokes:
            self._strokes[key] = drums.STROKES[name](noise.stream(self._seed, "stroke", *key))
        return self._strokes[key]


def _within(pitch: int, voice: InstrumentVoice) -> int:
    while pitch > voice.high:
        pitch -= 12
    while pitch < voice.low:
        pitch += 12
    return pitch


def played(song: ArrangedSong, wish: SongRequest, seconds: float, step: Callable[[float], None]) -> Array:
    """The song as sound of exactly `seconds`; `step` hears how far it is."""
    players = BandRenderer(wish)
    beat = 60 / wish.tempo
    back, front, wet = (mixing.silence(seconds) for _ in range(3))
    for count, note in enumerate(song.notes):
        second = note.beat * beat
        if note.part in drums.STROKES:
            wave = players.stroke(note.part, count)
            gain = drums.LEVELS[note.part] * note.loud * _DRUMS
            mixing.put(front, wave, second, gain, drums.PANS.get(note.part, 0.0))
            if note.part != "kick":
                mixing.put(wet, wave, second, gain * 0.12)
        elif note.part in players.voices:
            voice = players.voices[note.part]
            wave = players.note(note.part, note.pitch, note.loud, note.beats * beat)
            gain = note.loud * _MIX[note.part]
            pan = _PANS[note.part]
            mixing.put(front if note.part == "lead" else back, wave, second, gain, pan)
            mixing.put(wet, wave, second, gain * voice.wet, pan * 1.5)
        if count % 64 == 0:
            step(count / len(song.notes))
    genre = wish.band.genre
    if genre.duck:
        back *= _ducked([note for note in song.notes if note.part == "kick"], beat, back.shape[1], genre.duck)
    mixed = back + front
    if genre.room:
        answer = mixing.room(noise.stream(wish.seed, "room"), genre.room, 5200, 0.02)
        mixed += mixing.convolved(wet, answer) * np.float32(1.3)
    if genre.dust:
        mixed += _dust(noise.stream(wish.seed, "dust"), mixed.shape[1]) * np.float32(genre.dust)
    return mixing.mastered(mixed, min(_LAST_SECONDS, seconds / 6))


def _ducked(kicks: Sequence[Note], beat: float, length: int, depth: float) -> Array:
    """How far the band stands back, sample by sample: at every kick, and then forward again."""
    gain = np.ones(length, np.float32)
    span = round(0.24 * RATE)
    dip = (1 - depth * np.cos(np.linspace(0, np.pi / 2, span)) ** 2).astype(np.float32)
    for kick in kicks:
        begin = round(kick.beat * beat * RATE)
        part = gain[begin : begin + span]
        np.minimum(part, dip[: part.size], out=part)
    return gain


def _dust(rng: np.random.Generator, length: int) -> Array:
    """What an old record adds: a little hiss, and specks."""
    hiss = np.tile(synthesis.shaped(4 * RATE, rng, 800, 7000), -(-length // (4 * RATE)))[
        :length
    ] * np.float32(0.25)
    specks = (rng.random(length) < 9 / RATE) * rng.normal(0, 9, length)
    return np.stack([hiss + specks, hiss + specks]).astype(np.float32)
