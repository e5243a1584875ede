"""Speech engines with weights, tested with small random networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("espeakng_loader", reason="needs the extra `embedded`")

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.speech import files, voices
from sixfold.engines.speech.clone import CloneEngine
from sixfold.engines.speech.kokoro import KokoroEngine
from sixfold.engines.speech.piper import PiperEngine
from tests.unit.engines.engine_runs import RunContext
from tests.unit.engines.onnx_model import _field

PHONEMES = "_^$ abdefhijklmnoprstuvwzæðŋɐɑɔəɚɛɡɪɹʃʊʌʒˈˌːɾθɜᵻ,.?!"


def _node(kind: str, inputs: str, output: str, **numbers: int) -> bytes:
    """Return a graph node as protobuf."""
    result = b"".join(_field(1, name) for name in inputs.split()) + _field(2, output) + _field(4, kind)
    for name, number in numbers.items():
        result += _field(5, _field(1, name) + _field(3, number) + _field(20, 2))
    return _field(1, result)


def _constant(name: str, value: NDArray[Any]) -> bytes:
    kind = 1 if value.dtype == np.float32 else 7
    return _field(5, _field(1, value.size) + _field(2, kind) + _field(8, name) + _field(9, value.tobytes()))


def _open(name: str, kind: int, ends: int, sides: int) -> bytes:
    """Return an input (11) or output (12) with dimensions of any length."""
    shape = b"".join(_field(1, _field(2, f"{name}{side}")) for side in range(sides))
    return _field(ends, _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, shape))))


_FLOAT, _INTEGER = 1, 7
_TONE_CONSTANTS = b"".join(
    [
        _constant("many", np.array([300], np.float32)),
        _constant("last", np.array([2])),
        _constant("tone", np.array([0.01], np.float32)),
        _constant("ramp", np.arange(300 * 8, dtype=np.float32)),
        _constant("zero", np.array([0])),
    ]
)


def _tones(phonemes: str) -> bytes:
    """Return nodes that turn each of `phonemes` into `wide` samples of its own tone, in `wave`."""
    nodes = [
        _node("Cast", "wide", "width", to=_INTEGER),
        _node("Shape", phonemes, "shape"),
        _node("Concat", "shape width", "size", axis=0),
        _node("Cast", phonemes, "numbers", to=_FLOAT),
        _node("Unsqueeze", "numbers last", "deep"),
        _node("Expand", "deep size", "held"),
        _node("Slice", "ramp zero width", "steps"),
        _node("Mul", "held steps", "turned"),
        _node("Mul", "turned tone", "slow"),
        _node("Sin", "slow", "wave"),
    ]
    return b"".join(nodes)


def voice_file(folder: Path, name: str, language: str, speakers: int = 1) -> Path:
    """Write a Piper voice in which every phoneme is 300 samples of its own tone."""
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    graph = b"".join(
        [
            _node("Gather", "scales one", "length"),
            _node("Mul", "length many", "wide"),
            _tones("input"),
            _node("Reshape", "wave flat", "output"),
            _field(2, "hum"),
            _TONE_CONSTANTS,
            _constant("one", np.array([1])),
            _constant("flat", np.array([1, 1, -1])),
            _open("input", _INTEGER, 11, 2),
            _open("input_lengths", _INTEGER, 11, 1),
            _open("scales", _FLOAT, 11, 1),
            _open("sid", _INTEGER, 11, 1) if speakers > 1 else b"",
            _open("output", _FLOAT, 12, 3),
        ]
    )
    path = folder / f"{name}.onnx"
    path.write_bytes(_field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13)))
    facts = {
        "audio": {"sample_rate": 16_000},
        "espeak": {"voice": language},
        "num_speakers": speakers,
        "inference": {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8},
        "phoneme_id_map": {char: [number] for number, char in enumerate(PHONEMES)},
    }
    path.with_name(f"{name}.onnx.json").write_text(json.dumps(facts))
    return path


def test_piper_voice_keeps_its_sample_rate_at_any_speed(tmp_path: Path) -> None:
    engine = PiperEngine(source=str(voice_file(tmp_path, "hum", "en-us")))
    lengths: list[float] = []
    for speed in (1, 2):
        inputs = {"text": "Good morning. And good night.", "speed": speed, "format": "wav"}
        result = engine.run(Task("t", "tts", inputs), RunContext(tmp_path / str(speed)))
        path = result.artifacts[0].path
        assert path is not None
        assert np.abs(files.read(path, 16_000)).max() > 0.05
        assert result.quality == "full"
        lengths.append(float(result.artifacts[0].info["duration"]))
    assert lengths[1] == pytest.approx(lengths[0] / 2, rel=0.15)


def kokoro_folder(folder: Path) -> Path:
    """Write a Kokoro network with four voices whose level is that of the style."""
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    graph = b"".join(
        [
            _node("Div", "many speed", "wide"),
            _tones("tokens"),
            _node("ReduceMean", "style", "loud", keepdims=0),
            _node("Mul", "wave loud", "heard"),
            _node("Reshape", "heard flat", "audio"),
            _field(2, "hum"),
            _TONE_CONSTANTS,
            _constant("flat", np.array([-1])),
            _open("tokens", _INTEGER, 11, 2),
            _open("style", _FLOAT, 11, 2),
            _open("speed", _FLOAT, 11, 1),
            _open("audio", _FLOAT, 12, 1),
        ]
    )
    network = _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))
    (folder / "kokoro-tiny.onnx").write_bytes(network)
    names = ("af_heart", "af_sky", "am_adam", "ef_dora")
    styles: dict[str, Any] = {name: np.full((511, 1, 256), 0.3, np.float32) for name in names}
    with (folder / "voices-tiny.bin").open("wb") as file:
        np.savez(file, **styles)
    vocab = {char: number for number, char in enumerate(PHONEMES, 1)}
    (folder / "config.json").write_text(json.dumps({"vocab": vocab}))
    return folder


def test_kokoro_speaks_at_any_speed_with_a_fitting_voice(tmp_path: Path) -> None:
    engine = KokoroEngine(source=str(kokoro_folder(tmp_path)))
    lengths: list[float] = []
    for speed in (1, 2):
        inputs = {"text": "Good morning. And good night.", "speed": speed, "format": "wav", "voice": "ben"}
        result = engine.run(Task("t", "tts", inputs), RunContext(tmp_path / str(speed)))
        path = result.artifacts[0].path
        assert path is not None
        assert np.abs(files.read(path, 24_000)).max() > 0.05
        assert (result.quality, result.data["speaker"]) == ("full", "am_adam")
        lengths.append(float(result.artifacts[0].info["duration"]))
    assert lengths[1] == pytest.approx(lengths[0] / 2, rel=0.15)
    speakers = [engine.speaker(voices.find(name), "en") for name in ("ava", "chloe", "ella")]
    assert speakers == ["af_heart", "af_sky", "af_heart"]
    assert engine.speaker(voices.find("lucia"), "es") == "ef_dora"
    with pytest.raises(EngineError, match="a Kokoro voice for de"):
        engine.speaker(voices.find("anna"), "de")


def test_folder_without_kokoro_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"does not contain \*\.onnx"):
        KokoroEngine(source=str(tmp_path))
    folder = kokoro_folder(tmp_path)
    (folder / "config.json").write_text("{}")
    with pytest.raises(EngineError, match=r"config\.json cannot be read"):
        KokoroEngine(source=str(folder))


def test_the_voices_of_a_language_share_its_speakers(tmp_path: Path) -> None:
    voice_file(tmp_path, "a", "en-us", speakers=3)
    voice_file(tmp_path, "b", "de")
    engine = PiperEngine(source=str(tmp_path))
    speakers = [engine.speaker(voices.find(name), "en").number for name in ("ava", "ben", "chloe", "dan")]
    assert speakers == [0, 1, 2, 0]
    assert engine.speaker(voices.find("anna"), "de").file.name == "b.onnx"
    with pytest.raises(EngineError, match="No Piper voice for fr"):
        engine.speaker(voices.find("camille"), "fr")


def test_a_voice_without_its_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lost.onnx").write_bytes(b"x")
    with pytest.raises(EngineError, match="requires a readable"):
        PiperEngine(source=str(tmp_path))
    with pytest.raises(EngineError, match="does not contain a Piper voice"):
        PiperEngine(source=str(tmp_path / "nowhere"))


STAND_IN = """
import torch
class ChatterboxTTS:
    sr = 24000
    @classmethod
    def from_local(cls, folder, device):
        made = cls(); made.weight = torch.load(folder / "weights.pt", map_location=device); return made
    def generate(self, text, audio_prompt_path=None):
        import wave
        pitch = wave.open(audio_prompt_path).getnframes() / 240 if audio_prompt_path else 110.0
        steps = torch.arange(len(text) * 1200) / self.sr
        return (0.3 * torch.sin(2 * torch.pi * pitch * steps) * self.weight)[None]
"""


def test_voice_is_cloned_from_its_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs the extra `weights`")

    package = tmp_path / "packages" / "chatterbox"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tts.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(package.parent))
    torch.save(torch.ones(1), tmp_path / "weights.pt")
    sample = tmp_path / "sample.opus"
    files.write(iter([np.sin(np.arange(24_000) / 9).astype(np.float32)]), 24_000, "opus", sample)
    engine = CloneEngine(source=str(tmp_path))
    own = engine.run(Task("t", "tts-b", {"text": "Hello there."}), RunContext(tmp_path / "own"))
    like = engine.run(
        Task("t", "tts-b", {"text": "Hello there."}, {"voice_sample": sample}),
        RunContext(tmp_path / "like"),
    )
    first, second = own.artifacts[0].path, like.artifacts[0].path
    assert first is not None
    assert second is not None
    assert first.read_bytes() != second.read_bytes()
    assert files.read(second, 24_000).size > 10_000
    with pytest.raises(EngineError, match="set `source`"):
        CloneEngine(source=str(tmp_path / "nowhere"))
