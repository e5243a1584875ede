"""Voice cloning with Chatterbox, from a folder of weights, on the best device available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.speech import files, synthesis, time_stretch

_SAMPLE_RATE = 24_000
_SAMPLE_SECONDS = 30.0


class CloneEngine:
    """Speaks a text in the voice of `voice_sample`, or in the model's default voice without a sample."""

    name = "clone"
    version = "3"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        import torch
        from chatterbox.tts import ChatterboxTTS  # pyright: ignore[reportMissingImports] - optional

        folder = Path(source or weights)
        if not folder.is_dir():
            raise EngineError(f"{folder.name} is not a folder: set `source` to the folder of the weights.")
        self._torch: Any = torch
        self._model: Any = ChatterboxTTS.from_local(folder, _device(torch))

    def run(self, task: Task, context: Context) -> Result:
        """Return an audio file, synthesized by sentence."""
        request = synthesis.parse(task)
        sample = self._sample(task, context)
        self._torch.manual_seed(int(task.inputs.get("seed") or 0))
        rate = int(self._model.sr)

        def speak(text: str) -> NDArray[np.float32]:
            output = self._model.generate(text, **({"audio_prompt_path": str(sample)} if sample else {}))
            wave = output.detach().cpu().numpy().reshape(-1).astype(np.float32)
            return time_stretch.to_length(wave, round(wave.size / request.speed), rate)

        artifact = synthesis.record(request, speak, rate, context)
        return Result((artifact,), {"duration": artifact.info["duration"]}, "full")

    @staticmethod
    def _sample(task: Task, context: Context) -> Path | None:
        """Write at most 30 seconds of the sample as WAV; return None for a task without a sample."""
        path = task.files.get("voice_sample")
        if path is None:
            return None
        wave = files.read(path, _SAMPLE_RATE, 600)[: round(_SAMPLE_SECONDS * _SAMPLE_RATE)]
        target = context.scratch / "sample.wav"
        files.write(iter([wave]), _SAMPLE_RATE, "wav", target)
        return target


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
