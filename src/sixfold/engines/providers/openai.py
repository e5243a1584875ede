"""Engines for the image and speech models of OpenAI and of servers with the same API."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from sixfold.clients.openai import OPENAI, OpenAIClient, OpenAIImages, TranscriptionResult
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.providers import image_runs, speech_runs
from sixfold.engines.providers.image_runs import CallResult, RunContextImages
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine
from sixfold.engines.providers.speech_runs import Recording, Report


class OpenAIEngine(ProviderEngine):
    """One capability through OpenAI's images API.

    Its calls are answered while they are open, so a run that ends early closes them; there is nothing that
    could be canceled.
    """

    provider = OPENAI
    setting = "openai_api_key"

    async def run(self, task: Task, context: Context) -> Result:
        """Have it drawn, or repainted where the route takes a source."""
        openai = OpenAIClient(self._calls())

        async def draw(
            call: ModelCall, desk: RunContextImages, report: Callable[[float], None]
        ) -> CallResult:
            report(0.05)
            fields = {"model": self._route.model, **call.inputs}
            if "source" in self._route.fields:
                sent = desk.source()
                made = await openai.edit(fields, [(sent.name, sent.data, sent.content_type)])
            else:
                made = await openai.generate(fields)
            report(1.0)
            return await asyncio.to_thread(_drawn, made)

        desk = RunContextImages(OPENAI.title, self._outside, context, self._limits)
        return await image_runs.run(task, context, self._route, draw, desk)


def _drawn(made: OpenAIImages) -> CallResult:
    try:
        decoded = [base64.b64decode(text, validate=True) for text in made.encoded]
    except binascii.Error as error:
        raise EngineError("OpenAI gave a picture that cannot be read; try again.") from error
    found: list[bytes | str] = [*decoded, *made.addresses]
    usage = made.usage
    if usage is None:
        return CallResult(found, UsedInputs(images=len(found)))
    used = UsedInputs(images=len(found), text_in=usage.text_in, image_in=usage.image_in, out=usage.out)
    return CallResult(found, used)


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
