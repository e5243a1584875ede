"""Replicate's models as engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from sixfold.clients import provider_client
from sixfold.clients.provider_client import ProviderClient, ProviderRefusal
from sixfold.clients.replicate import REPLICATE, ReplicateClient, ReplicatePrediction
from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.providers import image_runs
from sixfold.engines.providers.image_runs import CallResult, RunContextImages
from sixfold.engines.providers.model_table import ModelCall, UsedInputs
from sixfold.engines.providers.provider import ProviderEngine

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
