"""fal's speech models as engines: a text said in our voices' places, and a recording written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.fal import FAL, FalClient
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderRefusal
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import speech_runs
from sixfold.engines.providers.fal import FalEngine
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.model_table import UsedInputs
from sixfold.engines.providers.speech_runs import Recording, Report


class FalSpeechEngine(FalEngine):
    """Says a text through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """One file of sound; what was queued there is canceled when the run ends early."""
        fal = FalClient(self._calls())
        desk = RunContextImages(FAL.title, self._outside, context, self._limits)

        async def say(inputs: Mapping[str, Any], report: Report) -> bytes:
            made = await self._made(fal, dict(inputs), desk, report)
            return await speech_runs.fetched(
                provider_client.mapping(made.document.get("audio")).get("url"), desk
            )

        return await speech_runs.spoken(task, self._route, say, desk)


class FalTranscriptionEngine(FalEngine):
    """Writes a recording down through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """The text, and the times of its words."""
        to = self._calls()
        desk = RunContextImages(FAL.title, self._outside, context, self._limits)

        async def listen(
            recording: Recording, language: str, report: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            words = self._route.fields
            inputs = {**self._route.fixed, words["source"]: recording.data_uri()}
            if language:
                inputs[words["language"]] = language
            made = await self._made(FalClient(to), inputs, desk, report)
            text = made.document.get("text")
            if not isinstance(text, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a text"))
            chunks = [_word(chunk) for chunk in provider_client.texts(made.document.get("chunks"))]
            found = made.document.get("inferred_languages")
            spoken = language or (str(found[0]) if isinstance(found, list) and found else "")
            return TranscriptionResult(text.strip(), spoken, (), chunks), UsedInputs(
                seconds=made.billed_units
            )

        return await speech_runs.heard(task, self._route, listen, desk)


def _word(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    at = chunk.get("timestamp")
    start, end = at if isinstance(at, list) and len(at) == 2 else (0, 0)
    return {"word": chunk.get("text"), "start": start, "end": end}
