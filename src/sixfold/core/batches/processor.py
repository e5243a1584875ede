"""Processing of batches: validation of inputs, execution of lines with leases, and writing of results.

All state is in the database: a server that dies loses only its leases, which other servers take over, or the
same server after a restart. Each line is a request to the API with a separate `Idempotency-Key`, so a line
that was interrupted after its charge is answered for free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from sixfold.core.batches import interrupted, lines, results, validation
from sixfold.core.batches.lines import Verdict
from sixfold.core.batches.models import (
    Batch,
    BatchLimits,
    ClaimedLine,
    LineCall,
    LineProblem,
    LineReply,
    LineRunner,
)
from sixfold.core.batches.pace import Pace
from sixfold.core.batches.results import BatchLost, ResultWriter
from sixfold.core.batches.validation import LineValidator, ValidLine
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, T, Transaction, many
from sixfold.core.failpoints import Failpoints
from sixfold.core.files.files import AccountFiles
from sixfold.errors import StoreFailed

_LOG = logging.getLogger("sixfold.batches")
# How often a server looks for batches that other servers have accepted.
POLL_SECONDS = 1.0
_STORE_SECONDS = 1.0
# The number of concurrent validations and completions of batches.
_MAX_JOBS = 2
# The leases of these jobs are longer than those of lines by this factor, because they are not renewed.
_JOB_LEASES = 20
# Lines with problems after which an input is not read further.
MAX_PROBLEMS = 10_000
_MAX_REASON_CHARS = 300


class BatchProcessor:
    """The batches that this server process runs, after `attach` was called."""

    def __init__(
        self,
        database: Database,
        account_files: AccountFiles,
        limits: BatchLimits,
        boot: str,
        failpoints: Failpoints | None = None,
    ) -> None:
        self._database = database
        self._files = account_files
        self._limits = limits
        self._boot = boot
        self._failpoints = failpoints or Failpoints("")
        self._results = ResultWriter(database, account_files)
        self._runner: LineRunner | None = None
        self._attached = asyncio.Event()
        self._changed = asyncio.Event()
        self._claimed: deque[tuple[Batch, ClaimedLine]] = deque()
        # The tasks of lines with their batches, and the tasks of batches by batch id.
        self._running: dict[asyncio.Task[None], tuple[Batch, ClaimedLine]] = {}
        self._paces: dict[str, Pace] = {}
        self._jobs: dict[str, asyncio.Task[bool]] = {}
        # The running calls of background responses, by batch id.
        self._calls: dict[str, asyncio.Task[LineReply]] = {}
        self._renewed_at = 0.0

    @property
    def endpoints(self) -> frozenset[str]:
        """The paths that lines may name; empty before `attach`."""
        return frozenset() if self._runner is None else self._runner.endpoints

    def attach(self, runner: LineRunner) -> None:
        """Begin to run batches with `runner`."""
        self._runner = runner
        self._attached.set()

    def wake(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Run batches until canceled; unfinished lines are then left to another server."""
        await self._attached.wait()
        try:
            while True:
                self._changed.clear()
                try:
                    await self._look()
                except StoreFailed:
                    await asyncio.sleep(_STORE_SECONDS)
                except Exception:  # noqa: BLE001 - the outermost loop of the batches
                    # An error in one batch must not stop all batches until the server restarts.
                    _LOG.exception("the batches could not be read")
                    await asyncio.sleep(_STORE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._changed.wait()
        finally:
            tasks: list[asyncio.Task[Any]] = [*self._running, *self._jobs.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        now, batches = await self._database.read(lines.open_batches(), snapshot=False)
        if batches or self._running:
            await self._renew()
        claimable: list[Batch] = []
        for batch in batches:
            if batch.id in self._jobs:
                continue
            if batch.outcome is not None:
                await self._stop(batch)
            elif batch.expires_at <= now:
                await self._database.write(lines.decide(batch.id, "expired"))
                self.wake()
            elif batch.state == "validating":
                self._start_job(batch, self._validate)
            elif batch.resume_at <= now:
                claimable.append(batch)
        await self._claim(claimable)

    async def _stop(self, batch: Batch) -> None:
        """Release the lines of a batch with an outcome, and end it when none of them runs."""
        if batch.outcome == "cancelled" and (call := self._calls.get(batch.id)) is not None:
            call.cancel()
        await self._release(batch)
        if await self._may_end(batch):
            self._start_job(batch, self._end)

    async def _renew(self) -> None:
        """Renew leases three times during their term, and take over the leases of other servers."""
        moment = asyncio.get_running_loop().time()
        if self._renewed_at and moment - self._renewed_at < self._limits.lease_us / SECOND_US / 3:
            return
        self._renewed_at = moment
        held = [*self._running.values(), *self._claimed]
        await self._database.write(lines.renew(self._boot, self._limits.lease_us, held), durable=False)

    # -- lines -----------------------------------------------------------------------------------

    async def _claim(self, batches: Sequence[Batch]) -> None:
        """Claim lines for the free capacity, taking one batch of each account in turn."""
        free = 2 * self._limits.concurrency - len(self._running) - len(self._claimed)
        first_of_accounts: dict[str, Batch] = {}
        for batch in batches:
            first_of_accounts.setdefault(batch.account_id, batch)
        if free > 0 and first_of_accounts:
            share = -(-free // len(first_of_accounts))
            for batch in first_of_accounts.values():
                claim = lines.claim(batch, self._boot, self._limits.lease_us, share)
                claimed = await self._database.write(claim, durable=False)
                if claimed is None:
                    # The final status of the batch is now decided.
                    self.wake()
                elif claimed and len(batches) > len(first_of_accounts):
                    # The next batches of the accounts may have lines for the remaining capacity.
                    self.wake()
                self._claimed.extend((batch, line) for line in claimed or ())
        self._start_lines()

    def _start_lines(self) -> None:
        """Start claimed lines within the free capacity, as many of each batch as its pace allows."""
        waiting: deque[tuple[Batch, ClaimedLine]] = deque()
        running = Counter(batch.id for batch, _ in self._running.values())
        while self._claimed and len(self._running) < self._limits.concurrency:
            batch, line = self._claimed.popleft()
            if not self._pace(batch).allows(running[batch.id], self._time()):
                waiting.append((batch, line))
                continue
            task = asyncio.create_task(self._run_line(batch, line), name=f"batch-line {batch.id}")
            running[batch.id] += 1
            self._running[task] = batch, line
            task.add_done_callback(self._line_ended)
        self._claimed.extendleft(reversed(waiting))

    def _pace(self, batch: Batch) -> Pace:
        return self._paces.setdefault(batch.id, Pace(self._limits.concurrency))

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    def _line_ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            _LOG.error("a line of a batch failed", exc_info=error)
        self._start_lines()
        if len(self._claimed) <= self._limits.concurrency // 2:
            self.wake()

    async def _release(self, batch: Batch) -> None:
        """Release the claimed lines of a batch that is about to end, or that waits for a long time."""
        released = [line for each, line in self._claimed if each.id == batch.id]
        self._claimed = deque(pair for pair in self._claimed if pair[0].id != batch.id)
        for line in released:
            await self._requeue(batch, line, Verdict("release"))

    async def _run_line(self, batch: Batch, line: ClaimedLine) -> None:
        try:
            key_id = await self._database.read(lines.credential_of(batch), snapshot=False)
            body = await self._body(batch, line)
        except (StoreFailed, OSError, KeyError):
            await self._requeue(batch, line, lines.judge(LineReply(503, "", b""), line.tries))
            return
        if key_id is None:
            # The key has ended, so the batch ends when it is claimed next.
            await self._requeue(batch, line, Verdict("retry"))
            return
        if batch.response_id is None:
            reply = await self._call(batch, line, key_id, body)
        elif (reply := await self._call_unless_canceled(batch, line, key_id, body)) is None:
            await self._requeue(batch, line, Verdict("release"))
            return
        self._failpoints.hit("batch.answered")
        verdict = lines.judge(reply, line.tries)
        if verdict.for_money and batch.response_id is not None:
            # The client of a background response learns at once that its credit or budget is too small.
            is_held = await self._write(lambda: lines.holds_money(batch))
            verdict = verdict if is_held else Verdict("keep")
        if verdict.answer == "keep":
            await self._refund_lost(batch, reply, body)
            await self._write(lambda: lines.finish(batch.id, line.number, reply))
            self._failpoints.hit("batch.stored")
            self._pace(batch).succeeded()
            return
        reason = lines.error_of(reply).message[:_MAX_REASON_CHARS]
        pace = self._pace(batch)
        if verdict.for_money and pace.may_recover:
            # Other lines may have held the money, so running fewer lines at a time may succeed.
            verdict = msgspec.structs.replace(verdict, seconds=lines.HELD_SECONDS)
        seconds = await self._requeue(batch, line, verdict, reason or f"Status {reply.status}")
        if verdict.answer == "wait":
            pace.refused(self._time(), self._time() + seconds)
            asyncio.get_running_loop().call_later(seconds, self._resume)
            if seconds > lines.HELD_SECONDS:
                # Other batches need the capacity of its lines.
                await self._release(batch)

    def _resume(self) -> None:
        self._start_lines()
        self.wake()

    async def _call(self, batch: Batch, line: ClaimedLine, key_id: str, body: bytes) -> LineReply:
        assert self._runner is not None  # noqa: S101 - lines are claimed after `attach`
        key = lines.idempotency_key(batch, line)
        return await self._runner.run(LineCall(key_id, batch.endpoint, batch.header_map, body, key))

    async def _call_unless_canceled(
        self, batch: Batch, line: ClaimedLine, key_id: str, body: bytes
    ) -> LineReply | None:
        """Return the reply of a background response, or None if the response is canceled meanwhile.

        Only the call is canceled: its line must be finished or released in any case.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        call = self._calls[batch.id] = asyncio.create_task(self._call(batch, line, key_id, body))
        try:
            return await call
        except asyncio.CancelledError:
            if task.cancelling():
                # The server stops.
                raise
            return None
        finally:
            # If its lease expired while the database was unavailable, the line may have a later call.
            if self._calls.get(batch.id) is call:
                del self._calls[batch.id]

    async def _refund_lost(self, batch: Batch, reply: LineReply, body: bytes) -> None:
        """Refund a line that ends without a result, although it was charged.

        An earlier try may have been charged before its server stopped, or the model server did not complete a
        background response.
        """
        if not reply.scope:
            return
        is_lost = reply.status >= 300
        if not is_lost and batch.response_id is not None:
            size = len(reply.body)
            is_lost = not await PARSER.run_large(size, lines.is_stored, reply, batch.response_id)
        if is_lost:
            assert self._runner is not None  # noqa: S101 - lines are claimed after `attach`
            await self._runner.refund(reply.scope, body)

    async def _body(self, batch: Batch, line: ClaimedLine) -> bytes:
        stream = self._files.blobs.stream(batch.input_blob, line.start, line.length)
        data = b"".join([piece async for piece in stream])
        return await PARSER.run_large(len(data), validation.request_body, data)

    async def _requeue(self, batch: Batch, line: ClaimedLine, verdict: Verdict, reason: str = "") -> float:
        return await self._write(lambda: lines.requeue(batch, line.number, self._boot, verdict, reason))

    async def _write(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Run a write transaction, repeating it while the database fails; the line stays leased meanwhile."""
        while True:
            try:
                return await self._database.write(transaction())
            except StoreFailed:
                await asyncio.sleep(_STORE_SECONDS)

    # -- the beginning and the end of a batch ------------------------------------------------------

    def _start_job(self, batch: Batch, job: Callable[[Batch], Coroutine[Any, Any, bool]]) -> None:
        """Run a job, which returns whether it has changed the batch."""
        if len(self._jobs) >= _MAX_JOBS:
            return
        task = asyncio.create_task(job(batch), name=f"batch {batch.id}")
        self._jobs[batch.id] = task

        def ended(task: asyncio.Task[bool]) -> None:
            del self._jobs[batch.id]
            self._paces.pop(batch.id, None)
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                if task.result():
                    self.wake()
            elif not isinstance(error, BatchLost | StoreFailed):
                _LOG.error("a batch could not be validated or ended", exc_info=error)

        task.add_done_callback(ended)

    async def _validate(self, batch: Batch) -> bool:
        lease = self._lease(batch, "validating")
        if not await self._database.write(many("batch_lease", **lease)):
            return False
        validator = LineValidator(batch.endpoint)
        problems: list[LineProblem] = []
        total = 0
        try:
            async for group in validation.chunks(self._files.blobs.stream(batch.input_blob)):
                valid, wrong = await PARSER.run(validator.check, group)
                problems += wrong[: MAX_PROBLEMS - len(problems)]
                total += len(valid)
                if total > self._limits.lines:
                    message = f"A batch must have at most {self._limits.lines:,} lines"
                    problems = [LineProblem(0, "too_many_lines", message)]
                    break
                if len(problems) >= MAX_PROBLEMS:
                    # The batch fails, and reading on would only take time.
                    break
                if not problems:
                    await self._database.write(_insert_lines(batch, lease, valid))
        except KeyError:
            problems = [LineProblem(0, "input_file_missing", "The content of the input file is missing")]
        if not total and not problems:
            problems = [LineProblem(0, "empty_file", "The input file is empty")]
        if problems:
            await self._refuse(batch, problems)
        else:
            started = many("batch_started", id=batch.id, holder=self._boot, total=total)
            await self._database.write(started)
        return True

    async def _refuse(self, batch: Batch, problems: Sequence[LineProblem]) -> None:
        problem_file = await self._results.store_problems(problems)
        errors = [
            {
                "code": problem.code,
                "line": problem.line or None,
                "message": problem.message,
                "param": problem.param,
            }
            for problem in problems[: results.MAX_ERRORS]
        ]
        await self._database.write(results.end(batch, self._boot, "failed", problem_file, errors))

    async def _may_end(self, batch: Batch) -> bool:
        """Return whether the lines of a batch have stopped running and this server has leased its end."""
        if len(self._jobs) >= _MAX_JOBS:
            return False
        lease_us = _JOB_LEASES * self._limits.lease_us
        return await self._database.write(lines.start_end(batch, self._boot, lease_us), durable=False)

    async def _end(self, batch: Batch) -> bool:
        assert batch.outcome is not None  # noqa: S101 - `_look` checks it
        page = await self._database.write(interrupted.restore(batch, 0))
        while page.last:
            for line, scope in page.unfinished:
                if batch.outcome == "cancelled" and batch.response_id is not None:
                    await self._refund_canceled(batch, batch.response_id, line, scope)
                else:
                    await self._repeat(batch, line, scope)
            page = await self._database.write(interrupted.restore(batch, page.last))
        result_files = await self._results.collect(batch, batch.outcome)
        errors = result_files.errors or batch.error_list
        end = results.end(batch, self._boot, batch.outcome, result_files, errors)
        await self._database.write(end)
        return True

    async def _refund_canceled(self, batch: Batch, response_id: str, line: ClaimedLine, scope: str) -> None:
        """Refund a canceled background response, which is not generated again."""
        assert self._runner is not None  # noqa: S101 - lines are claimed after `attach`
        try:
            body = await self._body(batch, line)
        except KeyError:
            _LOG.exception("the input of the batch %s is missing", batch.id)
            return
        await self._runner.refund_canceled(scope, body, response_id)

    async def _repeat(self, batch: Batch, line: ClaimedLine, scope: str) -> None:
        """Repeat a line of an ending batch, because it may have been charged, or refund it.

        The line is refunded if its key has ended, or if the response is an error.
        """
        assert self._runner is not None  # noqa: S101 - lines are claimed after `attach`
        key_id = await self._database.read(lines.credential_of(batch), snapshot=False)
        try:
            body = await self._body(batch, line)
        except KeyError:
            _LOG.exception("the input of the batch %s is missing", batch.id)
            return
        reply = None if key_id is None else await self._call(batch, line, key_id, body)
        if reply is None or reply.status >= 300:
            # This runs before the line is finished, because a server that dies in between finds only
            # unfinished lines.
            await self._runner.refund(scope, body)
        if reply is not None and lines.judge(reply, lines.MAX_TRIES).answer == "keep":
            await self._write(lambda: lines.finish(batch.id, line.number, reply))

    def _lease(self, batch: Batch, state: str) -> dict[str, str | int]:
        lease_us = _JOB_LEASES * self._limits.lease_us
        return {"id": batch.id, "holder": self._boot, "lease": lease_us, "state": state}


def _insert_lines(
    batch: Batch, lease: Mapping[str, str | int], valid: Sequence[ValidLine]
) -> Transaction[None]:
    if not (yield Query("batch_lease", dict(lease))):
        raise BatchLost
    rows = [{"batch_id": batch.id, **line._asdict()} for line in valid]
    if rows:
        yield Query("batch_line_insert", {}, rows)
