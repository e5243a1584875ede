"""Speech to speech without a chat model: transcription, and synthesis of a text or a transcript."""

from __future__ import annotations

from typing import Any

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines.speech.engine import SpeechEngine
from sixfold.engines.speech.moonshine import MoonshineEngine
from sixfold.engines.speech.sphinx import SphinxEngine


class SpeechToSpeechEngine:
    """Runs the task `transcribe` on `audio`, or `speak` on `text` or else on the transcript of `audio`.

    Recordings are transcribed with Moonshine in a folder of `weights`, or with PocketSphinx.
    """

    name = "talking"
    version = "3"

    def __init__(self, *, weights: str = "") -> None:
        self._weights = weights
        self._recognizer: MoonshineEngine | SphinxEngine | None = None
        self._synthesizer = SpeechEngine()

    def run(self, task: Task, context: Context) -> Result:
        """Return `task` and `text` with the transcript's data or with an `audio` file."""
        kind = str(task.inputs["task"])
        text = str(task.inputs.get("text") or "").strip()
        transcript: dict[str, Any] = {}
        if kind == "transcribe" or not text:
            transcript = self._transcribe(task, context, kind)
        data = {"task": kind, "text": text or transcript["text"]}
        if kind == "transcribe":
            quality = "full" if self._weights else "preview"
            return Result(data={**transcript, **data, "text": transcript["text"]}, quality=quality)
        if not data["text"]:
            raise UnusableInput("No speech was recognized in the recording.")
        result = self._synthesizer.run(Task(task.id, task.model, {**task.inputs, **data}), context)
        artifact = result.artifacts[0]
        named = type(artifact)(
            artifact.content_type, info={**artifact.info, "name": "audio"}, path=artifact.path
        )
        return Result((named,), data, "preview")

    def _transcribe(self, task: Task, context: Context, kind: str) -> dict[str, Any]:
        if "audio" not in task.files:
            required = "`audio`" if kind == "transcribe" else "`text` or `audio`"
            raise UnusableInput(f"{required} is required for the task {kind}.")
        if self._recognizer is None:
            self._recognizer = MoonshineEngine(weights=self._weights) if self._weights else SphinxEngine()
        return dict(self._recognizer.run(task, context).data)
