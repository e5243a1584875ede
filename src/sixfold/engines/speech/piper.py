"""Speech by Piper's voices: VITS networks as ONNX files, fed with espeak-ng's phonemes.

A voice is a file `NAME.onnx` beside its `NAME.onnx.json` (https://github.com/OHF-Voice/piper1-gpl). Our 26
voices share the files and speakers of their language that are there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.normalization import normalized
from sixfold.engines.speech import espeak, networks, synthesis, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_PAD, _START, _END = "_", "^", "$"


@dataclass(frozen=True, slots=True)
class PiperSpeaker:
    """One speaker of one file."""

    file: Path
    language: str
    number: int


class PiperEngine:
    """Says a text with the files in `source` (one file, or a folder of them)."""

    name = "piper"
    version = "1"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._speakers = _speakers(Path(source or weights))
        self._loaded: dict[Path, _VoiceFile] = {}

    def run(self, task: Task, context: Context) -> Result:
        """One file of sound, sentence by sentence, at the speed asked for."""
        wanted = synthesis.order(task)
        speaker = self.speaker(wanted.voice, wanted.language or wanted.voice.language)
        if speaker.file not in self._loaded:
            self._loaded = {speaker.file: _VoiceFile(speaker.file)}  # one at a time is held
        file = self._loaded[speaker.file]
        artifact = synthesis.recorded(
            wanted, lambda text: file.said(text, speaker.number, wanted.speed), file.rate, context
        )
        return Result((artifact,), {"voice": wanted.voice.id, "duration": artifact.info["duration"]}, "full")

    def speaker(self, voice: SpeakingVoice, language: str) -> PiperSpeaker:
        """The voice's own speaker: the voices of a language take its speakers in turn."""
        able = [speaker for speaker in self._speakers if speaker.language == language]
        if not able:
            known = ", ".join(sorted({speaker.language for speaker in self._speakers}))
            raise EngineError(f"No Piper voice for {language} is installed here; there are some for {known}.")
        alike = [known.id for known in voices.table().values() if known.language == voice.language]
        return able[alike.index(voice.id) % len(able)]


class _VoiceFile:
    """A loaded network and what its description says."""

    def __init__(self, path: Path) -> None:
        facts = _facts(path)
        self.rate = int(facts["audio"]["sample_rate"])
        self._language = str(facts["espeak"]["voice"])
        self._ids: dict[str, list[int]] = facts["phoneme_id_map"]
        self._many = int(facts.get("num_speakers", 1)) > 1
        scales = facts.get("inference", {})
        self._scales = [float(scales.get(name, usual)) for name, usual in _SCALES]
        try:
            self._session: Any = networks.opened(path)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"The Piper voice {path.name} cannot be loaded.") from error

    def said(self, text: str, speaker: int, speed: float) -> Wave:
        """A sentence as samples."""
        ids = self.ids(espeak.phonemes(text, self._language))
        noise, length, width = self._scales
        feed: dict[str, Any] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([noise, length / speed, width], np.float32),
        }
        if self._many:
            feed["sid"] = np.array([speaker], np.int64)
        return self._session.run(None, feed)[0].reshape(-1).astype(np.float32)

    def ids(self, phonemes: str) -> list[int]:
        """The network's numbers for phonemes: begun, padded between, ended; unknown ones are left out."""
        found = [*self._ids[_START], *self._ids[_PAD]]
        for phoneme in normalized("NFD", phonemes):
            if phoneme in self._ids:
                found += [*self._ids[phoneme], *self._ids[_PAD]]
        return [*found, *self._ids[_END]]


_SCALES = (("noise_scale", 0.667), ("length_scale", 1.0), ("noise_w", 0.8))


def _facts(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(
            f"The Piper voice {path.name} has no readable {path.name}.json beside it."
        ) from error


def _speakers(source: Path) -> list[PiperSpeaker]:
    """Every speaker of every file, in the order of the names."""
    paths = [source] if source.is_file() else sorted(source.rglob("*.onnx"))
    if not paths:
        raise EngineError("There is no Piper voice (NAME.onnx) where `source` points.")
    found: list[PiperSpeaker] = []
    for path in paths:
        facts = _facts(path)
        language = str(facts["espeak"]["voice"]).partition("-")[0]
        found += [PiperSpeaker(path, language, number) for number in range(int(facts.get("num_speakers", 1)))]
    return found
