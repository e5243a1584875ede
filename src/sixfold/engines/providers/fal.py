"""Engines for image, video and speech models hosted by fal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sixfold.clients import provider_client
from sixfold.clients.fal import FAL, FalClient, FalResult
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderClient, ProviderRefusal
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import image_runs
from sixfold.engines.providers.image_runs import CallResult
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine, ProviderRun

if TYPE_CHECKING:
    from sixfold.engines.providers.speech_runs import Recording, Report
    from sixfold.engines.providers.video_runs import VideoRequest, VideoResult

_DEFAULT_PIXELS = 2**20  # billed for an image whose size fal does not report


class FalEngine(ProviderEngine):
    """Image engine for one route of fal's queue API."""

    provider = FAL

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the images of a task; cancels the queued request when the run ends early."""
        fal = FalClient(client)

        async def generate(call: ModelCall, run: ProviderRun, report: Callable[[float], None]) -> CallResult:
            files = run.files(self._route.fields)
            inputs = {**call.inputs, **{name: file.data_uri() for name, file in files.items()}}
            return _image_result(client, await self._submit(fal, inputs, run, report), call)

        return await image_runs.generate_images(
            task, context, self._route, generate, self._start(context, client)
        )

    async def _submit(
        self,
        fal: FalClient,
        inputs: dict[str, Any],
        run: ProviderRun,
        report: Callable[[float], None],
        model: str = "",
    ) -> FalResult:
        """Queue a request, wait until it is complete and return its result."""
        start = fal.submit(model or self._route.model, inputs, start_seconds=self._limits.whole_seconds)
        request = await run.queued(fal, start, report)
        report(0.9)
        result = await fal.result(request)
        report(1.0)
        return result


class FalVideoEngine(FalEngine):
    """Video engine for one route of fal's queue API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the video of a task; cancels the queued request when the run ends early."""
        # Imported here, because only videos need OpenCV.
        from sixfold.engines.providers import video_runs

        async def generate(request: VideoRequest, run: ProviderRun) -> VideoResult:
            inputs = dict(request.inputs)
            if request.upload is not None:
                inputs[self._route.fields["source"]] = request.upload.data_uri()
            result = await self._submit(
                FalClient(client), inputs, run, lambda done: run.progress(0, done, 1), request.model
            )
            address = provider_client.mapping(result.document.get("video")).get("url")
            if not isinstance(address, str):
                raise client.failed(ProviderRefusal("broken", message="did not return a video"))
            seed = result.document.get("seed")
            return video_runs.VideoResult(address, seed if isinstance(seed, int) else None)

        return await video_runs.generate_video(task, self._route, generate, self._start(context, client))


class FalSpeechEngine(FalEngine):
    """Text-to-speech engine for one route of fal's queue API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return one audio file; cancels the queued request when the run ends early."""
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        fal = FalClient(client)
        run = self._start(context, client)

        async def speak(inputs: Mapping[str, Any], path: Path, report: Report) -> None:
            result = await self._submit(fal, dict(inputs), run, report)
            address = provider_client.mapping(result.document.get("audio")).get("url")
            await speech_runs.download(address, path, run)

        return await speech_runs.synthesize(task, self._route, speak, run)


class FalTranscriptionEngine(FalEngine):
    """Speech-to-text engine for one route of fal's queue API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the text of a recording and the times of its words."""
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        run = self._start(context, client)

        async def transcribe(
            recording: Recording, language: str, report: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            fields = self._route.fields
            inputs = {**self._route.fixed, fields["source"]: recording.data_uri()}
            if language:
                inputs[fields["language"]] = language
            result = await self._submit(FalClient(client), inputs, run, report)
            text = result.document.get("text")
            if not isinstance(text, str):
                raise client.failed(ProviderRefusal("broken", message="did not return text"))
            words = [_word(chunk) for chunk in provider_client.objects(result.document.get("chunks"))]
            languages = result.document.get("inferred_languages")
            first = languages[0] if isinstance(languages, list) and languages else ""
            spoken = language or provider_client.text_of(first)
            used = UsedInputs(seconds=result.billed_units)
            return TranscriptionResult(text.strip(), spoken, (), words), used

        return await speech_runs.transcribe(task, self._route, transcribe, run)


def _image_result(client: ProviderClient, result: FalResult, call: ModelCall) -> CallResult:
    images = provider_client.objects(result.document.get("images")) or [
        provider_client.mapping(result.document.get("image"))
    ]
    files = [file for file in images if isinstance(file.get("url"), str)]
    if not files:
        raise client.failed(ProviderRefusal("broken", message="did not return an image"))
    flags = result.document.get("has_nsfw_concepts")
    if isinstance(flags, list) and any(flags):  # fal blackens such an image
        raise client.failed(ProviderRefusal("policy"))
    pixels = sum(_pixels(file) for file in files)
    seed = result.document.get("seed")
    return CallResult(
        [str(file["url"]) for file in files],
        UsedInputs(images=len(files), pixels=pixels, units=result.billed_units),
        seed if isinstance(seed, int) else call.seed,
    )


def _pixels(file: Mapping[str, Any]) -> int:
    width, height = file.get("width"), file.get("height")
    return width * height if isinstance(width, int) and isinstance(height, int) else _DEFAULT_PIXELS


def _word(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    timestamp = chunk.get("timestamp")
    start, end = timestamp if isinstance(timestamp, list) and len(timestamp) == 2 else (0, 0)
    return {"word": chunk.get("text"), "start": start, "end": end}
