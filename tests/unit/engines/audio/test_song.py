"""Songs from lyrics and scores are played as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.audio.music import abc, arrangement, song, theory
from sixfold.engines.audio.music.arrangement import ArrangedSong
from tests.unit.engines.audio import measuring
from tests.unit.engines.audio.measuring import Recorder

LYRICS = "[Verse]\nThe river runs below the hill\nAnd carries all away\n[Chorus]\n" + "Come home to me\n" * 2
USUAL = {
    "style": "acoustic folk, 120 bpm, in G major",
    "lyrics": LYRICS,
    "cot": "full",
    "seed": 831001,
    "cfg_scale": 0,
    "ode_steps": 4,
    "semantic_max_tokens": 9000,
    "format": "mp3",
}
SCORE = "X:1\nT:Little tune\nM:4/4\nL:1/4\nQ:1/4=100\nK:D\n"


def arrange(**changes: Any) -> ArrangedSong:
    plan = song.make_plan({**USUAL, **changes})
    return arrangement.arrange(plan.request, plan.sections)


def test_a_song_has_its_sections_key_and_tempo(tmp_path: Path) -> None:
    context = Recorder(tmp_path)
    (result,) = song.SongEngine().run(Task("pred_1", "song-gen", USUAL), context).artifacts
    assert result.path is not None
    sound = files.read(result.path, 300)
    assert sound.shape[1] / files.RATE == result.info["duration"] == 24.0  # twelve bars
    assert measuring.key(sound) == "G"
    assert measuring.tempo(sound, 120) == pytest.approx(120, rel=0.01)
    assert "no voice sings here" in context.logs[0]
    assert "intro 2, verse 4, chorus 4, outro 2 bars" in context.logs[1]


@pytest.mark.parametrize(("kind", "magic"), [("mp3", b"ID3"), ("wav", b"RIFF"), ("flac", b"fLaC")])
def test_every_format_is_valid_and_within_its_token_limit(tmp_path: Path, kind: str, magic: bytes) -> None:
    inputs = {**USUAL, "format": kind, "semantic_max_tokens": 200}
    (result,) = song.SongEngine().run(Task("pred_1", "song-gen", inputs), Recorder(tmp_path)).artifacts
    assert result.path is not None
    assert result.path.read_bytes().startswith(magic)
    assert result.content_type == files.KINDS[kind].content_type
    assert files.read(result.path, 300).shape[1] == 8 * files.RATE  # 200 tokens, 25 a second


def transcribe(song: ArrangedSong) -> list[tuple[float, int]]:
    return [(round(note.beat, 3), note.pitch) for note in song.notes if note.part == "lead"]


def test_score_sets_melody_key_tempo_and_chords() -> None:
    text = SCORE + '|"D"d2 f>e|"A"c2 A2|'
    plan = song.make_plan({**USUAL, "abc": text})
    assert (plan.request.tempo, plan.request.home, plan.seconds) == (100.0, theory.MusicalKey(2), 4.8)
    result = arrangement.arrange(plan.request, plan.sections)
    assert transcribe(result) == [(0, 74), (2, 78), (3.5, 76), (4, 73), (6, 69)]
    assert [chord.root for chord in result.chords] == [2, 9]


def test_score_without_chords_gets_chords_with_its_notes() -> None:
    result = arrange(abc=SCORE + "|D F A F|B, D G B,|")
    assert [chord.root for chord in result.chords] == [2, 7]


def test_a_score_needs_a_plan() -> None:
    with pytest.raises(UnusableInput, match="abc requires that cot is full or melody"):
        song.make_plan({**USUAL, "abc": SCORE + "C D E F|", "cot": "off"})
    assert transcribe(arrange(abc=SCORE + "D E F G|", cot="melody")) == [(0, 62), (1, 64), (2, 66), (3, 67)]


def test_planned_chorus_repeats_and_unplanned_one_does_not() -> None:
    twice = "[Chorus]\n\n[Verse]\n\n[Chorus]\n"

    def tunes(cot: str) -> tuple[list[Any], list[Any], list[Any]]:
        result = arrange(lyrics=twice, cot=cot)
        first, second = [part for part in result.sections if part.name == "chorus"]
        length = min(first.bars, second.bars) * result.beats

        def part(section: arrangement.SongSection) -> list[tuple[float, int]]:
            begin = section.bar * result.beats
            inside = [n for n in result.notes if n.part == "lead" and 0 <= n.beat - begin < length]
            return [(round(note.beat - begin, 2), note.pitch) for note in inside]

        chords = [[c.root for c in result.chords[s.bar : s.bar + first.bars]] for s in (first, second)]
        return part(first), part(second), chords

    first, second, chords = tunes("full")
    assert (first, chords[0]) == (second, chords[1])
    first, second, _ = tunes("melody")
    assert first == second
    first, second, _ = tunes("off")
    assert first != second


def test_a_strict_scale_keeps_to_the_pattern() -> None:
    def hats(scale: float) -> int:
        result = arrange(style="rock, 120 bpm", lyrics=LYRICS * 3, cfg_scale=scale)
        return sum(note.part == "hat" for note in result.notes)

    assert hats(0) < hats(20)


def test_more_steps_give_another_melody() -> None:
    assert transcribe(arrange(ode_steps=1)) != transcribe(arrange(ode_steps=128))


def test_style_without_a_key_gets_one_by_mood() -> None:
    assert song.make_plan({**USUAL, "style": "sad piano"}).request.home.minor
    assert not song.make_plan({**USUAL, "style": "happy pop"}).request.home.minor


READ = [
    ("C D E F|", [60, 62, 64, 65]),
    ("c d c' C,|", [72, 74, 84, 48]),
    ("^C =C _D|", [61, 60, 61]),
    ("^C C|C|", [61, 61, 60]),
    ("|:C D:|", [60, 62, 60, 62]),
    ("|:C|1 D:|2 E|]", [60, 62, 60, 64]),
    ("(3CDE F|", [60, 62, 64, 65]),
    ("[CEG] z c|", [60, 64, 67, 72]),
    ("C-C D|", [60, 62]),
    ("% nothing\n!f! C {d} ~E|", [60, 64]),
]


@pytest.mark.parametrize(("tune", "pitches"), READ)
def test_abc_notation_is_parsed_to_pitches(tune: str, pitches: list[int]) -> None:
    result = abc.parse(f"X:1\nL:1/4\nK:C\n{tune}")
    assert [note.pitch for note in result.notes] == pitches


def test_lengths_dots_and_tuplets_are_exact() -> None:
    result = abc.parse("X:1\nM:4/4\nL:1/8\nK:C\nC2 D/2 E/ F3/2 (3GAB c>d|")
    assert [note.beat for note in result.notes] == pytest.approx(
        [0, 1, 1.25, 1.5, 2.25, 2.5833, 2.9167, 3.25, 4.0], abs=1e-3
    )


KEYS = [
    ("G", False, 66),
    ("Em", True, 66),
    ("D dorian", True, 65),
    ("F", False, 65),
    ("Eb", False, 65),
    ("F#", False, 66),
]


@pytest.mark.parametrize(("text", "minor", "pitch"), KEYS)
def test_key_signature_raises_and_lowers_notes(text: str, minor: bool, pitch: int) -> None:
    result = abc.parse(f"X:1\nL:1/4\nK:{text}\nF|")
    assert (result.home.minor, result.notes[0].pitch) == (minor, pitch)


@pytest.mark.parametrize(
    "text", ["", "X:1\nK:C\n", "X:1\nK:C\nhello?", "X:1\nL:1/0\nK:C\nC", "X:1\nM:0/4\nK:C\nC", "é" * 30_000]
)
def test_invalid_score_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(UnusableInput, match="abc"):
        abc.parse(text)


def test_the_same_seed_gives_the_same_song() -> None:
    assert arrange() == arrange()
    assert transcribe(arrange()) != transcribe(arrange(seed=1))
    assert np.isfinite([note.beat for note in arrange().notes]).all()
