"""Stem separation by position and by a model: every stem improves on the mix, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sixfold.core.catalog.engines import Artifact, EngineError, Task, UnusableInput
from sixfold.engines.audio import files
from sixfold.engines.audio.music import drums, instruments
from sixfold.engines.audio.stems import masks
from sixfold.engines.audio.stems.engine import STEMS, StemEngine
from sixfold.engines.audio.stems.onnx import SOURCES, OnnxStemEngine
from tests.unit.engines.audio.measuring import RATE, Array, Recorder
from tests.unit.engines.onnx_model import _field, _tensor, _value

SECONDS = 5


def parts() -> dict[str, Array]:
    """Return four known parts: centered vocals, bass and drums, and chords at the side."""
    time = np.arange(SECONDS * RATE) / RATE
    steps = np.array([57, 60, 64, 62, 60, 59, 57, 64, 65, 60])
    hertz = 440 * 2 ** ((steps[(time * 2).astype(int) % 10] + 3 - 60 + np.sin(35 * time) * 0.3) / 12)
    phase = 2 * np.pi * np.cumsum(hertz) / RATE
    voice = sum(np.sin(k * phase) / k for k in range(1, 9)) * np.minimum(1, 8 * (0.5 - time % 0.5)) * 0.1
    bass = np.sin(2 * np.pi * 65.4 * time) * 0.15
    rng = np.random.default_rng(1)
    struck = np.zeros(time.size)
    for beat in np.arange(0, SECONDS - 0.5, 0.5):
        wave = drums.snare(rng) if beat % 1 else drums.kick(rng)
        begin = round(beat * RATE)
        struck[begin : begin + wave.size] += wave * 0.35
    chord = sum(
        np.resize(instruments.synthesize(instruments.VOICES["organ"], pitch, 0.6, SECONDS, rng), time.size)
        for pitch in (57, 60, 64)
    )
    both = {"vocals": voice, "drums": struck, "bass": bass}
    result = {name: np.stack([wave, wave]).astype(np.float32) for name, wave in both.items()}
    return {**result, "other": (np.stack([chord, 0.15 * chord]) * 0.25).astype(np.float32)}


def fidelity(truth: Array, stem: Array) -> float:
    """Return the signal-to-distortion ratio in dB."""
    return float(10 * np.log10((truth**2).sum() / ((truth - stem) ** 2).sum()))


def test_stems_improve_on_the_mix_and_sum_to_it() -> None:
    truth = parts()
    mix = np.sum(list(truth.values()), axis=0)
    result = masks.separate(mix, STEMS["four"], lambda _part: None)
    for name, part in result.items():
        assert fidelity(truth[name], part) > fidelity(truth[name], mix) + 3, name
    assert np.abs(np.sum(list(result.values()), axis=0) - mix).max() < 1e-5


def mixed(folder: Path) -> Path:
    content = files.write(np.sum(list(parts().values()), axis=0)[:, : 2 * RATE], "wav", folder / "mix.wav")
    assert content.path is not None
    return content.path


def by_name(artifacts: tuple[Artifact, ...]) -> dict[str, Array]:
    return {
        str(artifact.info["name"]): files.read(artifact.path, 60)
        for artifact in artifacts
        if artifact.path is not None
    }


@pytest.mark.parametrize(("stems", "kind"), [("two", "mp3"), ("four", "wav")])
def test_files_are_named_encoded_and_as_long_as_the_mix(tmp_path: Path, stems: str, kind: str) -> None:
    task = Task(
        "pred_1",
        "stem-separator",
        {"stems": stems, "format": kind, "model": "htdemucs"},
        {"audio": mixed(tmp_path)},
    )
    context = Recorder(tmp_path)
    result = StemEngine().run(task, context)
    assert context.logs[0].startswith("htdemucs needs weights"), "whose name was asked for is said"
    matches = by_name(result.artifacts)
    assert set(matches) == set(STEMS[stems])
    assert {artifact.content_type for artifact in result.artifacts} == {files.KINDS[kind].content_type}
    assert {part.shape[1] for part in matches.values()} == {2 * RATE}
    mix = np.sum(list(matches.values()), axis=0)
    assert fidelity(files.read(mixed(tmp_path), 60), mix) > (60 if kind == "wav" else 15)


def test_file_without_audio_is_refused(tmp_path: Path) -> None:
    playlist = tmp_path / "mix.mp3"
    playlist.write_text("#EXTM3U\n#EXTINF:1,\n/etc/passwd\n")
    task = Task(
        "pred_1",
        "stem-separator",
        {"stems": "two", "format": "mp3", "model": "htdemucs"},
        {"audio": playlist},
    )
    with pytest.raises(UnusableInput):
        StemEngine().run(task, Recorder(tmp_path))


def model(path: Path, gains: tuple[float, ...], length: int = 4410) -> Path:
    """Write a model that outputs the mix at one gain for each source."""
    ahead = _field(5, _field(1, "axes") + _field(8, 1) + _field(20, 7))
    spread = _field(1, _field(1, "mix") + _field(2, "wide") + _field(4, "Unsqueeze") + ahead)
    scaled = _field(1, _field(1, "wide") + _field(1, "g") + _field(2, "y") + _field(4, "Mul"))
    graph = spread + scaled + _field(2, "tiny") + _field(5, _tensor("g", (1, len(gains), 1, 1), gains))
    graph += _field(11, _value("mix", (1, 2, length))) + _field(12, _value("y", (1, len(gains), 2, length)))
    path.write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 11)))
    return path


def test_model_separates_the_mix_in_windows(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model(tmp_path / "htdemucs.onnx", (0.1, 0.2, 0.3, 0.4))
    inputs = {"stems": "four", "format": "wav", "model": "htdemucs_ft"}
    context = Recorder(tmp_path)
    source = mixed(tmp_path)
    result = OnnxStemEngine(weights=str(tmp_path)).run(
        Task("pred_1", "stem-separator", inputs, {"audio": source}), context
    )
    mix, matches = files.read(source, 60), by_name(result.artifacts)
    assert result.quality == "full"
    assert context.logs == ["htdemucs_ft is not installed; using htdemucs"]
    for gain, name in zip((0.1, 0.2, 0.3, 0.4), SOURCES, strict=True):
        middle = slice(RATE // 4, -RATE // 4)
        assert fidelity(mix[:, middle] * gain, matches[name][:, middle]) > 25


def test_missing_or_unsuitable_model_is_named_in_the_error(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(EngineError, match="does not contain an ONNX model"):
        OnnxStemEngine(source=str(tmp_path))
    engine = OnnxStemEngine(source=str(model(tmp_path / "two.onnx", (0.5, 0.5))))
    inputs = {"stems": "two", "format": "wav", "model": "htdemucs"}
    with pytest.raises(EngineError, match="must output four stereo signals"):
        engine.run(Task("pred_1", "stem-separator", inputs, {"audio": mixed(tmp_path)}), Recorder(tmp_path))
