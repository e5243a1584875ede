"""A song on paper: sections with their layers, harmony a bar at a time, and every part's notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sixfold.engines.audio.music import genres, melody, score, theory
from sixfold.engines.audio.music.genres import GenreBand
from sixfold.engines.audio.music.lyrics import Stanza
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey
from sixfold.engines.image.scene import noise

# What is heard in a section, each part at its loudness; what is not named is silent.
LAYERS: Mapping[str, Mapping[str, float]] = {
    "intro": {"pad": 0.9, "comp": 0.85, "bass": 0.6, "drums": 0.35},
    "verse": {"pad": 0.55, "comp": 0.8, "bass": 0.9, "drums": 0.75, "lead": 0.85},
    "chorus": {"pad": 0.9, "comp": 1.0, "bass": 1.0, "drums": 1.0, "lead": 1.0, "high": 0.6},
    "bridge": {"pad": 1.0, "comp": 0.7, "bass": 0.8, "drums": 0.45, "lead": 0.75},
    "outro": {"pad": 0.9, "comp": 0.8, "bass": 0.8, "drums": 0.5, "lead": 0.7},
}
_DRUMS_FROM = {"intro": 0.5, "outro": 0.4, "bridge": 0.4}  # the energy from which such a section has drums
_FORMS: tuple[tuple[int, tuple[tuple[str, int], ...]], ...] = (
    (4, (("chorus", 1),)),
    (9, (("verse", 1), ("chorus", 1))),
    (20, (("intro", 1), ("verse", 2), ("chorus", 2))),
    (44, (("intro", 1), ("verse", 2), ("chorus", 2), ("verse", 2), ("chorus", 2))),
    (
        10**6,
        (
            ("intro", 1),
            ("verse", 2),
            ("chorus", 2),
            ("verse", 2),
            ("chorus", 2),
            ("bridge", 1),
            ("chorus", 2),
            ("outro", 1),
        ),
    ),
)
_LINE_BARS = 2


@dataclass(frozen=True, slots=True)
class SongSection:
    """A part of the song: its name, where it begins, how many bars it has, and the lines that it carries."""

    name: str
    bar: int
    bars: int
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SongRequest:
    """What a song is to be. `strictness` is how little is left to chance (0 to 1).

    `recall` says what comes back when a section does: "all", "melody" or "nothing". `tune` is a melody
    that was given, from beat 0 on, with its own chords where it has them.
    """

    band: GenreBand
    home: MusicalKey
    tempo: float
    seed: int
    candidates: int = 4
    strictness: float = 0.5
    recall: str = "all"
    tune: tuple[Note, ...] = ()
    tune_chords: Mapping[int, Chord] = field(default_factory=dict[int, Chord])


@dataclass(frozen=True, slots=True)
class ArrangedSong:
    """The finished paper."""

    sections: tuple[SongSection, ...]
    chords: tuple[Chord, ...]
    notes: tuple[Note, ...]
    beats: int


def sections(bars: int, stanzas: Sequence[Stanza] = ()) -> list[SongSection]:
    """So many bars as sections: those of the lyrics where there are any, else those of a usual song."""
    if stanzas:
        names = [(stanza.name if stanza.name in LAYERS else "verse", stanza.lines) for stanza in stanzas]
        weights = [max(1, len(lines)) for _, lines in names]
    else:
        row = next(row for most, row in _FORMS if bars <= most)
        names, weights = [(name, ()) for name, _ in row], [weight for _, weight in row]
    edges = np.round(np.cumsum([0, *weights]) / sum(weights) * bars / 2) * 2
    edges[-1] = bars
    found = [
        SongSection(name, int(begin), int(end - begin), tuple(lines))
        for (name, lines), begin, end in zip(names, edges, edges[1:], strict=False)
        if end > begin
    ]
    return found or [SongSection("chorus", 0, bars)]


def sung(stanzas: Sequence[Stanza]) -> int:
    """How many bars lyrics take, an opening and a close included."""
    return sum(max(2, len(stanza.lines)) * _LINE_BARS for stanza in stanzas) + 4


def arranged(wish: SongRequest, parts: Sequence[SongSection]) -> ArrangedSong:
    """Every part's notes."""
    genre = wish.band.genre
    beats = genre.beats
    chords = _harmony(wish, parts)
    notes: list[Note] = []
    kept: dict[str, list[Note]] = {}
    for section in parts:
        own = list(chords[section.bar : section.bar + section.bars])
        layers = {part: loud for part, loud in LAYERS[section.name].items() if part not in wish.band.without}
        if wish.band.energy < _DRUMS_FROM.get(section.name, 0):
            layers.pop("drums", None)
        scene = _Scene(wish, section, own, layers, noise.stream(wish.seed, "section", section.bar))
        notes += _accompanied(scene)
        if "lead" in layers and not wish.tune:
            tune = _tune(scene, kept)
            notes += _led(tune, scene)
    if wish.tune and "lead" not in wish.band.without:
        notes += [replace(note, part="lead") for note in wish.tune]
    total = parts[-1].bar + parts[-1].bars
    notes = list(score.cut(notes, total * beats))
    if genre.swing:
        notes = list(score.swung(notes, genre.swing))
    return ArrangedSong(
        tuple(parts), tuple(chords), tuple(sorted(notes, key=lambda n: (n.beat, n.part, n.pitch))), beats
    )


