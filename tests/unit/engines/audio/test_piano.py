"""The piano: key, tempo, length and sound as requested, by the rules of each style, without clicks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import Canceled, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.ambience import loudness
from sixfold.engines.audio.music import theory
from sixfold.engines.audio.piano import baroque, engine, jazz, strings, structure, voices
from tests.harness.cases import nightly_after
from tests.unit.engines.audio import measuring
from tests.unit.engines.audio.measuring import Array, Recorder

USUAL = {"model": "open-piano-baroque", "sound": "studio", "bars": 8, "tempo": 108, "key": "C", "seed": 17}
MANNERS = list(engine.STYLES)


def play(folder: Path, **changes: Any) -> Array:
    return files.read(file(folder, **changes), 300)


def file(folder: Path, **changes: Any) -> Path:
    task = Task("pred_1", "piano", {**USUAL, **changes})
    (result,) = engine.PianoEngine().run(task, Recorder(folder)).artifacts
    assert result.content_type == "audio/mpeg"
    assert result.path is not None
    return result.path


CASES = [
    ("open-piano-baroque", "C", 108, 8),
    ("open-piano-jazz", "C", 108, 8),
    ("open-piano-minimal", "C", 108, 8),
    ("open-piano-baroque", "F", 200, 8),
    ("open-piano-jazz", "B", 150, 4),
]


@pytest.mark.parametrize(("model", "key", "tempo", "bars"), nightly_after(1, reversed(CASES)))
def test_piece_has_the_requested_key_tempo_and_length(
    tmp_path: Path, model: str, key: str, tempo: int, bars: int
) -> None:
    sound = play(tmp_path, model=model, key=key, tempo=tempo, bars=bars)
    assert sound.shape[1] / files.RATE == pytest.approx(bars * 4 * 60 / tempo, abs=0.03)
    assert measuring.key(sound) == key
    assert measuring.tempo(sound, tempo) == pytest.approx(tempo, rel=0.01)


@pytest.mark.parametrize("model", nightly_after(1, MANNERS))
def test_piece_has_music_loudness_without_clipping_or_clicks(tmp_path: Path, model: str) -> None:
    sound = play(tmp_path, model=model, seed=5, bars=4)
    assert loudness.integrated(sound) == pytest.approx(-16, abs=0.7)
    assert measuring.true_peak(sound) < -1
    assert np.abs(sound[:, :8]).max() < 0.01
    assert np.abs(sound[:, -8:]).max() < 0.01
    assert abs(float(sound.mean())) < 1e-4
    # The channels differ, but contain the same instrument.
    assert 0.05 < np.corrcoef(sound)[0, 1] < 0.95


@pytest.mark.nightly
def test_brightness_increases_from_felt_to_studio_to_bright(tmp_path: Path) -> None:
    felt, studio, bright = (
        measuring.centroid(play(tmp_path, sound=sound, bars=2)) for sound in ("felt", "studio", "bright")
    )
    assert felt * 1.2 < studio
    assert studio * 1.2 < bright


def test_styles_and_seeds_give_different_music() -> None:
    home = theory.key("C")
    pieces = [engine.compose(model, home, 8, 108, seed) for model in MANNERS for seed in (1, 2)]
    shapes = {tuple((note.beat, note.pitch) for note in piece) for piece in pieces}
    assert len(shapes) == 6


@pytest.mark.parametrize("model", nightly_after(1, MANNERS))
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, model: str) -> None:
    first, second = (file(tmp_path, model=model, bars=1).read_bytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("bars", range(1, 33))
def test_every_number_of_bars_is_filled_exactly(bars: int) -> None:
    for model in MANNERS:
        notes = engine.compose(model, theory.key("G"), bars, 120, bars)
        ends = [note.beat + note.beats for note in notes]
        assert 0 <= min(note.beat for note in notes) < 1
        assert bars * 4 - 1.2 < max(ends) <= bars * 4 + 0.2
        assert all(21 <= note.pitch <= 108 and 0 < note.loudness <= 1 and note.beats > 0 for note in notes)


def test_form_of_a_piece_has_four_parts() -> None:
    assert [(part.name, part.bar, part.bars) for part in structure.form(8)] == [
        ("A", 0, 2),
        ("A'", 2, 2),
        ("B", 4, 2),
        ("A", 6, 2),
    ]
    assert all(sum(part.bars for part in structure.form(bars)) == bars for bars in range(1, 33))


@pytest.mark.parametrize("key", "CDEFGAB")
def test_four_voices_have_no_parallel_fifths_or_octaves(key: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        _, rows = baroque.skeleton(theory.key(key), structure.form(16), rng)
        assert not voices.parallels(rows[:-1], rows[1:]).any()
        assert (np.diff(rows, axis=1) >= 0).all()
        assert (np.diff(rows[:, 1:], axis=1) > 0).all()


def test_baroque_pieces_end_on_the_tonic() -> None:
    home = theory.key("D")
    chords, _ = baroque.skeleton(home, structure.form(8), np.random.default_rng(1))
    roots = [chord.root for chord in chords]
    assert roots[-3:] == [9, 2, 2]  # V I I
    # The first phrase ends on the dominant.
    assert roots[3] == 9


def test_jazz_uses_ii_v_changes_and_rootless_chords() -> None:
    home = theory.key("C")
    chords = jazz.changes(home, structure.form(16), np.random.default_rng(1))
    pairs = [(a.root, b.root) for a, b in itertools.pairwise(chords)]
    assert pairs.count((2, 7)) >= 4
    for numeral in ("ii7", "V7", "Imaj7", "vi7"):
        chord = theory.chord(numeral, home)
        assert chord.root not in {pitch % 12 for pitch in jazz.rootless(chord, 57)}


def test_jazz_swings_and_the_others_do_not() -> None:
    home = theory.key("C")
    offsets = {
        model: {round(note.beat % 1, 2) for note in engine.compose(model, home, 8, 120, 3)}
        for model in MANNERS
    }
    assert 0.67 in offsets["open-piano-jazz"]
    assert 0.5 not in offsets["open-piano-jazz"]
    assert 0.5 in offsets["open-piano-baroque"]


def test_strings_are_stiff_and_low_ones_ring_longer() -> None:
    rng = np.random.default_rng(1)
    note = strings.strike(60, 0.6, 2.0, strings.SOUNDS["studio"], rng)
    spectrum = np.abs(np.fft.rfft(note.mean(0) * np.hanning(note.shape[1])))
    base = 261.626

    def find(number: int) -> float:
        begin, end = (round(base * number * share * 2) for share in (0.985, 1.03))
        return (begin + int(np.argmax(spectrum[begin:end]))) / 2

    assert find(1) == pytest.approx(base, abs=1)
    assert 1.003 < find(8) / (8 * base) < 1.02
    high = strings.strike(96, 0.6, 2.0, strings.SOUNDS["studio"], rng)
    assert (
        np.abs(high[:, 48_000:]).max() / np.abs(high).max()
        < np.abs(note[:, 48_000:]).max() / np.abs(note).max()
    )


def test_canceled_run_stops(tmp_path: Path) -> None:
    with pytest.raises(Canceled):
        engine.PianoEngine().run(Task("pred_1", "piano", USUAL), Recorder(tmp_path, cancel_at=0.3))
