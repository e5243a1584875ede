"""Speech synthesis with Piper voices: VITS networks as ONNX files, with espeak-ng's phonemes as input.

A voice is a file `NAME.onnx` beside its `NAME.onnx.json` (https://github.com/OHF-Voice/piper1-gpl). The 26
voices of the API share the installed files and speakers of their language.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.input_limits.normalization import normalized
from sixfold.engines import model_files
from sixfold.engines.speech import espeak, synthesis, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_PAD, _START, _END = "_", "^", "$"


class PiperSpeaker(msgspec.Struct, frozen=True):
    """A speaker of a voice file."""

    file: Path
    language: str
    number: int


class PiperEngine:
    """Speaks a text with the voice files in `source` (a file or a folder)."""

    name = "piper"
    version = "3"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._speakers = _speakers(Path(source or weights))
        self._loaded: dict[Path, _VoiceFile] = {}

    def run(self, task: Task, context: Context) -> Result:
        """Return an audio file at the requested speed, synthesized by sentence."""
        request = synthesis.parse(task)
        speaker = self.speaker(request.voice, request.language or request.voice.language)
        if speaker.file not in self._loaded:
            # Only one file is held in memory.
            self._loaded = {speaker.file: _VoiceFile(speaker.file)}
        file = self._loaded[speaker.file]
        artifact = synthesis.record(
            request, lambda text: file.speak(text, speaker.number, request.speed), file.rate, context
        )
        return Result((artifact,), {"voice": request.voice.id, "duration": artifact.info["duration"]}, "full")

    def sample(self, text: str) -> Iterator[tuple[str, Wave, int]]:
        """Yield the text in the first voice of each language: the language, samples and their rate."""
        for language in sorted({speaker.language for speaker in self._speakers}):
            first = next(speaker for speaker in self._speakers if speaker.language == language)
            file = _VoiceFile(first.file)
            yield language, file.speak(text, first.number, 1.0), file.rate

    def speaker(self, voice: SpeakingVoice, language: str) -> PiperSpeaker:
        """Return the speaker of a voice; the voices of a language share its speakers in turn."""
        matching = [speaker for speaker in self._speakers if speaker.language == language]
        if not matching:
            languages = ", ".join(sorted({speaker.language for speaker in self._speakers}))
            raise EngineError(
                f"No Piper voice for {language} is installed; voices are installed for: {languages}."
            )
        voice_ids = [
            languages.id for languages in voices.table().values() if languages.language == voice.language
        ]
        return matching[voice_ids.index(voice.id) % len(matching)]


class _VoiceFile:
    """A loaded network and its configuration."""

    def __init__(self, path: Path) -> None:
        config = _config(path)
        self.rate = int(config["audio"]["sample_rate"])
        self._language = str(config["espeak"]["voice"])
        self._ids: dict[str, list[int]] = config["phoneme_id_map"]
        self._multi_speaker = int(config.get("num_speakers", 1)) > 1
        scales = config.get("inference", {})
        self._scales = [float(scales.get(name, default)) for name, default in _SCALES]
        try:
            self._session: Any = voices.open_network(path)
        except (RuntimeError, ValueError) as error:
            raise EngineError(
                f"The Piper voice {path.name} cannot be loaded; the file may be damaged: download it again."
            ) from error

    def speak(self, text: str, speaker: int, speed: float) -> Wave:
        ids = self.ids(espeak.phonemes(text, self._language))
        noise, length, width = self._scales
        feed: dict[str, Any] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([noise, length / speed, width], np.float32),
        }
        if self._multi_speaker:
            feed["sid"] = np.array([speaker], np.int64)
        return self._session.run(None, feed)[0].reshape(-1).astype(np.float32)

    def ids(self, phonemes: str) -> list[int]:
        """Return the network's ids of phonemes, with start, padding and end; unknown phonemes are omitted."""
        ids = [*self._ids[_START], *self._ids[_PAD]]
        for phoneme in normalized("NFD", phonemes):
            if phoneme in self._ids:
                ids += [*self._ids[phoneme], *self._ids[_PAD]]
        return [*ids, *self._ids[_END]]


_SCALES = (("noise_scale", 0.667), ("length_scale", 1.0), ("noise_w", 0.8))


def _config(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(
            f"The Piper voice {path.name} requires a readable {path.name}.json next to it."
        ) from error


def _speakers(source: Path) -> list[PiperSpeaker]:
    """Return every speaker of every file, in order of the file names."""
    paths = model_files.find(source, "*.onnx")
    if not paths:
        raise EngineError("`source` does not contain a Piper voice (NAME.onnx).")
    speakers: list[PiperSpeaker] = []
    for path in paths:
        config = _config(path)
        language = str(config["espeak"]["voice"]).partition("-")[0]
        speakers += [
            PiperSpeaker(path, language, number) for number in range(int(config.get("num_speakers", 1)))
        ]
    return speakers
