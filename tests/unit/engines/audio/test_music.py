"""Music from a prompt: exact length, key and tempo, a fitting band, lyrics and steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import Canceled, Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.audio.ambience import loudness
from sixfold.engines.audio.music import arrangement, genres, instruments, lyrics, melody, theory
from sixfold.engines.audio.music.arrangement import ArrangedSong, SongRequest
from sixfold.engines.audio.music.engine import MusicEngine, bars
from tests.harness.cases import nightly_after
from tests.unit.engines.audio import measuring
from tests.unit.engines.audio.measuring import Array, Recorder

USUAL = {
    "prompt": "upbeat pop song",
    "lyrics": "[Instrumental]",
    "duration": 12,
    "bpm": 120,
    "key": "C Major",
    "seed": 17,
    "steps": 4,
}


def render(folder: Path, **changes: Any) -> Array:
    result = MusicEngine().run(Task("pred_1", "music-diffusion", {**USUAL, **changes}), Recorder(folder))
    (artifact,) = result.artifacts
    assert artifact.path is not None
    assert artifact.info["duration"] == changes.get("duration", USUAL["duration"])
    return files.read(artifact.path, 400)


CASES = [
    ("upbeat pop song", "C Major", "C", 120),
    ("dark techno club", "A Minor", "Am", 128),
    ("epic orchestral film score", "F# Minor", "F#m", 96),
    ("irish folk with fiddle", "G Major", "G", 110),
    ("viennese waltz", "Bb Major", "A#", 170),
]


@pytest.mark.parametrize(("prompt", "key", "measured", "bpm"), nightly_after(1, CASES))
def test_music_has_the_requested_length_key_and_tempo(
    tmp_path: Path, prompt: str, key: str, measured: str, bpm: int
) -> None:
    sound = render(tmp_path, prompt=prompt, key=key, bpm=bpm, duration=12)
    assert sound.shape[1] == 12 * files.RATE
    assert measuring.key(sound) == measured
    assert measuring.tempo(sound, bpm) == pytest.approx(bpm, rel=0.01)
    assert loudness.integrated(sound) == pytest.approx(-16, abs=1)
    assert measuring.true_peak(sound) < -1
    assert np.abs(sound[:, -8:]).max() < 0.01
    assert abs(float(sound.mean())) < 1e-3


WORDS = [
    ("a techno track for a club", "techno"),
    ("hard rock with electric guitar", "rock"),
    ("chill lo-fi beats to study to", "lo-fi"),
    ("boom bap hip hop", "hip-hop"),
    ("a smooth jazz trio", "jazz"),
    ("a waltz in a ballroom", "waltz"),
    ("epic orchestral trailer", "orchestral"),
    ("bossa nova on the beach", "latin"),
    ("8-bit arcade game", "chiptune"),
    ("a reggae sunday", "reggae"),
    ("funk with slap bass", "funk"),
    ("acoustic folk ballad", "folk"),
    ("peaceful ambient soundscape", "ambient"),
    ("an advert for a bakery", "pop"),
]


@pytest.mark.parametrize(("prompt", "genre"), WORDS)
def test_prompt_selects_the_genre(prompt: str, genre: str) -> None:
    assert genres.band(prompt).genre.name == genre


def test_instruments_and_patterns_of_the_genre_table_exist() -> None:
    table = genres.table()
    for genre in table.genres.values():
        assert {genre.bass[0], genre.comp[0], genre.lead, *([genre.pad] if genre.pad else [])} <= set(
            instruments.VOICES
        )
        assert not genre.drums or genre.drums in table.drums
        length = genre.beats * 4
        patterns = [
            table.bass[genre.bass[1]],
            table.comp[genre.comp[1]],
            *table.drums.get(genre.drums, {}).values(),
        ]
        assert {len(pattern) for pattern in patterns} == {length}
        for minor in (False, True):
            home = theory.MusicalKey(0, minor)
            for row in genre.minor if minor else genre.major:
                assert theory.chords(row, home)
    assert set(table.leads) <= set(instruments.VOICES)


def arrange(prompt: str = "upbeat pop song", seconds: float = 40, **changes: Any) -> ArrangedSong:
    wish = SongRequest(genres.band(prompt), theory.key("C Major"), 120, **{"seed": 17, **changes})
    return arrangement.arrange(wish, arrangement.sections(bars(wish, seconds)))


def test_prompt_can_omit_parts_and_name_the_lead() -> None:
    full = {note.part for note in arrange().notes}
    without = {note.part for note in arrange("upbeat pop song, no drums").notes}
    assert {"kick", "snare", "bass", "comp", "lead"} <= full
    assert not without & {"kick", "snare", "hat"}
    assert genres.band("lo-fi with flute").lead == "flute"
    assert genres.band("lo-fi without flute").lead != "flute"
    assert genres.band("energetic lo-fi").energy > genres.band("slow lo-fi").energy


def test_verses_and_choruses_repeat_and_differ() -> None:
    song = arrange(seconds=80)
    starts = {name: [s for s in song.sections if s.name == name] for name in ("verse", "chorus")}

    def tune(section: arrangement.SongSection) -> list[tuple[float, int]]:
        begin = section.bar * song.beats
        inside = [n for n in song.notes if n.part == "lead" and 0 <= n.beat - begin < 16 and n.loudness > 0.4]
        return [(round(note.beat - begin, 2), note.pitch) for note in inside]

    assert tune(starts["chorus"][0]) == tune(starts["chorus"][1])
    assert tune(starts["verse"][0]) != tune(starts["chorus"][0])


def test_more_steps_find_a_better_melody() -> None:
    home = theory.key("C Major")
    line = melody.MelodyLine(home, theory.chords("I V vi IV I V IV I", home), 4, 1.0)
    worths = [
        np.mean(
            [melody.score(melody.best(line, np.random.default_rng(seed), steps), line) for seed in range(8)]
        )
        for steps in (1, 8, 20)
    ]
    assert worths[0] < worths[1] < worths[2]


@pytest.mark.nightly
def test_lyrics_define_the_sections_and_are_not_sung(tmp_path: Path) -> None:
    context = Recorder(tmp_path)
    words = "[Verse]\nThe river runs\nAnd on it goes\n[Chorus]\nOh come home\n[Bridge]\nLa la la"
    MusicEngine().run(Task("pred_1", "music-diffusion", {**USUAL, "duration": 16, "lyrics": words}), context)
    assert "no voice sings here" in context.logs[0]
    assert "verse 4, chorus 2, bridge 2 bars" in context.logs[1]
    quiet = Recorder(tmp_path)
    MusicEngine().run(Task("pred_1", "music-diffusion", USUAL), quiet)
    assert not any("voice" in line for line in quiet.logs)


def test_lyrics_are_parsed_into_sections_lines_and_syllables() -> None:
    result = lyrics.parse("[Verse 1]\nThe river runs beneath\n\n[Chorus] Oh come home\n[Instrumental]")
    assert [(stanza.name, stanza.lines) for stanza in result] == [("verse", (6,)), ("chorus", (3,))]
    assert lyrics.parse("[Instrumental]") == []
    assert lyrics.parse("") == []


KEYS = [
    ("C Major", 0, False),
    ("F# minor", 6, True),
    ("Bb", 10, False),
    ("a min", 9, True),
    ("Em", 4, True),
    ("D-flat major", 1, False),
]


@pytest.mark.parametrize(("text", "tonic", "minor"), KEYS)
def test_musical_key_is_parsed_in_common_spellings(text: str, tonic: int, minor: bool) -> None:
    assert theory.key(text) == theory.MusicalKey(tonic, minor)


@pytest.mark.parametrize("text", ["H Major", "", "C lydianish", "12", "C Major; D"])
def test_invalid_musical_key_is_refused(text: str) -> None:
    with pytest.raises(UnusableInput, match="key must be"):
        theory.key(text)


@pytest.mark.nightly
def test_song_bytes_depend_only_on_the_seed(tmp_path: Path) -> None:
    first, second, other = (render(tmp_path, seed=seed, duration=10) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert measuring.correlation(first, other) < 0.9


def test_canceled_run_stops(tmp_path: Path) -> None:
    with pytest.raises(Canceled):
        MusicEngine().run(Task("pred_1", "music-diffusion", USUAL), Recorder(tmp_path, cancel_at=0.2))
