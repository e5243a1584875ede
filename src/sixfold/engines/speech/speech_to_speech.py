"""Speech to speech as far as it goes without a chat model: recordings to text, and text to speech."""

from __future__ import annotations

from typing import Any

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines.speech.engine import SpeechEngine
from sixfold.engines.speech.sphinx import SphinxEngine


class SpeechToSpeechEngine:
    """`transcribe` writes down `audio`; `speak` says `text`, or what was heard where there is none."""

    name = "talking"
    version = "1"

    def __init__(self) -> None:
        self._listening: SphinxEngine | None = None
        self._speaking = SpeechEngine()

    def run(self, task: Task, context: Context) -> Result:
        """`{"task", "text"}`, with the transcript's facts or with `audio` beside them."""
        wanted = str(task.inputs["task"])
        text = str(task.inputs.get("text") or "").strip()
        heard: dict[str, Any] = {}
        if wanted == "transcribe" or not text:
            heard = self._heard(task, context, wanted)
        said = {"task": wanted, "text": text or heard["text"]}
        if wanted == "transcribe":
            return Result(data={**heard, **said, "text": heard["text"]}, quality="preview")
        if not said["text"]:
            raise UnusableInput("Nothing was heard in the recording that could be said again.")
        spoken = self._speaking.run(Task(task.id, task.model, {**task.inputs, **said}), context)
        artifact = spoken.artifacts[0]
        named = type(artifact)(
            artifact.content_type, info={**artifact.info, "name": "audio"}, path=artifact.path
        )
        return Result((named,), said, "preview")

    def _heard(self, task: Task, context: Context, wanted: str) -> dict[str, Any]:
        if "audio" not in task.files:
            need = "audio" if wanted == "transcribe" else "text, or audio to say again"
            raise UnusableInput(f"The task {wanted} needs {need}.")
        if self._listening is None:
            self._listening = SphinxEngine()
        return dict(self._listening.run(task, context).data)
