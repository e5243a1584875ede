"""Engines for image, video and speech models hosted by Replicate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sixfold.clients import provider_client
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderClient, ProviderRefusal
from sixfold.clients.replicate import REPLICATE, ReplicateClient, ReplicatePrediction
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import image_runs
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.image_runs import CallResult
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine, ProviderRun

if TYPE_CHECKING:
    from sixfold.engines.providers.speech_runs import Recording, Report
    from sixfold.engines.providers.video_runs import VideoRequest, VideoResult

# Replicate's documentation requires an uploaded file above this size.
_INLINE_BYTES = 256 * 1024
# Long enough for the result of a fast model, and short enough to notice a cancelation soon.
_WAIT_SECONDS = 5


class ReplicateEngine(ProviderEngine):
    """Image engine for one route of Replicate's predictions API."""

    provider = REPLICATE

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the images of a task; cancels the prediction when the run ends early."""
        replicate = ReplicateClient(client)

        async def generate(call: ModelCall, run: ProviderRun, report: Callable[[float], None]) -> CallResult:
            inputs = dict(call.inputs)
            async with AsyncExitStack() as stack:
                for name, file in run.files(self._route.fields).items():
                    inputs[name] = await stack.enter_async_context(self._source(replicate, file))
                prediction = await self._predict(replicate, self._route.model, inputs, run, report)
            return _image_result(client, prediction, call)

        return await image_runs.generate_images(
            task, context, self._route, generate, self._start(context, client)
        )

    @asynccontextmanager
    async def _source(
        self, replicate: ReplicateClient, upload: UploadImage | Recording | None
    ) -> AsyncGenerator[str, None]:
        """Yield a URI of the source that the model can read; an uploaded file is deleted afterwards."""
        if upload is None:
            yield ""
        elif len(upload.data) <= _INLINE_BYTES:
            yield upload.data_uri()
        else:
            file_id, address = await replicate.put_file(upload.name, upload.data, upload.content_type)
            try:
                yield address
            finally:
                await provider_client.cancel_quietly(
                    replicate.delete_file(file_id), self._limits.grace_seconds
                )

    async def _predict(
        self,
        replicate: ReplicateClient,
        model: str,
        inputs: dict[str, Any],
        run: ProviderRun,
        report: Callable[[float], None],
    ) -> ReplicatePrediction:
        """Create a prediction and poll it until it ends."""
        start = replicate.create(
            model, inputs, wait_seconds=_WAIT_SECONDS, cancel_after_seconds=self._limits.whole_seconds
        )
        prediction = await run.queued(replicate, start, report)
        if prediction.state != "done":
            raise replicate.error(prediction)
        report(1.0)
        return prediction


class ReplicateVideoEngine(ReplicateEngine):
    """Video engine for one route of Replicate's predictions API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the video of a task; cancels the prediction when the run ends early."""
        # Imported here, because only videos need OpenCV.
        from sixfold.engines.providers import video_runs

        replicate = ReplicateClient(client)

        async def generate(request: VideoRequest, run: ProviderRun) -> VideoResult:
            inputs = dict(request.inputs)
            async with self._source(replicate, request.upload) as source:
                if source:
                    inputs[self._route.fields["source"]] = source
                prediction = await self._predict(
                    replicate, request.model, inputs, run, lambda done: run.progress(0, done, 1)
                )
            output = prediction.output
            address = output[0] if isinstance(output, list) and output else output
            if not isinstance(address, str):
                raise client.failed(ProviderRefusal("broken", message="did not return a video"))
            return video_runs.VideoResult(address, inputs.get(self._route.fields.get("seed", "")))

        return await video_runs.generate_video(task, self._route, generate, self._start(context, client))


class ReplicateSpeechEngine(ReplicateEngine):
    """Text-to-speech engine for one route of Replicate's predictions API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return one audio file; cancels the prediction when the run ends early."""
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        replicate = ReplicateClient(client)
        run = self._start(context, client)

        async def speak(inputs: Mapping[str, Any], path: Path, report: Report) -> None:
            prediction = await self._predict(replicate, self._route.model, dict(inputs), run, report)
            await speech_runs.download(prediction.output, path, run)

        return await speech_runs.synthesize(task, self._route, speak, run)


class ReplicateTranscriptionEngine(ReplicateEngine):
    """Speech-to-text engine for one route of Replicate's predictions API."""

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the text of a recording and the times of its segments; the model does not report words."""
        # Imported here, because only sound needs PyAV.
        from sixfold.engines.providers import speech_runs

        replicate = ReplicateClient(client)
        run = self._start(context, client)

        async def transcribe(
            recording: Recording, language: str, report: Report
        ) -> tuple[TranscriptionResult, UsedInputs]:
            fields = self._route.fields
            inputs: dict[str, Any] = dict(self._route.fixed)
            if language:
                inputs[fields["language"]] = language
            async with self._source(replicate, recording) as source:
                inputs[fields["source"]] = source
                prediction = await self._predict(replicate, self._route.model, inputs, run, report)
            output = provider_client.mapping(prediction.output)
            text = output.get("transcription")
            if not isinstance(text, str):
                raise client.failed(ProviderRefusal("broken", message="did not return text"))
            spoken = language or provider_client.text_of(output.get("detected_language"))
            segments = provider_client.objects(output.get("segments"))
            used = UsedInputs(seconds=prediction.seconds)
            return TranscriptionResult(text.strip(), spoken, segments, ()), used

        return await speech_runs.transcribe(task, self._route, transcribe, run)


def _image_result(client: ProviderClient, prediction: ReplicatePrediction, call: ModelCall) -> CallResult:
    output = prediction.output
    images = [item for item in (output if isinstance(output, list) else [output]) if isinstance(item, str)]
    if not images:
        raise client.failed(ProviderRefusal("broken", message="did not return an image"))
    return CallResult(images, UsedInputs(images=len(images), seconds=prediction.seconds), call.seed)
