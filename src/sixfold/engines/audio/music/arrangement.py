"""Arrangement of songs: sections with their layers, harmony by bar, and the notes of every part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.audio.music import genres, melody, score, theory
from sixfold.engines.audio.music.genres import GenreBand
from sixfold.engines.audio.music.lyrics import Stanza
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey
from sixfold.engines.image.scene import noise

# The loudness of the parts in each section; parts that are not listed are silent.
LAYERS: Mapping[str, Mapping[str, float]] = {
    "intro": {"pad": 0.9, "comp": 0.85, "bass": 0.6, "drums": 0.35},
    "verse": {"pad": 0.55, "comp": 0.8, "bass": 0.9, "drums": 0.75, "lead": 0.85},
    "chorus": {"pad": 0.9, "comp": 1.0, "bass": 1.0, "drums": 1.0, "lead": 1.0, "high": 0.6},
    "bridge": {"pad": 1.0, "comp": 0.7, "bass": 0.8, "drums": 0.45, "lead": 0.75},
    "outro": {"pad": 0.9, "comp": 0.8, "bass": 0.8, "drums": 0.5, "lead": 0.7},
}
# The minimum energy at which these sections have drums.
_DRUMS_FROM = {"intro": 0.5, "outro": 0.4, "bridge": 0.4}
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


class SongSection(msgspec.Struct, frozen=True):
    """A section: its name, first bar, number of bars, and the syllables of its lines of lyrics."""

    name: str
    bar: int
    bars: int
    lines: tuple[int, ...] = ()


class SongRequest(msgspec.Struct, frozen=True):
    """The parameters of a song; `strictness` from 0 to 1 reduces random variation.

    `recall` selects the content that repeated sections share: "all", "melody" or "nothing". `tune` is a
    fixed melody from beat 0 on, with optional `tune_chords` by bar.
    """

    band: GenreBand
    home: MusicalKey
    tempo: float
    seed: int
    candidates: int = 4
    strictness: float = 0.5
    recall: str = "all"
    tune: tuple[Note, ...] = ()
    tune_chords: Mapping[int, Chord] = {}


class ArrangedSong(msgspec.Struct, frozen=True):
    """The notes and chords of a song."""

    sections: tuple[SongSection, ...]
    chords: tuple[Chord, ...]
    notes: tuple[Note, ...]
    beats: int


def sections(bars: int, stanzas: Sequence[Stanza] = ()) -> list[SongSection]:
    """Divide bars into sections: those of the lyrics, or else a typical song form."""
    if stanzas:
        names = [(stanza.name if stanza.name in LAYERS else "verse", stanza.lines) for stanza in stanzas]
        weights = [max(1, len(lines)) for _, lines in names]
    else:
        row = next(row for limit, row in _FORMS if bars <= limit)
        names, weights = [(name, ()) for name, _ in row], [weight for _, weight in row]
    edges = np.round(np.cumsum([0, *weights]) / sum(weights) * bars / 2) * 2
    edges[-1] = bars
    result = [
        SongSection(name, int(begin), int(end - begin), tuple(lines))
        for (name, lines), begin, end in zip(names, edges, edges[1:], strict=False)
        if end > begin
    ]
    return result or [SongSection("chorus", 0, bars)]


def arrange(request: SongRequest, parts: Sequence[SongSection]) -> ArrangedSong:
    genre = request.band.genre
    beats = genre.beats
    chords = _harmony(request, parts)
    notes: list[Note] = []
    melodies: dict[str, list[Note]] = {}
    for section in parts:
        section_chords = list(chords[section.bar : section.bar + section.bars])
        layers = {
            part: loudness
            for part, loudness in LAYERS[section.name].items()
            if part not in request.band.without
        }
        if request.band.energy < _DRUMS_FROM.get(section.name, 0):
            layers.pop("drums", None)
        context = _SectionContext(
            request, section, section_chords, layers, noise.stream(request.seed, "section", section.bar)
        )
        notes += _accompaniment(context)
        if "lead" in layers and not request.tune:
            tune = _tune(context, melodies)
            notes += _lead(tune, context)
    if request.tune and "lead" not in request.band.without:
        notes += [replace(note, part="lead") for note in request.tune]
    total = parts[-1].bar + parts[-1].bars
    notes = list(score.cut(notes, total * beats))
    if genre.swing:
        notes = list(score.swing(notes, genre.swing))
    return ArrangedSong(
        tuple(parts), tuple(chords), tuple(sorted(notes, key=lambda n: (n.beat, n.part, n.pitch))), beats
    )


class _SectionContext(msgspec.Struct, frozen=True):
    """A section being arranged."""

    request: SongRequest
    section: SongSection
    chords: Sequence[Chord]
    layers: Mapping[str, float]
    rng: np.random.Generator

    @property
    def beats(self) -> int:
        """The number of beats per bar."""
        return self.request.band.genre.beats

    @property
    def begin(self) -> float:
        """The section's first beat."""
        return self.section.bar * self.beats


