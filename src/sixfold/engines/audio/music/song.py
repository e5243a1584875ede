"""Engine of `song-gen`: songs whose sections and melody follow from lyrics, a style or an ABC score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines import prompt_words
from sixfold.engines.audio import files
from sixfold.engines.audio.music import abc, arrangement, engine, genres, lyrics, theory
from sixfold.engines.audio.music.arrangement import SongRequest, SongSection
from sixfold.engines.audio.music.lyrics import Stanza
from sixfold.engines.audio.music.theory import Chord, MusicalKey
from sixfold.engines.image.scene import noise

TOKENS_PER_SECOND = 25
_RECALL = {"full": "all", "melody": "melody", "off": "nothing"}
_BPM = re.compile(r"(\d{2,3})\s*bpm", re.IGNORECASE)
_KEY = re.compile(r"\bin ([A-G](?:#|b|-sharp|-flat)? (?:major|minor))\b", re.IGNORECASE)
_DARK = re.compile(
    r"sad|dark|melanchol\w+|minor|moody|haunting|angry|noir|gothic|lonely|heartbreak", re.IGNORECASE
)
# Chords that may accompany a melody without chords.
_MAJOR, _MINOR = "I V IV vi ii", "i v iv VI VII"
# The longest song without lyrics.
_FREE_SECONDS = 60.0
_OPENING = 2  # bars of the intro and of the outro
_LINE_BARS = 2


class SongEngine:
    """Generates instrumental songs from lyrics; the same inputs result in the same bytes."""

    name = "songwriter"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        inputs = task.inputs
        plan = make_plan(inputs)
        if plan.has_lyrics:
            context.log(engine.NO_VOICE)
        signal = engine.render_song(plan.request, plan.sections, plan.seconds, context)
        kind = str(inputs["format"])
        style = str(inputs["style"])
        style_words = prompt_words.of_patterns(style, (_BPM, _KEY, _DARK))
        words = prompt_words.of_parts(style, (genres.words(style), style_words))
        return Result((files.write(signal, kind, context.scratch / f"song.{kind}"),), words=words)


class SongPlan(msgspec.Struct, frozen=True):
    """The plan of a song before rendering."""

    request: SongRequest
    sections: Sequence[SongSection]
    seconds: float
    has_lyrics: bool


def make_plan(inputs: Mapping[str, Any]) -> SongPlan:
    """Plan a song from validated inputs; raises `UnusableInput` for an invalid or unsupported score."""
    style, cot, seed = str(inputs["style"]), str(inputs["cot"]), int(inputs["seed"])
    score = _score(str(inputs.get("abc") or ""), cot)
    band = genres.band(style)
    if score is not None and score.beats != band.genre.beats:
        band = genres.band("waltz" if score.beats in (3, 6) else style)
    stanzas = lyrics.parse(str(inputs["lyrics"]))
    home = score.home if score else _home(style, seed)
    tempo = (score.tempo if score else None) or _tempo(style, band.energy, seed)
    # A cfg_scale of 0 leaves half of the choices to chance, 20 almost none.
    strictness = (1 + float(inputs["cfg_scale"])) / (2 + float(inputs["cfg_scale"]))
    request = SongRequest(
        band=band,
        home=home,
        tempo=tempo,
        seed=seed,
        candidates=int(inputs["ode_steps"]),
        strictness=strictness,
        recall=_RECALL[cot],
        tune=score.notes if score else (),
        tune_chords=_chords_for(score) if score else {},
    )
    bar = band.genre.beats * 60 / tempo
    limit = int(inputs["semantic_max_tokens"]) / TOKENS_PER_SECOND
    parts = _score_sections(score.bars) if score else _sections(stanzas, min(limit, _FREE_SECONDS) / bar)
    seconds = min(limit, (parts[-1].bar + parts[-1].bars) * bar)
    return SongPlan(request, parts, round(seconds, 3), bool(stanzas))


def _score(text: str, cot: str) -> abc.AbcScore | None:
    if not text.strip():
        return None
    if cot == "off":
        raise UnusableInput("abc requires that cot is full or melody")
    return abc.parse(text)


def _chords_for(score: abc.AbcScore) -> Mapping[int, Chord]:
    """Return the chords of a score's bars: the written chords, or else chords that fit most of the notes."""
    if score.chords:
        return score.chords
    candidates = theory.chords(_MINOR if score.home.minor else _MAJOR, score.home)
    chords: dict[int, Chord] = {}
    for bar in range(score.bars):
        inside = [note for note in score.notes if int(note.beat // score.beats) == bar]
        matches = [sum(note.beats for note in inside if chord.has(note.pitch)) for chord in candidates]
        chords[bar] = candidates[int(np.argmax(matches))]
    return chords


def _home(style: str, seed: int) -> MusicalKey:
    """Return the key that the style names, or a random one, in minor for a dark style."""
    if match := _KEY.search(style):
        return theory.key(match[1])
    tonic = int(noise.stream(seed, "key").integers(theory.OCTAVE))
    return MusicalKey(tonic, minor=bool(_DARK.search(style)))


def _tempo(style: str, energy: float, seed: int) -> float:
    if match := _BPM.search(style):
        return float(np.clip(int(match[1]), 40, 240))
    return float(round(64 + 70 * energy**1.3 + noise.stream(seed, "tempo").uniform(-4, 4)))


def _sections(stanzas: Sequence[Stanza], free_bars: float) -> list[SongSection]:
    """Return an intro, the stanzas with two bars per line, and an outro."""
    if not stanzas:
        return arrangement.sections(max(1, round(free_bars)))
    sections = [SongSection("intro", 0, _OPENING)]
    for stanza in stanzas:
        name = stanza.name if stanza.name in arrangement.LAYERS else "verse"
        begin = sections[-1].bar + sections[-1].bars
        sections.append(SongSection(name, begin, max(2, len(stanza.lines) * _LINE_BARS), stanza.lines))
    return [*sections, SongSection("outro", sections[-1].bar + sections[-1].bars, _OPENING)]


def _score_sections(bars: int) -> list[SongSection]:
    """Divide the bars of a score into a verse and a chorus."""
    half = bars // 2
    return (
        [SongSection("verse", 0, half), SongSection("chorus", half, bars - half)]
        if half
        else [SongSection("chorus", 0, bars)]
    )
