"""Engines for the image and speech models of OpenAI and of servers with the same API."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sixfold.clients.openai import OPENAI, OpenAIClient, OpenAIImages, TranscriptionResult
from sixfold.clients.provider_client import ProviderClient
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.providers import image_runs
from sixfold.engines.providers.image_runs import CallResult
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine, ProviderRun

if TYPE_CHECKING:
    from sixfold.engines.providers.speech_runs import Recording, Report


class OpenAIEngine(ProviderEngine):
    """Image engine for one route of OpenAI's images API.

    OpenAI replies on the connection of the request, and its API lacks a cancel call: a run that ends early
    only closes its connections.
    """

    provider = OPENAI

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the images of a task, edited from a source image if the route requires one."""
        openai = OpenAIClient(client)

        async def generate(call: ModelCall, run: ProviderRun, report: Callable[[float], None]) -> CallResult:
            report(0.05)
            fields = {"model": self._route.model, **call.inputs}
            if "source" in self._route.fields:
                sources = [run.source(), *run.more]
                uploads = [(source.name, source.data, source.content_type) for source in sources]
                images = await openai.edit(fields, uploads)
            else:
                images = await openai.generate(fields)
            report(1.0)
            return await asyncio.to_thread(_image_result, images)

        return await image_runs.generate_images(
            task, context, self._route, generate, self._start(context, client)
        )


class OpenAISpeechEngine(ProviderEngine):
    """Text-to-speech engine that calls `POST /audio/speech`."""

    provider = OPENAI

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        openai = OpenAIClient(client)

        async def speak(inputs: Mapping[str, Any], path: Path, _: Report) -> None:
            audio = await openai.speak({"model": self._route.model, **inputs})
            await asyncio.to_thread(path.write_bytes, audio)

        return await speech_runs.synthesize(task, self._route, speak, self._start(context, client))


class OpenAITranscriptionEngine(ProviderEngine):
    """Speech-to-text engine that calls `POST /audio/transcriptions`."""

    provider = OPENAI

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the text of a recording, with the segments and words whose times the server reports."""
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        openai = OpenAIClient(client)

        async def transcribe(
            recording: Recording, language: str, _: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            fields: dict[str, str | list[str]] = {"model": self._route.model, **self._route.fixed}
            if fields.get("response_format") == "verbose_json":
                fields["timestamp_granularities[]"] = ["segment", "word"]
            if language:
                fields["language"] = language
            file = (recording.name, recording.data, recording.content_type)
            return await openai.listen(fields, file), UsedInputs(seconds=recording.seconds)

        return await speech_runs.transcribe(task, self._route, transcribe, self._start(context, client))


def _image_result(response: OpenAIImages) -> CallResult:
    try:
        decoded = [base64.b64decode(text, validate=True) for text in response.encoded]
    except binascii.Error as error:
        raise EngineError("OpenAI returned an image that cannot be read: try again.") from error
    images: list[bytes | str] = [*decoded, *response.addresses]
    usage = response.usage
    if usage is None:
        return CallResult(images, UsedInputs(images=len(images)))
    used = UsedInputs(images=len(images), text_in=usage.text_in, image_in=usage.image_in, out=usage.out)
    return CallResult(images, used)
