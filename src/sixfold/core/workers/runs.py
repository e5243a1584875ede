"""Execution of a claimed prediction to its end: stored and captured, failed, canceled or requeued."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import assert_never

import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Task
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Transaction
from sixfold.core.failpoints import FailpointHit, Failpoints
from sixfold.core.gpu import run_clock
from sixfold.core.gpu.run_clock import RunClock
from sixfold.core.media import media as media_files
from sixfold.core.media import outputs
from sixfold.core.media.media import MediaService, StoredMedia
from sixfold.core.media.outputs import Output
from sixfold.core.media.ports import StagedFile
from sixfold.core.predictions import lineage, pricing
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import EventBus, LogEvent, ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import FailureRecord, StaleAttempt, SuccessRecord, Trace
from sixfold.core.provenance.signing import Signer
from sixfold.core.workers.ports import (
    Outcome,
    RunCompleted,
    RunFailed,
    RunReports,
    RunStopped,
    Worker,
    WorkerLost,
)

_LOG = logging.getLogger("sixfold.runs")
_MAX_LOG_CHARS = 16_384
_RETRY_SECONDS = 0.5
# Up to this many files are signed on the event loop; a signature takes about 0.2 ms.
_SIGNED_ON_LOOP = 16


class WorkerCrashed(Exception):
    """A worker was lost during a run; the prediction has already been requeued or failed."""


class RunFinisher(msgspec.Struct, frozen=True):
    """Services that every run needs to store and sign its result."""

    database: Database
    media: MediaService
    signer: Signer
    max_attempts: int
    failpoints: Failpoints


class WorkerRun:
    """One attempt to run a prediction."""

    def __init__(
        self, prediction: Prediction, finisher: RunFinisher, bus: EventBus, limit_seconds: float
    ) -> None:
        self.prediction = prediction
        self._finisher = finisher
        self._bus = bus
        self._limit_seconds = limit_seconds
        self._worker: Worker | None = None
        self._canceled = False
        self._log_lines: list[str] = []
        self._log_chars = 0
        self._started_at = 0
        self.cold_start_us = 0

    @property
    def id(self) -> str:
        return self.prediction.id

    def cancel(self) -> None:
        """Stop the run, or prevent its start."""
        self._canceled = True
        if self._worker is not None:
            self._worker.cancel(self.id)

    async def run(self, worker: Worker, on_done: Callable[[Outcome], None]) -> None:
        """Run the prediction on `worker` and write its end; raises `WorkerCrashed` if the worker is lost.

        `done` is called with the outcome before the result is stored.
        """
        self._worker = worker
        try:
            if self.prediction.state is not predictions.PredictionState.RUNNING and not self._canceled:
                moved = await self._finisher.database.write(
                    predictions.ready(self.id, self.prediction.attempt), durable=False
                )
                self._bus.publish(self.id, StateChanged(moved))
                self._canceled = self._canceled or moved.state is predictions.PredictionState.CANCELING
            if self._canceled:
                return await self._finish(self._stop)
            self._hit_failpoint("dispatch.before")
            outcome = await self._outcome(worker)
            on_done(outcome)
            self._hit_failpoint("dispatch.after")
            await self._settle(outcome)
        except StaleAttempt:
            _LOG.warning("a write from an outdated attempt was rejected", extra={"prediction_id": self.id})
            await self._publish_current_state()
        except FailpointHit as hit:
            await self._fail(FailureRecord(f"failpoint {hit}", "internal", self._trace()))

    async def _publish_current_state(self) -> None:
        with contextlib.suppress(errors.NotFound, errors.StoreFailed):
            query = predictions.get(self.id, Tenant.of(self.prediction))
            current = await self._finisher.database.read(query)
            if current.is_terminal:
                self._bus.publish(self.id, StateChanged(current))

    async def requeue(self, reason: str) -> None:
        """Requeue the prediction, or fail it after its last attempt."""
        try:
            await self._finish(lambda: self._lose(reason))
        except StaleAttempt:
            await self._publish_current_state()

    async def put_back(self, holder: str) -> None:
        """Requeue a prediction that was not assigned a worker in time; the attempt does not count."""
        try:
            await self._finish(lambda: predictions.put_back(self.id, self._attempt, holder))
        except StaleAttempt:
            await self._publish_current_state()

    async def abandon(self) -> None:
        """Requeue the prediction during shutdown.

        This is tried only once, because the next start requeues the prediction in any case.
        """
        with contextlib.suppress(StaleAttempt, errors.StoreFailed):
            await self._write(self._lose("the server is shutting down"))

    def _lose(self, reason: str) -> Transaction[Prediction]:
        return predictions.lose(self.id, self._attempt, self._finisher.max_attempts, reason)

    # -- the run ---------------------------------------------------------------------------------

    @property
    def _attempt(self) -> int:
        return self.prediction.attempt

    def _hit_failpoint(self, point: str) -> None:
        self._finisher.failpoints.hit(point)

    async def _outcome(self, worker: Worker) -> Outcome:
        self._started_at = time.perf_counter_ns()
        record = self.prediction.task
        blobs = self._finisher.media.blobs
        try:
            files = {name: await blobs.local_path(key) for name, key in record.files.items()}
        except KeyError as missing:
            return RunFailed(f"The input file {missing} is no longer stored", public=True)
        except (OSError, errors.StoreFailed):
            _LOG.exception("an input could not be read", extra={"prediction_id": self.id})
            return RunFailed("An input could not be read from the storage. Please try again", public=True)
        # A cancel request that arrived while the files were loaded did not reach a worker.
        if self._canceled:
            return RunStopped()
        task = Task(id=self.id, model=self.prediction.model, inputs=record.inputs, files=files)
        try:
            async with asyncio.timeout(self._limit_seconds) as limit:
                run_clock.current.set(RunClock(limit))
                return await worker.run(task, RunReports(self._report, self._log, self._preview))
        except TimeoutError:
            await worker.give_up(self.id)
            return RunFailed(f"The run took longer than {self._limit_seconds:g} seconds", public=True)

    def _report(self, fraction: float) -> None:
        self._bus.publish(self.id, ProgressEvent(min(1.0, max(0.0, fraction))))

    def _preview(self, content: bytes) -> None:
        self._bus.publish_preview(self.id, content)

    def _log(self, line: str) -> None:
        self._bus.publish(self.id, LogEvent(line))
        if self._log_chars < _MAX_LOG_CHARS:
            self._log_chars += len(line) + 1
            self._log_lines.append(line)

    def _trace(self, run_us: int | None = None) -> Trace:
        if run_us is None:
            run_us = (time.perf_counter_ns() - self._started_at) // 1000 if self._started_at else 0
        logs = "\n".join(self._log_lines)[:_MAX_LOG_CHARS]
        return Trace(logs=logs, cold_start_us=self.cold_start_us, run_us=run_us)

    async def _settle(self, outcome: Outcome) -> None:
        match outcome:
            case RunCompleted():
                await self._complete(outcome)
            case RunFailed():
                message = outcome.message if outcome.public else "The engine failed"
                if outcome.detail:
                    _LOG.warning(
                        "an engine failed", extra={"prediction_id": self.id, "detail": outcome.detail}
                    )
                kind = predictions.UNUSABLE if outcome.unusable else "engine"
                await self._fail(FailureRecord(message, kind, self._trace()))
            case RunStopped():
                await self._finish(self._stop)
            case WorkerLost():
                await self.requeue(outcome.reason)
                raise WorkerCrashed(outcome.reason)
            case _:
                assert_never(outcome)

    def _stop(self) -> Transaction[Prediction]:
        return predictions.stop(self.id, self._attempt, self._trace())

    async def _fail(self, failure: FailureRecord) -> None:
        await self._finish(lambda: predictions.fail(self.id, self._attempt, failure))

    # -- storing and capturing -------------------------------------------------------------------

    async def _complete(self, completion: RunCompleted) -> None:
        started_at = time.perf_counter_ns()
        self._hit_failpoint("store.before")
        try:
            stored = await self._store(completion.files, completion)
        except (OSError, errors.StoreFailed) as error:
            _LOG.exception("a result could not be stored", extra={"prediction_id": self.id})
            media_files.discard(completion.files)
            reason = error.message if isinstance(error, errors.StoreFailed) else error.strerror
            await self._fail(
                FailureRecord(f"The result could not be stored: {reason}", "storage", self._trace())
            )
            return
        self._hit_failpoint("store.after")
        trace = msgspec.structs.replace(
            self._trace(completion.run_us),
            stored_us=(time.perf_counter_ns() - started_at) // 1000,
            stored_bytes=stored.total_bytes,
        )
        output = Output(stored.files, dict(completion.data), dict(completion.others), completion.words)
        success = SuccessRecord(
            output=output,
            quality=completion.quality or self.prediction.quality,
            engine_version=completion.engine_version,
            trace=trace,
            media=stored.records,
            upstream_cost_micros=pricing.plausible(completion.upstream_cost_micros),
            charge=pricing.final_charge(self.prediction, trace.run_us, completion.billed, completion.lines),
            document=await PARSER.run(output.encode) if output.is_large else None,
        )
        self._hit_failpoint("capture.before")
        by_children = self.prediction.meter == "children" and success.charge is None
        succeed = predictions.succeed_with_children if by_children else predictions.succeed
        await self._finish(lambda: succeed(self.id, self._attempt, success))
        self._hit_failpoint("capture.after")

    async def _store(self, staged: tuple[StagedFile, ...], completion: RunCompleted) -> StoredMedia:
        prediction, signer = self.prediction, self._finisher.signer
        run_details = completion.engine_version, completion.quality or prediction.quality

        def check_and_sign() -> tuple[str, ...]:
            outputs.check_sizes(staged)
            return lineage.sign_manifests(signer, prediction, len(staged), *run_details)

        is_small = len(staged) <= _SIGNED_ON_LOOP
        manifests = check_and_sign() if is_small else await asyncio.to_thread(check_and_sign)
        return await self._finisher.media.store_outputs(self.id, prediction.account_id, staged, manifests)

    # -- writing the end, with retries while the database is unavailable --------------------------

    async def _finish(self, make_transaction: Callable[[], Transaction[Prediction]]) -> None:
        while True:
            try:
                await self._write(make_transaction())
            except errors.StoreFailed:
                _LOG.exception("the end of a run could not be written; retrying")
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _write(self, transaction: Transaction[Prediction]) -> None:
        updated = await self._finisher.database.write(transaction)
        self._bus.publish(self.id, StateChanged(updated))
