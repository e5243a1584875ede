"""Engines for image, video and speech models hosted by fal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.fal import FAL, FalClient, FalResult
from sixfold.clients.openai import TranscriptionResult
from sixfold.clients.provider_client import ProviderClient, ProviderRefusal
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import image_runs, speech_runs, video_runs
from sixfold.engines.providers.image_runs import CallResult, RunContextImages
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine
from sixfold.engines.providers.speech_runs import Recording, Report
from sixfold.engines.providers.video_runs import VideoRequest, VideoResult


class FalEngine(ProviderEngine):
    """One capability through fal's queue."""

    provider = FAL
    setting = "fal_key"

    async def run(self, task: Task, context: Context) -> Result:
        """Have fal draw it; what was queued there is canceled when the run ends early."""
        to = self._calls()
        fal = FalClient(to)

        async def draw(
            call: ModelCall, desk: RunContextImages, report: Callable[[float], None]
        ) -> CallResult:
            inputs = dict(call.inputs)
            if word := self._route.fields.get("source"):
                inputs[word] = desk.source().data_uri()
            return self._drawn(to, await self._made(fal, inputs, desk, report), call)

        desk = RunContextImages(FAL.title, self._outside, context, self._limits)
        return await image_runs.run(task, context, self._route, draw, desk)

    async def _made(
        self,
        fal: FalClient,
        inputs: dict[str, Any],
        desk: RunContextImages,
        report: Callable[[float], None],
        model: str = "",
    ) -> FalResult:
        """What fal makes of `inputs`, from the queue to the answer."""
        ticket = await provider_client.submit_with_cancel(
            fal.submit(model or self._route.model, inputs, start_seconds=self._limits.whole_seconds),
            fal.cancel,
            self._limits.grace_seconds,
        )
        seen, ended = 0, False
        try:
            async for _ in provider_client.poll_intervals(self._limits):
                look = await fal.look(ticket)
                desk.log(look.lines[seen:])
                seen = max(seen, len(look.lines))
                ended = look.state == "done"
                if ended:
                    report(0.9)
                    made = await fal.result(ticket, look)
                    report(1.0)
                    return made
                report(0.05 if look.state == "queued" else 0.3)
            raise AssertionError("paces never ends")
        finally:
            if not ended:
                await provider_client.cancel_quietly(fal.cancel(ticket), self._limits.grace_seconds)

    def _drawn(self, to: ProviderClient, made: FalResult, call: ModelCall) -> CallResult:
        found = provider_client.texts(made.document.get("images")) or [
            provider_client.mapping(made.document.get("image"))
        ]
        files = [file for file in found if isinstance(file.get("url"), str)]
        if not files:
            raise to.failed(ProviderRefusal("broken", said="gave an answer without a picture"))
        flags = made.document.get("has_nsfw_concepts")
        if isinstance(flags, list) and any(flags):  # such a picture comes blackened
            raise to.failed(ProviderRefusal("policy"))
        pixels = sum(_pixels(file) for file in files)
        seed = made.document.get("seed")
        return CallResult(
            [str(file["url"]) for file in files],
            UsedInputs(images=len(files), pixels=pixels, units=made.billed_units),
            seed if isinstance(seed, int) else call.seed,
        )


def _pixels(file: Mapping[str, Any]) -> int:
    width, height = file.get("width"), file.get("height")
    return width * height if isinstance(width, int) and isinstance(height, int) else 2**20


class FalVideoEngine(FalEngine):
    """One film capability through fal's queue."""

    async def run(self, task: Task, context: Context) -> Result:
        """Have fal make the film; what was queued there is canceled when the run ends early."""
        to = self._calls()

        async def make(asked: VideoRequest, desk: RunContextImages) -> VideoResult:
            inputs = dict(asked.inputs)
            if asked.sent is not None:
                inputs[self._route.fields["source"]] = asked.sent.data_uri()
            made = await self._made(
                FalClient(to), inputs, desk, lambda done: desk.progress(0, done, 1), asked.model
            )
            address = provider_client.mapping(made.document.get("video")).get("url")
            if not isinstance(address, str):
                raise to.failed(ProviderRefusal("broken", said="gave an answer without a film"))
            seed = made.document.get("seed")
            return VideoResult(address, seed if isinstance(seed, int) else None)

        desk = RunContextImages(FAL.title, self._outside, context, self._limits)
        return await video_runs.run(task, self._route, make, desk)


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
