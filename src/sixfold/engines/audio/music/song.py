"""The engine of `song-gen`: lyrics become a song's sections and melody, played as their style says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.audio.music import abc, arrangement, engine, genres, lyrics, theory
from sixfold.engines.audio.music.arrangement import SongRequest, SongSection
from sixfold.engines.audio.music.lyrics import Stanza
from sixfold.engines.audio.music.theory import Chord, MusicalKey
from sixfold.engines.image.scene import noise

TOKENS_A_SECOND = 25
_RECALL = {"full": "all", "melody": "melody", "off": "nothing"}
_BPM = re.compile(r"(\d{2,3})\s*bpm", re.IGNORECASE)
_KEY = re.compile(r"\bin ([A-G](?:#|b|-sharp|-flat)? (?:major|minor))\b", re.IGNORECASE)
_DARK = re.compile(
    r"sad|dark|melanchol\w+|minor|moody|haunting|angry|noir|gothic|lonely|heartbreak", re.IGNORECASE
)
_MAJOR, _MINOR = "I V IV vi ii", "i v iv VI VII"  # what may stand under a melody that came alone
_FREE_SECONDS = 60.0  # of a song without a line of lyrics
_OPENING = 2  # bars before and after what is sung
_LINE_BARS = 2


class SongEngine:
    """Songs from lyrics, played and not sung; the same inputs give the same bytes."""

    name = "songwriter"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """One song."""
        inputs = task.inputs
        plan = planned(inputs)
        if plan.sung:
            context.log(engine.NO_VOICE)
        made = engine.recorded(plan.wish, plan.sections, plan.seconds, context)
        kind = str(inputs["format"])
        return Result((files.written(made, kind, context.scratch / f"song.{kind}"),))


@dataclass(frozen=True, slots=True)
class SongPlan:
    """A song before it is played."""

    wish: SongRequest
    sections: Sequence[SongSection]
    seconds: float
    sung: bool


def planned(inputs: Mapping[str, Any]) -> SongPlan:
    """What checked inputs ask for; raises `UnusableInput` for a score that cannot be read or followed."""
    style, cot, seed = str(inputs["style"]), str(inputs["cot"]), int(inputs["seed"])
    score = _score(str(inputs.get("abc") or ""), cot)
    band = genres.band(style)
    if score is not None and score.beats != band.genre.beats:
        band = genres.band("waltz" if score.beats in (3, 6) else style)
    stanzas = lyrics.read(str(inputs["lyrics"]))
    home = score.home if score else _home(style, seed)
    tempo = (score.tempo if score else None) or _tempo(style, band.energy, seed)
    # cfg_scale 0 leaves half of it to chance, 20 almost nothing.
    strictness = (1 + float(inputs["cfg_scale"])) / (2 + float(inputs["cfg_scale"]))
    wish = SongRequest(
        band=band,
        home=home,
        tempo=tempo,
        seed=seed,
        candidates=int(inputs["ode_steps"]),
        strictness=strictness,
        recall=_RECALL[cot],
        tune=score.notes if score else (),
        tune_chords=_under(score) if score else {},
    )
    bar = band.genre.beats * 60 / tempo
    most = int(inputs["semantic_max_tokens"]) / TOKENS_A_SECOND
    parts = _scored(score.bars) if score else _sections(stanzas, min(most, _FREE_SECONDS) / bar)
    seconds = min(most, (parts[-1].bar + parts[-1].bars) * bar)
    return SongPlan(wish, parts, round(seconds, 3), bool(stanzas))


def _score(text: str, cot: str) -> abc.AbcScore | None:
    if not text.strip():
        return None
    if cot == "off":
        raise UnusableInput("abc requires cot full or melody")
    return abc.read(text)


def _under(score: abc.AbcScore) -> Mapping[int, Chord]:
    """The chords of a score's bars: its own where it has any, else those that hold most of its notes."""
    if score.chords:
        return score.chords
    chosen = theory.chords(_MINOR if score.home.minor else _MAJOR, score.home)
    found: dict[int, Chord] = {}
    for bar in range(score.bars):
        inside = [note for note in score.notes if int(note.beat // score.beats) == bar]
        held = [sum(note.beats for note in inside if chord.has(note.pitch)) for chord in chosen]
        found[bar] = chosen[int(np.argmax(held))]
    return found


def _home(style: str, seed: int) -> MusicalKey:
    """The key that the style names, or one by the seed, minor where the style is dark."""
    if named := _KEY.search(style):
        return theory.key(named[1])
    tonic = int(noise.stream(seed, "key").integers(theory.OCTAVE))
    return MusicalKey(tonic, minor=bool(_DARK.search(style)))


def _tempo(style: str, energy: float, seed: int) -> float:
    if named := _BPM.search(style):
        return float(np.clip(int(named[1]), 40, 240))
    return float(round(64 + 70 * energy**1.3 + noise.stream(seed, "tempo").uniform(-4, 4)))


def _sections(stanzas: Sequence[Stanza], free_bars: float) -> list[SongSection]:
    """An opening, the stanzas with two bars a line, and a close."""
    if not stanzas:
        return arrangement.sections(max(1, round(free_bars)))
    found = [SongSection("intro", 0, _OPENING)]
    for stanza in stanzas:
        name = stanza.name if stanza.name in arrangement.LAYERS else "verse"
        begin = found[-1].bar + found[-1].bars
        found.append(SongSection(name, begin, max(2, len(stanza.lines) * _LINE_BARS), stanza.lines))
    return [*found, SongSection("outro", found[-1].bar + found[-1].bars, _OPENING)]


def _scored(bars: int) -> list[SongSection]:
    """A given tune from its first bar to its last."""
    half = bars // 2
    return (
        [SongSection("verse", 0, half), SongSection("chorus", half, bars - half)]
        if half
        else [SongSection("chorus", 0, bars)]
    )
