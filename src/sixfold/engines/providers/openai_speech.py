"""Speaking and listening at OpenAI, and at servers that speak like it: our voices and files, its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold.clients.openai import OPENAI, OpenAIClient, TranscriptionResult
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import speech_runs
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.model_table import UsedInputs
from sixfold.engines.providers.provider import ProviderEngine
from sixfold.engines.providers.speech_runs import Recording, Report


class OpenAISpeechEngine(ProviderEngine):
    """Says a text with the voices of `POST /audio/speech`."""

    provider = OPENAI
    setting = "openai_api_key"

    async def run(self, task: Task, context: Context) -> Result:
        """One file of sound."""
        openai = OpenAIClient(self._calls())

        async def say(inputs: Mapping[str, Any], _: Report) -> bytes:
            return await openai.speak({"model": self._route.model, **inputs})

        desk = RunContextImages(OPENAI.title, self._outside, context, self._limits)
        return await speech_runs.spoken(task, self._route, say, desk)


class OpenAITranscriptionEngine(ProviderEngine):
    """Writes down `audio_url` by `POST /audio/transcriptions`."""

    provider = OPENAI
    setting = "openai_api_key"

    async def run(self, task: Task, context: Context) -> Result:
        """The text, and its segments and words as far as the server tells their times."""
        openai = OpenAIClient(self._calls())

        async def listen(
            recording: Recording, language: str, _: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            fields: dict[str, str | list[str]] = {"model": self._route.model, **self._route.fixed}
            if fields.get("response_format") == "verbose_json":
                fields["timestamp_granularities[]"] = ["segment", "word"]
            if language:
                fields["language"] = language
            found = await openai.listen(fields, (recording.name, recording.data, recording.content_type))
            return found, UsedInputs(seconds=recording.seconds)

        desk = RunContextImages(OPENAI.title, self._outside, context, self._limits)
        return await speech_runs.heard(task, self._route, listen, desk)