@dataclass(frozen=True, slots=True)
class _Scene:
    """One section while it is written."""

    wish: SongRequest
    section: SongSection
    chords: Sequence[Chord]
    layers: Mapping[str, float]
    rng: np.random.Generator

    @property
    def beats(self) -> int:
        """Beats of a bar."""
        return self.wish.band.genre.beats

    @property
    def begin(self) -> float:
        """The section's first beat."""
        return self.section.bar * self.beats


def _harmony(wish: SongRequest, parts: Sequence[SongSection]) -> list[Chord]:
    """A chord for every bar; verses and choruses have rows of their own, and the last bar is home."""
    genre = wish.band.genre
    rows = genre.minor if wish.home.minor else genre.major
    order = noise.stream(wish.seed, "harmony").permutation(len(rows))
    chords: list[Chord] = []
    for section in parts:
        place = {"chorus": 0, "intro": 0, "outro": 0, "verse": 1, "bridge": 2}[section.name]
        if wish.recall != "all" and not wish.tune:
            place += int(noise.stream(wish.seed, "harmony", section.bar).integers(len(rows)))
        row = theory.chords(rows[int(order[place % len(rows)])], wish.home)
        chords += [row[bar % len(row)] for bar in range(section.bars)]
    for bar, chord in wish.tune_chords.items():
        if bar < len(chords):
            chords[bar] = chord
    if len(chords) > 1 and not wish.tune_chords:
        chords[-1] = theory.chord("i" if wish.home.minor else "I", wish.home)
    return chords


