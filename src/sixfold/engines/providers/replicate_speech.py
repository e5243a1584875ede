"""Replicate's speech models as engines: a text said in our voices' places, and a recording written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderRefusal
from sixfold.clients.replicate import REPLICATE, ReplicateClient
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import speech_runs
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.model_table import UsedInputs
from sixfold.engines.providers.replicate import ReplicateEngine
from sixfold.engines.providers.speech_runs import Recording, Report


class ReplicateSpeechEngine(ReplicateEngine):
    """Says a text through Replicate's predictions."""

    async def run(self, task: Task, context: Context) -> Result:
        """One file of sound; what runs there is canceled when the run ends early."""
        replicate = ReplicateClient(self._calls())
        desk = RunContextImages(REPLICATE.title, self._outside, context, self._limits)

        async def say(inputs: Mapping[str, Any], report: Report) -> bytes:
            made = await self._made(replicate, self._route.model, dict(inputs), desk, report)
            return await speech_runs.fetched(made.output, desk)

        return await speech_runs.spoken(task, self._route, say, desk)


class ReplicateTranscriptionEngine(ReplicateEngine):
    """Writes a recording down through Replicate's predictions."""

    async def run(self, task: Task, context: Context) -> Result:
        """The text, and the times of its segments: the model tells none of words."""
        to = self._calls()
        replicate = ReplicateClient(to)
        desk = RunContextImages(REPLICATE.title, self._outside, context, self._limits)

        async def listen(
            recording: Recording, language: str, report: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            words = self._route.fields
            inputs: dict[str, Any] = dict(self._route.fixed)
            if language:
                inputs[words["language"]] = language
            async with self._placed(replicate, recording) as source:
                inputs[words["source"]] = source
                made = await self._made(replicate, self._route.model, inputs, desk, report)
            told = provider_client.mapping(made.output)
            text = told.get("transcription")
            if not isinstance(text, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a text"))
            spoken = language or str(told.get("detected_language") or "")
            heard = TranscriptionResult(text.strip(), spoken, provider_client.texts(told.get("segments")), ())
            return heard, UsedInputs(seconds=made.seconds)

        return await speech_runs.heard(task, self._route, listen, desk)
