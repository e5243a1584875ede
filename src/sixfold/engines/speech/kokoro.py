"""Speech synthesis with Kokoro: one ONNX network for all voices, with espeak-ng's phonemes as input.

A folder holds the network (`*.onnx`), its voices (`voices*.bin`: a NumPy archive with a style vector for each
text length) and `config.json`, whose `vocab` maps phonemes to ids. A voice's name begins with its accent and
`f` or `m`, such as `af_heart`. Source: https://huggingface.co/hexgrad/Kokoro-82M, and for the files
https://github.com/thewh1teagle/kokoro-onnx.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.speech import espeak, synthesis, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_RATE = 24_000
_MAX_PHONEMES = 510  # in one call of the network
# The first letters of the voice names of each language.
_ACCENTS = {"en": "ab", "es": "e", "fr": "f", "hi": "h", "it": "i", "pt": "p"}
_SPOKEN = {"a": "en-us", "b": "en-gb", "e": "es", "f": "fr-fr", "h": "hi", "i": "it", "p": "pt-br"}


class KokoroEngine:
    """Speaks a text with the network and the voices in the folder `source`."""

    name = "kokoro"
    version = "3"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        folder = Path(source or weights)
        network, styles = (_find(folder, pattern) for pattern in ("*.onnx", "voices*.bin"))
        try:
            self._ids: dict[str, int] = json.loads((folder / "config.json").read_text("utf-8"))["vocab"]
            with np.load(styles, allow_pickle=False) as archive:
                self._styles = {name: np.asarray(archive[name], np.float32) for name in archive.files}
            self._session: Any = voices.open_network(network)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise EngineError(
                "The Kokoro network, its voices or its config.json cannot be read: download them again."
            ) from error
        self._inputs = {model_input.name: model_input.type for model_input in self._session.get_inputs()}

    def run(self, task: Task, context: Context) -> Result:
        """Return an audio file at the requested speed, synthesized by sentence."""
        request = synthesis.parse(task)
        speaker = self.speaker(request.voice, request.language or request.voice.language)
        artifact = synthesis.record(
            request, lambda text: self._speak(text, speaker, request.speed), _RATE, context
        )
        data = {"voice": request.voice.id, "duration": artifact.info["duration"], "speaker": speaker}
        return Result((artifact,), data, "full")

    def speaker(self, voice: SpeakingVoice, language: str) -> str:
        """Return the network's voice for a voice of the API.

        The voices of the API with the same language and gender share the matching voices in turn.
        """
        matching = sorted(name for name in self._styles if name[:1] in _ACCENTS.get(language, ""))
        if not matching:
            raise EngineError(f"The folder `source` does not contain a Kokoro voice for {language}.")
        kind = voice.color[:1]
        same_kind = [name for name in matching if name[1:2] == kind] or matching
        voice_ids = [
            each.id
            for each in voices.table().values()
            if each.language == voice.language and each.color[:1] == kind
        ]
        return same_kind[voice_ids.index(voice.id) % len(same_kind)]

    def _speak(self, text: str, speaker: str, speed: float) -> Wave:
        """Return a sentence as samples, in as many calls as its phonemes need."""
        phonemes = espeak.phonemes(text, _SPOKEN[speaker[0]])
        ids = [self._ids[phoneme] for phoneme in phonemes if phoneme in self._ids]
        calls = [ids[at : at + _MAX_PHONEMES] for at in range(0, len(ids), _MAX_PHONEMES)]
        return np.concatenate(
            [self._synthesize(part, speaker, speed) for part in calls] or [np.zeros(0, np.float32)]
        )

    def _synthesize(self, ids: list[int], speaker: str, speed: float) -> Wave:
        style = self._styles[speaker]
        row = style[min(len(ids), len(style) - 1)].reshape(1, -1)
        tokens = "tokens" if "tokens" in self._inputs else "input_ids"
        # Some exports support integer speeds only.
        integer = "int" in self._inputs["speed"]
        pace = np.array([max(1, round(speed))], np.int32) if integer else np.array([speed], np.float32)
        feed = {tokens: np.array([[0, *ids, 0]], np.int64), "style": row, "speed": pace}
        return self._session.run(None, feed)[0].reshape(-1).astype(np.float32)


def _find(folder: Path, pattern: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise EngineError(f"The folder `source` does not contain {pattern}.")
    return paths[0]