def _tune(scene: _Scene, kept: dict[str, list[Note]]) -> list[Note]:
    """The section's melody, from beat 0 on; one that has been heard comes back."""
    wish, name = scene.wish, scene.section.name
    if wish.recall != "nothing" and name in kept and not scene.section.lines:
        known = kept[name]
        length = max(note.beat + note.beats for note in known)
        bars = -(-round(length) // scene.beats)
        again = [*known]
        while len(again) and again[-1].beat < scene.section.bars * scene.beats and bars:
            again += list(score.moved(known, bars * scene.beats * (len(again) // len(known))))
        return list(score.cut(again, scene.section.bars * scene.beats))
    seeded = noise.stream(wish.seed, "melody", name if wish.recall != "nothing" else scene.section.bar)
    genre = wish.band.genre
    line = melody.MelodyLine(
        home=wish.home,
        chords=scene.chords,
        beats=scene.beats,
        density=genre.density * (1.0 if wish.band.energy > 0.35 else 0.5),
        pentatonic=genre.scale == "pentatonic",
        syllables=scene.section.lines,
        centre=74 if name == "chorus" else 69,
    )
    kept[name] = melody.best(line, seeded, wish.candidates)
    return kept[name]


def _led(tune: Sequence[Note], scene: _Scene) -> list[Note]:
    """The melody in its place; in a chorus with an octave above it where there is much going on."""
    loud = scene.layers["lead"]
    own = [replace(note, part="lead") for note in score.moved(tune, scene.begin, 0, loud)]
    if "high" in scene.layers and scene.wish.band.energy > 0.65:
        own += [replace(note, part="lead", loud=note.loud * 0.35, pitch=note.pitch + OCTAVE) for note in own]
    return own


def _accompanied(scene: _Scene) -> list[Note]:
    """Drums, bass, chords and pad of a section."""
    notes: list[Note] = []
    for bar, chord in enumerate(scene.chords):
        after = scene.chords[min(bar + 1, len(scene.chords) - 1)]
        place = _ArrangedBar(scene, bar, chord, after)
        for part, write in _WRITERS.items():
            if part in scene.layers:
                notes += write(place)
    return notes


@dataclass(frozen=True, slots=True)
class _ArrangedBar:
    """One bar while it is written."""

    scene: _Scene
    number: int
    chord: Chord
    after: Chord

    @property
    def beat(self) -> float:
        """Its first beat."""
        return self.scene.begin + self.number * self.scene.beats

    @property
    def chance(self) -> float:
        """How often something other than the pattern happens."""
        return 0.16 * (1 - self.scene.wish.strictness)

    @property
    def closes(self) -> bool:
        """Whether it is the last of a group of four, or of its section."""
        return self.number % 4 == 3 or self.number == len(self.scene.chords) - 1


def _runs(pattern: str) -> list[tuple[int, str, int]]:
    """Each sign of a figure that sounds: where, which, and how many sixteenths it is held."""
    found: list[tuple[int, str, int]] = []
    for at, sign in enumerate(pattern):
        if sign not in ".-":
            rest = pattern[at + 1 :]
            found.append((at, sign, 1 + len(rest) - len(rest.lstrip("-"))))
    return found


def _drums(bar: _ArrangedBar) -> list[Note]:
    genre = bar.scene.wish.band.genre
    if not genre.drums:
        return []
    level, rng = bar.scene.layers["drums"], bar.scene.rng
    full = level * (0.5 + 0.5 * bar.scene.wish.band.energy)
    notes: list[Note] = []
    for stroke, pattern in genres.table().drums[genre.drums].items():
        if level < 0.5 and stroke in ("snare", "clap") and not bar.closes:
            continue
        for at, sign, _ in _runs(pattern):
            if rng.random() < bar.chance and at:
                continue
            loud = (0.95 if sign == "x" else 0.45) * full * rng.uniform(0.9, 1.05)
            notes.append(Note(bar.beat + at / 4, 0.25, 0, min(1.0, loud), stroke))
    if bar.number == 0 and bar.scene.section.name == "chorus" and bar.scene.wish.band.energy > 0.5:
        notes.append(Note(bar.beat, 1, 0, 0.8 * full, "cymbal"))
    if bar.closes and level > 0.7 and bar.scene.wish.band.energy > 0.5:
        count = bar.scene.beats * 4
        notes += [
            Note(bar.beat + at / 4, 0.25, 0, full * (0.35 + 0.1 * (at - count + 4)), "snare")
            for at in range(count - 3, count)
        ]
    return notes


def _bass(bar: _ArrangedBar) -> list[Note]:
    genre = bar.scene.wish.band.genre
    low = theory.nearest(bar.chord.bass, 44)
    fifth = low + (7 if 7 in bar.chord.tones else 12)
    goal = theory.nearest(bar.after.bass, low)
    nearing = goal + (1 if bar.scene.rng.random() < 0.5 else -1) if goal != low else low + 7
    pitches = {"R": low, "5": fifth, "O": low + OCTAVE, "3": low + bar.chord.tones[1], "w": nearing}
    notes: list[Note] = []
    for at, sign, length in _runs(genres.table().bass[genre.bass[1]]):
        if at and bar.scene.rng.random() < bar.chance:
            continue
        loud = (0.85 if at % 4 == 0 else 0.72) * bar.scene.layers["bass"]
        notes.append(Note(bar.beat + at / 4, length / 4 * 0.95, pitches[sign], loud, "bass"))
    return notes


def _voiced(chord: Chord, centre: int) -> list[int]:
    """A close setting of up to four tones round `centre`."""
    tones = chord.classes if len(chord.tones) < 5 else (*chord.classes[1:4], chord.classes[-1])
    return sorted(theory.nearest(tone, centre) for tone in tones)


def _comp(bar: _ArrangedBar) -> list[Note]:
    genre = bar.scene.wish.band.genre
    pitches = _voiced(bar.chord, 62)
    loud = 0.55 * bar.scene.layers["comp"]
    notes: list[Note] = []
    played = 0
    for at, sign, length in _runs(genres.table().comp[genre.comp[1]]):
        beat, beats = bar.beat + at / 4, length / 4 * 0.92
        if sign == "a":
            ladder = [*pitches, pitches[0] + OCTAVE, *pitches[::-1][1:-1]]
            notes.append(
                Note(beat, max(beats, 0.5), ladder[played % len(ladder)] + OCTAVE, loud * 1.1, "comp")
            )
            played += 1
        elif not (at and bar.scene.rng.random() < bar.chance):
            accent = loud * (1.05 if at % 8 == 4 else 0.95)
            notes += [Note(beat, beats, pitch, accent, "comp") for pitch in pitches]
    return notes


def _pad(bar: _ArrangedBar) -> list[Note]:
    if not bar.scene.wish.band.genre.pad:
        return []
    loud = 0.42 * bar.scene.layers["pad"]
    return [Note(bar.beat, bar.scene.beats, pitch, loud, "pad") for pitch in _voiced(bar.chord, 64)]


_WRITERS: Mapping[str, Callable[[_ArrangedBar], list[Note]]] = {
    "drums": _drums,
    "bass": _bass,
    "comp": _comp,
    "pad": _pad,
}
