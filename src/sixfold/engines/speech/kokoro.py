"""Speech by Kokoro: one ONNX file for all its voices, fed with espeak-ng's phonemes and a voice's style.

A folder holds the network (`*.onnx`), its voices (`voices*.bin`: NumPy's archive, a row of style for each
length of text) and `config.json`, whose `vocab` numbers the phonemes. A voice's name begins with its accent
and `f` or `m`: `af_heart`. Source: https://huggingface.co/hexgrad/Kokoro-82M, and for the files
https://github.com/thewh1teagle/kokoro-onnx.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.speech import espeak, networks, synthesis, voices
from sixfold.engines.speech.voices import SpeakingVoice

Wave = NDArray[np.float32]

_RATE = 24_000
_MOST = 510  # phonemes of one call
_ACCENTS = {"en": "ab", "es": "e", "fr": "f", "hi": "h", "it": "i", "pt": "p"}  # by language, as names begin
_SPOKEN = {"a": "en-us", "b": "en-gb", "e": "es", "f": "fr-fr", "h": "hi", "i": "it", "p": "pt-br"}


class KokoroEngine:
    """Says a text with the network and the voices in the folder `source`."""

    name = "kokoro"
    version = "1"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        folder = Path(source or weights)
        network, styles = (_only(folder, pattern) for pattern in ("*.onnx", "voices*.bin"))
        try:
            self._ids: dict[str, int] = json.loads((folder / "config.json").read_text("utf-8"))["vocab"]
            with np.load(styles, allow_pickle=False) as archive:
                self._styles = {name: np.asarray(archive[name], np.float32) for name in archive.files}
            self._session: Any = networks.opened(network)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise EngineError("The Kokoro network, its voices or its config.json cannot be read.") from error
        self._inputs = {each.name: each.type for each in self._session.get_inputs()}

    def run(self, task: Task, context: Context) -> Result:
        """One file of sound, sentence by sentence, at the speed asked for."""
        wanted = synthesis.order(task)
        speaker = self.speaker(wanted.voice, wanted.language or wanted.voice.language)
        artifact = synthesis.recorded(
            wanted, lambda text: self._said(text, speaker, wanted.speed), _RATE, context
        )
        data = {"voice": wanted.voice.id, "duration": artifact.info["duration"], "speaker": speaker}
        return Result((artifact,), data, "full")

    def speaker(self, voice: SpeakingVoice, language: str) -> str:
        """The network's voice for one of ours: of its language and kind, taken in turn."""
        able = sorted(name for name in self._styles if name[:1] in _ACCENTS.get(language, ""))
        if not able:
            raise EngineError(f"No Kokoro voice for {language} is in the folder that `source` names.")
        kind = voice.colour[:1]
        alike = [name for name in able if name[1:2] == kind] or able
        ours = [
            known.id
            for known in voices.table().values()
            if known.language == voice.language and known.colour[:1] == kind
        ]
        return alike[ours.index(voice.id) % len(alike)]

    def _said(self, text: str, speaker: str, speed: float) -> Wave:
        """A sentence as samples, in as many calls as its phonemes need."""
        spoken = espeak.phonemes(text, _SPOKEN[speaker[0]])
        ids = [self._ids[phoneme] for phoneme in spoken if phoneme in self._ids]
        calls = [ids[at : at + _MOST] for at in range(0, len(ids), _MOST)]
        return np.concatenate(
            [self._heard(part, speaker, speed) for part in calls] or [np.zeros(0, np.float32)]
        )

    def _heard(self, ids: list[int], speaker: str, speed: float) -> Wave:
        style = self._styles[speaker]
        row = style[min(len(ids), len(style) - 1)].reshape(1, -1)
        tokens = "tokens" if "tokens" in self._inputs else "input_ids"
        whole = "int" in self._inputs["speed"]  # some exports take whole speeds only
        pace = np.array([max(1, round(speed))], np.int32) if whole else np.array([speed], np.float32)
        feed = {tokens: np.array([[0, *ids, 0]], np.int64), "style": row, "speed": pace}
        return self._session.run(None, feed)[0].reshape(-1).astype(np.float32)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise EngineError(f"There is no {pattern} in the folder that `source` names.")
    return found[0]
