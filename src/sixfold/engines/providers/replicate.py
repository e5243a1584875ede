"""Engines for image, video and speech models hosted by Replicate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from sixfold.clients import provider_client
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderClient, ProviderRefusal
from sixfold.clients.replicate import REPLICATE, ReplicateClient, ReplicatePrediction
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import image_runs, speech_runs, video_runs
from sixfold.engines.providers.image_runs import CallResult, RunContextImages
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine
from sixfold.engines.providers.speech_runs import Recording, Report
from sixfold.engines.providers.video_runs import VideoRequest, VideoResult

_INLINE_BYTES = 256 * 1024  # above it Replicate's documentation asks for a file
# Long enough for a model that is quick, short enough to be told of a cancelation soon.
_WAIT_SECONDS = 5


class VersionSource(Protocol):
    """What goes in beside words: a picture or a recording."""

    @property
    def data(self) -> bytes: ...

    @property
    def name(self) -> str: ...

    @property
    def content_type(self) -> str: ...

    def data_uri(self) -> str:
        """It as text that a JSON document can carry."""
        ...


class ReplicateEngine(ProviderEngine):
    """One capability through Replicate's predictions."""

    provider = REPLICATE
    setting = "replicate_api_token"

    async def run(self, task: Task, context: Context) -> Result:
        """Have Replicate draw it; what runs there is canceled when the run ends early."""
        to = self._calls()
        replicate = ReplicateClient(to)

        async def draw(
            call: ModelCall, desk: RunContextImages, report: Callable[[float], None]
        ) -> CallResult:
            inputs = dict(call.inputs)
            word = self._route.fields.get("source")
            async with self._placed(replicate, desk.source() if word else None) as source:
                if word:
                    inputs[word] = source
                ended = await self._made(replicate, self._route.model, inputs, desk, report)
            return _drawn(to, ended, call)

        desk = RunContextImages(REPLICATE.title, self._outside, context, self._limits)
        return await image_runs.run(task, context, self._route, draw, desk)

    @asynccontextmanager
    async def _placed(
        self, replicate: ReplicateClient, sent: VersionSource | None
    ) -> AsyncGenerator[str, None]:
        """A source where the model can read it, removed again afterwards."""
        if sent is None:
            yield ""
        elif len(sent.data) <= _INLINE_BYTES:
            yield sent.data_uri()
        else:
            file_id, address = await replicate.put_file(sent.name, sent.data, sent.content_type)
            try:
                yield address
            finally:
                await provider_client.cancel_quietly(
                    replicate.delete_file(file_id), self._limits.grace_seconds
                )

    async def _made(
        self,
        replicate: ReplicateClient,
        model: str,
        inputs: dict[str, Any],
        desk: RunContextImages,
        report: Callable[[float], None],
    ) -> ReplicatePrediction:
        """What Replicate makes of `inputs`, from the prediction's beginning to its end."""
        started = await provider_client.submit_with_cancel(
            replicate.create(
                model,
                inputs,
                wait_seconds=_WAIT_SECONDS,
                cancel_after_seconds=self._limits.whole_seconds,
            ),
            replicate.cancel,
            self._limits.grace_seconds,
        )
        return await self._awaited(replicate, started, desk, report)

    async def _awaited(
        self,
        replicate: ReplicateClient,
        prediction: ReplicatePrediction,
        desk: RunContextImages,
        report: Callable[[float], None],
    ) -> ReplicatePrediction:
        seen = 0
        try:
            async for _ in provider_client.poll_intervals(self._limits):
                lines = prediction.log.splitlines()
                desk.log(lines[seen:])
                seen = max(seen, len(lines))
                if prediction.state in {"failed", "canceled"}:
                    raise replicate.error(prediction)
                if prediction.ended:
                    report(1.0)
                    return prediction
                report(0.05 if prediction.state == "queued" else 0.3)
                prediction = await replicate.look(prediction)
            raise AssertionError("paces never ends")
        finally:
            if not prediction.ended:
                await provider_client.cancel_quietly(replicate.cancel(prediction), self._limits.grace_seconds)


def _drawn(to: ProviderClient, prediction: ReplicatePrediction, call: ModelCall) -> CallResult:
    output = prediction.output
    found = [one for one in (output if isinstance(output, list) else [output]) if isinstance(one, str)]
    if not found:
        raise to.failed(ProviderRefusal("broken", said="gave an answer without a picture"))
    return CallResult(found, UsedInputs(images=len(found), seconds=prediction.seconds), call.seed)


class ReplicateVideoEngine(ReplicateEngine):
    """One film capability through Replicate's predictions."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have Replicate make the film; what runs there is canceled when the run ends early."""
        to = self._calls()
        replicate = ReplicateClient(to)

        async def make(asked: VideoRequest, desk: RunContextImages) -> VideoResult:
            inputs = dict(asked.inputs)
            async with self._placed(replicate, asked.sent) as source:
                if source:
                    inputs[self._route.fields["source"]] = source
                ended = await self._made(
                    replicate, asked.model, inputs, desk, lambda done: desk.progress(0, done, 1)
                )
            output = ended.output[0] if isinstance(ended.output, list) and ended.output else ended.output
            if not isinstance(output, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a film"))
            return VideoResult(output, inputs.get(self._route.fields.get("seed", "")))

        desk = RunContextImages(REPLICATE.title, self._outside, context, self._limits)
        return await video_runs.run(task, self._route, make, desk)


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