def _harmony(request: SongRequest, parts: Sequence[SongSection]) -> list[Chord]:
    """Return a chord for every bar, by kind of section; the last bar is the tonic."""
    genre = request.band.genre
    rows = genre.minor if request.home.minor else genre.major
    order = noise.stream(request.seed, "harmony").permutation(len(rows))
    chords: list[Chord] = []
    for section in parts:
        place = {"chorus": 0, "intro": 0, "outro": 0, "verse": 1, "bridge": 2}[section.name]
        if request.recall != "all" and not request.tune:
            place += int(noise.stream(request.seed, "harmony", section.bar).integers(len(rows)))
        row = theory.chords(rows[int(order[place % len(rows)])], request.home)
        chords += [row[bar % len(row)] for bar in range(section.bars)]
    for bar, chord in request.tune_chords.items():
        if bar < len(chords):
            chords[bar] = chord
    if len(chords) > 1 and not request.tune_chords:
        chords[-1] = theory.chord("i" if request.home.minor else "I", request.home)
    return chords


def _tune(context: _SectionContext, melodies: dict[str, list[Note]]) -> list[Note]:
    """Return the section's melody from beat 0 on; repeated sections may reuse an earlier melody."""
    request, name = context.request, context.section.name
    if request.recall != "nothing" and name in melodies and not context.section.lines:
        melody_notes = melodies[name]
        length = max(note.beat + note.beats for note in melody_notes)
        bars = -(-round(length) // context.beats)
        repeated = [*melody_notes]
        while len(repeated) and repeated[-1].beat < context.section.bars * context.beats and bars:
            repeated += list(
                score.transform(melody_notes, bars * context.beats * (len(repeated) // len(melody_notes)))
            )
        return list(score.cut(repeated, context.section.bars * context.beats))
    rng = noise.stream(request.seed, "melody", name if request.recall != "nothing" else context.section.bar)
    genre = request.band.genre
    line = melody.MelodyLine(
        home=request.home,
        chords=context.chords,
        beats=context.beats,
        density=genre.density * (1.0 if request.band.energy > 0.35 else 0.5),
        pentatonic=genre.scale == "pentatonic",
        syllables=context.section.lines,
        center=74 if name == "chorus" else 69,
    )
    melodies[name] = melody.best(line, rng, request.candidates)
    return melodies[name]


def _lead(tune: Sequence[Note], context: _SectionContext) -> list[Note]:
    """Return the melody at its time, doubled at the octave in an energetic chorus."""
    loudness = context.layers["lead"]
    own = [replace(note, part="lead") for note in score.transform(tune, context.begin, 0, loudness)]
    if "high" in context.layers and context.request.band.energy > 0.65:
        own += [
            replace(note, part="lead", loudness=note.loudness * 0.35, pitch=note.pitch + OCTAVE)
            for note in own
        ]
    return own


def _accompaniment(context: _SectionContext) -> list[Note]:
    """Return the notes of drums, bass, chords and pad in a section."""
    notes: list[Note] = []
    for bar, chord in enumerate(context.chords):
        after = context.chords[min(bar + 1, len(context.chords) - 1)]
        place = _ArrangedBar(context, bar, chord, after)
        for part, write in _WRITERS.items():
            if part in context.layers:
                notes += write(place)
    return notes


class _ArrangedBar(msgspec.Struct, frozen=True):
    """A bar being arranged."""

    context: _SectionContext
    number: int
    chord: Chord
    after: Chord

    @property
    def beat(self) -> float:
        """The first beat of the bar."""
        return self.context.begin + self.number * self.context.beats

    @property
    def chance(self) -> float:
        """The probability of a deviation from the pattern."""
        return 0.16 * (1 - self.context.request.strictness)

    @property
    def closes(self) -> bool:
        """Whether this is the last bar of a group of four, or of the section."""
        return self.number % 4 == 3 or self.number == len(self.context.chords) - 1


def _runs(pattern: str) -> list[tuple[int, str, int]]:
    """Return the position, symbol and length of each note of a pattern, in sixteenths."""
    notes: list[tuple[int, str, int]] = []
    for position, sign in enumerate(pattern):
        if sign not in ".-":
            tail = pattern[position + 1 :]
            notes.append((position, sign, 1 + len(tail) - len(tail.lstrip("-"))))
    return notes


def _drums(bar: _ArrangedBar) -> list[Note]:
    genre = bar.context.request.band.genre
    if not genre.drums:
        return []
    level, rng = bar.context.layers["drums"], bar.context.rng
    full = level * (0.5 + 0.5 * bar.context.request.band.energy)
    notes: list[Note] = []
    for stroke, pattern in genres.table().drums[genre.drums].items():
        if level < 0.5 and stroke in ("snare", "clap") and not bar.closes:
            continue
        for at, sign, _ in _runs(pattern):
            if rng.random() < bar.chance and at:
                continue
            loudness = (0.95 if sign == "x" else 0.45) * full * rng.uniform(0.9, 1.05)
            notes.append(Note(bar.beat + at / 4, 0.25, 0, min(1.0, loudness), stroke))
    if bar.number == 0 and bar.context.section.name == "chorus" and bar.context.request.band.energy > 0.5:
        notes.append(Note(bar.beat, 1, 0, 0.8 * full, "cymbal"))
    if bar.closes and level > 0.7 and bar.context.request.band.energy > 0.5:
        count = bar.context.beats * 4
        notes += [
            Note(bar.beat + at / 4, 0.25, 0, full * (0.35 + 0.1 * (at - count + 4)), "snare")
            for at in range(count - 3, count)
        ]
    return notes


def _bass(bar: _ArrangedBar) -> list[Note]:
    genre = bar.context.request.band.genre
    low = theory.nearest(bar.chord.bass, 44)
    fifth = low + (7 if 7 in bar.chord.tones else 12)
    goal = theory.nearest(bar.after.bass, low)
    nearing = goal + (1 if bar.context.rng.random() < 0.5 else -1) if goal != low else low + 7
    pitches = {"R": low, "5": fifth, "O": low + OCTAVE, "3": low + bar.chord.tones[1], "w": nearing}
    notes: list[Note] = []
    for at, sign, length in _runs(genres.table().bass[genre.bass[1]]):
        if at and bar.context.rng.random() < bar.chance:
            continue
        loudness = (0.85 if at % 4 == 0 else 0.72) * bar.context.layers["bass"]
        notes.append(Note(bar.beat + at / 4, length / 4 * 0.95, pitches[sign], loudness, "bass"))
    return notes


def _voicing(chord: Chord, center: int) -> list[int]:
    """Return a close voicing of up to four tones around `center`."""
    tones = chord.classes if len(chord.tones) < 5 else (*chord.classes[1:4], chord.classes[-1])
    return sorted(theory.nearest(tone, center) for tone in tones)


def _comp(bar: _ArrangedBar) -> list[Note]:
    genre = bar.context.request.band.genre
    pitches = _voicing(bar.chord, 62)
    loudness = 0.55 * bar.context.layers["comp"]
    notes: list[Note] = []
    played = 0
    for at, sign, length in _runs(genres.table().comp[genre.comp[1]]):
        beat, beats = bar.beat + at / 4, length / 4 * 0.92
        if sign == "a":
            ladder = [*pitches, pitches[0] + OCTAVE, *pitches[::-1][1:-1]]
            notes.append(
                Note(beat, max(beats, 0.5), ladder[played % len(ladder)] + OCTAVE, loudness * 1.1, "comp")
            )
            played += 1
        elif not (at and bar.context.rng.random() < bar.chance):
            accent = loudness * (1.05 if at % 8 == 4 else 0.95)
            notes += [Note(beat, beats, pitch, accent, "comp") for pitch in pitches]
    return notes


def _pad(bar: _ArrangedBar) -> list[Note]:
    if not bar.context.request.band.genre.pad:
        return []
    loudness = 0.42 * bar.context.layers["pad"]
    return [Note(bar.beat, bar.context.beats, pitch, loudness, "pad") for pitch in _voicing(bar.chord, 64)]


_WRITERS: Mapping[str, Callable[[_ArrangedBar], list[Note]]] = {
    "drums": _drums,
    "bass": _bass,
    "comp": _comp,
    "pad": _pad,
}
