"""Webhooks: receivers that never answer and large messages delay the messages of their own account only."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from sixfold.core.accounts import accounts
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.database import now
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.models import Webhook
from sixfold.core.predictions.webhooks import WebhookOutbox
from tests import loop_time
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline
from tests.harness.waiting import wait_until

HUNG, GOOD = "http://hung.example/", "http://good.example/"


class Receivers:
    """A sender to two receivers, one of which responds to nothing."""

    def __init__(self) -> None:
        self.pending_count = self.peak_pending = self.requests = 0
        self.delivered = asyncio.Event()

    def check_url(self, url: str) -> None:
        assert url in (HUNG, GOOD)

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout_seconds: float,
        max_bytes: int,
    ) -> SimpleNamespace:
        self.requests += 1
        if url == HUNG:
            self.pending_count += 1
            self.peak_pending = max(self.peak_pending, self.pending_count)
            try:
                await asyncio.Event().wait()
            finally:
                self.pending_count -= 1
        self.delivered.set()
        return SimpleNamespace(status=204)


@asynccontextmanager
async def sending(pipeline: PipelineFixture, receivers: Receivers) -> AsyncIterator[WebhookOutbox]:
    """Send the messages of a pipeline within the block."""
    outbox = WebhookOutbox(pipeline.database, receivers, WebhookSecrets(pipeline.database, b"\0" * 32))
    outbox.renderers["test"] = lambda prediction, event, _time: {"id": prediction.id, "event": event}
    task = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def finish(pipeline: PipelineFixture, url: str, owner: Principal | None = None) -> str:
    """Cancel a queued run that notifies `url` of its end, and return its id."""
    principal = owner or pipeline.payer.owner
    request = pipeline.request(principal=principal, webhook=Webhook(url, ("completed",)))
    run = await pipeline.service.submit(request)
    await pipeline.service.cancel(run.id, principal.tenant)
    return run.id


async def test_hung_receivers_delay_no_other_account(either: Path) -> None:
    receivers = Receivers()
    async with running_pipeline(either, Options(start=False)) as pipeline:
        for _ in range(20):
            await finish(pipeline, HUNG)
        other = await pipeline.database.write(accounts.create("other@example.com", credit=1_000_000))
        async with sending(pipeline, receivers):
            await wait_until(lambda: receivers.pending_count, 30)
            await finish(pipeline, GOOD, other.owner)
            async with asyncio.timeout(30):
                await receivers.delivered.wait()
        assert receivers.peak_pending == 8


async def test_messages_in_progress_are_released_when_the_server_stops(either: Path) -> None:
    receivers = Receivers()
    async with running_pipeline(either, Options(start=False)) as pipeline:
        run = await finish(pipeline, HUNG)
        async with sending(pipeline, receivers), asyncio.timeout(30):
            await wait_until(lambda: receivers.pending_count)
        (row,) = await pipeline.database.read(webhooks.of_prediction(run))
        moment = await pipeline.database.read(now())
    assert row["ended_at"] is None
    assert row["due_at"] <= moment


async def test_all_messages_of_an_account_are_sent_in_groups(either: Path) -> None:
    receivers = Receivers()
    async with running_pipeline(either, Options(start=False)) as pipeline:
        runs = [await finish(pipeline, GOOD) for _ in range(20)]
        async with sending(pipeline, receivers), asyncio.timeout(30):
            for run in runs:
                await wait_until(functools.partial(_is_sent, pipeline, run))
        assert receivers.requests == 20


async def _is_sent(pipeline: PipelineFixture, run: str) -> bool:
    rows = await pipeline.database.read(webhooks.of_prediction(run))
    return all(row["ended_at"] is not None and row["error"] is None for row in rows)


class SlowReceiver(Receivers):
    """A sender that counts the bytes of the requests in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak_bytes = 0

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout_seconds: float,
        max_bytes: int,
    ) -> SimpleNamespace:
        self.bytes += len(content)
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        for _ in range(200):
            await asyncio.sleep(0)
        self.bytes -= len(content)
        return SimpleNamespace(status=204)


async def finish_with(pipeline: PipelineFixture, value: Any) -> str:
    """Enqueue a message about a prediction with this output, and return the prediction's id."""
    run = await finish(pipeline, GOOD)
    prediction = await pipeline.service.get(run, pipeline.payer.owner.tenant)
    output = Output(data={"value": value})
    large = msgspec.structs.replace(prediction, output=output, webhook=Webhook(GOOD, ("completed",)))
    await pipeline.database.write(webhooks.enqueue_replacement(large))
    return run


async def send_all(pipeline: PipelineFixture, outbox: WebhookOutbox, runs: list[str]) -> None:
    outbox.renderers["test"] = lambda prediction, _event, _time: prediction.output
    async with asyncio.timeout(30):
        for run in runs:
            await wait_until(functools.partial(_is_sent, pipeline, run))


async def test_large_messages_of_an_account_use_32_mib(either: Path) -> None:
    receiver = SlowReceiver()
    async with running_pipeline(either, Options(start=False)) as pipeline:
        runs = [await finish_with(pipeline, "x" * 10_000_000) for _ in range(6)]
        async with sending(pipeline, receiver) as outbox:
            await send_all(pipeline, outbox, runs)
    assert 10_000_000 < receiver.peak_bytes < 32 * 2**20


async def test_a_message_with_many_numbers_leaves_the_loop_free(either: Path) -> None:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        runs = [await finish_with(pipeline, [n / 7 for n in range(1_500_000)])]
        async with loop_time.watched() as seen, sending(pipeline, SlowReceiver()) as outbox:
            await send_all(pipeline, outbox, runs)
    assert seen.longest < 0.17
