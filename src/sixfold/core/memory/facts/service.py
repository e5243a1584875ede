"""`remember` and `answer`: a chat model reads sources and pages, and code checks its replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.database import Database, now
from sixfold.core.memory.commands import PageWriter
from sixfold.core.memory.facts import batches, model_replies, prompts, sources, writing
from sixfold.core.memory.facts.batches import BatchKind, BatchStart
from sixfold.core.memory.facts.fact_pages import PageFact
from sixfold.core.memory.facts.model_replies import (
    CitedSentence,
    Comparison,
    DroppedFact,
    FoundFact,
    UnreadableReply,
)
from sixfold.core.memory.facts.ports import ChatModel, FactCall, ModelPrompt, SpendingLimits
from sixfold.core.memory.facts.sources import FactSource
from sixfold.core.memory.facts.writing import FactTarget, NewFact, UndoResult, WrittenFacts
from sixfold.core.memory.models import Caller
from sixfold.core.memory.search import context
from sixfold.core.memory.search.context import ContextRequest, PackedContext
from sixfold.core.memory.service import MemoryPart, MemoryService, part

# Time limit of a request, which then returns its results so far and reports the parts that were not read.
_SECONDS = 300


class RememberRequest(msgspec.Struct, frozen=True):
    """A source, the folder and collections of its pages, and an optional limit below the server's."""

    source: FactSource
    target: FactTarget
    max_cost: int | None = None


class FactReport(msgspec.Struct):
    """The result of a `remember` request.

    `read` is the number of characters that the model has read, `known` the number of facts that the pages
    already contained, `unreadable` the number of parts whose reply was not JSON, and `uncompared` the number
    of facts that were added without a comparison. `stopped` is the reason why the rest was not read.
    """

    batch: str
    model: str = ""
    cost: int = 0
    read: int = 0
    unreadable: int = 0
    uncompared: int = 0
    known: int = 0
    stopped: str = ""
    written: list[WrittenFacts] = []
    dropped: list[DroppedFact] = []


class MemoryAnswer(msgspec.Struct, frozen=True):
    """The sentences of an answer with their citations; empty if the memory does not contain an answer."""

    sentences: tuple[CitedSentence, ...]
    context: PackedContext
    dropped: tuple[DroppedFact, ...] = ()
    cost: int = 0
    model: str = ""


class FactService:
    """Extracts facts and answers questions with a chat model, at the expense of the caller's account."""

    def __init__(
        self, database: Database, memory: MemoryService, model: ChatModel | None, limits: SpendingLimits
    ) -> None:
        self._database = database
        self._memory = memory
        self._model = model
        self._limits = limits

    @property
    def enabled(self) -> bool:
        """Whether the operator has configured a model."""
        return self._model is not None

    async def today(self) -> str:
        """Return the date of the database's clock in UTC."""
        moment = await self._database.read(now(), snapshot=False)
        return rfc3339(moment)[:10]

    async def remember(self, principal: Principal, request: RememberRequest, once: str = "") -> FactReport:
        """Write the facts of a source to pages of a folder, part by part, as one batch.

        It stops when the credential of the current request has ended. `once` is the id of a request with an
        Idempotency-Key, whose repetitions refund the calls of the attempts before.
        """
        model, writer = self._chosen(), PageWriter(Caller.of(principal), self._memory.limits)
        writer.check()
        target = request.target
        home = writer.caller.home() if target.collections is None else target.collections
        writer.check_collections(f"{target.folder}/…", home)
        prompted = [
            (text, prompts.extract(text, request.source.name, request.source.date))
            for text in sources.parts(request.source.text)
        ]
        # A second request compares the facts of each part.
        max_cost = 2 * sum(model.max_cost(prompt) for _, prompt in prompted)
        max_cost = max_cost if request.max_cost is None else min(max_cost, request.max_cost)
        if once:
            await model.refund_lost(once)
        start = await self._begin(
            writer.caller, principal, "remember", (target.folder, request.source.name), max_cost
        )
        run = _Run(model, principal, start.budget, once)
        report = FactReport(start.id)
        try:
            for number, (text, prompt) in enumerate(prompted):
                if number:
                    await self._database.read(access_checks.unchanged(), snapshot=False)
                part_report = replace(report, written=[*report.written], dropped=[*report.dropped])
                await self._remember_part(run, writer, request, (text, prompt), part_report)
                run.confirm()
                report = replace(part_report, read=report.read + len(text))
        except errors.SixfoldError as error:
            # The facts of this part were not written.
            await run.refund(error)
            if not report.read:
                raise
            report.stopped = error.message
        finally:
            await self._finish(start, run.cost)
        report.cost, report.model = run.cost, run.model
        return report

    async def _remember_part(
        self,
        run: _Run,
        writer: PageWriter,
        request: RememberRequest,
        prompted: tuple[str, ModelPrompt],
        report: FactReport,
    ) -> None:
        reply = await run.ask(prompted[1])
        try:
            # Some texts take tens of milliseconds.
            facts_found, dropped = await asyncio.to_thread(
                model_replies.read_facts, reply, prompted[0], request.source.date
            )
        except UnreadableReply:
            report.unreadable += 1
            return
        report.dropped += dropped
        facts = await self._compared(run, writer, request, facts_found, report)
        report.known += len(facts_found) - len(facts)
        if facts:
            transaction = writing.write(writer, report.batch, request.target, facts)
            result = await self._database.write(access_checks.while_unchanged(transaction))
            report.known += result.known
            report.written += result.written
            report.dropped += result.dropped

    async def _compared(
        self,
        run: _Run,
        writer: PageWriter,
        request: RememberRequest,
        facts_found: Sequence[FoundFact],
        report: FactReport,
    ) -> list[NewFact]:
        """Return the facts that known facts do not already state, with the facts that they contradict."""
        subjects = [fact.subject for fact in facts_found]
        known = writing.known_facts(writer, request.target, subjects)
        existing = await self._database.read(access_checks.while_unchanged(known))
        name = request.source.name
        new = [(fact, PageFact(fact.date, name, fact.statement, fact.quote)) for fact in facts_found]
        same: set[int] = set()
        contradicted: dict[int, tuple[PageFact, ...]] = {}
        rows = await run.compare(facts_found, existing) if _asks(new, existing) else ()
        if rows is None:
            report.uncompared += len(facts_found)
        for row in rows or ():
            olds = existing.get(facts_found[row.fact - 1].subject, ())
            numbers = [number for number in row.contradicts if 1 <= number <= len(olds)]
            contradicted[row.fact] = tuple(olds[number - 1] for number in numbers)
            if not numbers and any(1 <= number <= len(olds) for number in row.same):
                same.add(row.fact)
        return [
            NewFact(each.subject, fact, contradicted.get(number, ()))
            for number, (each, fact) in enumerate(new, 1)
            if number not in same
        ]

    async def undo(self, caller: Caller, batch_id: str) -> UndoResult:
        """Undo a batch; raises `NotFound` or `Conflict`."""
        return await self._database.write(writing.undo(PageWriter(caller, self._memory.limits), batch_id))

    async def list(self, caller: Caller, limit: int, before: str) -> MemoryPart:
        """List the batches of `remember`, newest first."""
        return part(list(await self._database.read(batches.list_batches(caller, limit, before))), limit, "id")

    async def answer(self, principal: Principal, request: ContextRequest, once: str = "") -> MemoryAnswer:
        """Answer a question from pages, with citations that were part of the context."""
        model, caller = self._chosen(), Caller.of(principal)
        if once:
            await model.refund_lost(once)
        context_pack = await context.build(self._memory, caller, request)
        if not context_pack.sources:
            return MemoryAnswer((), context_pack)
        prompt = prompts.answer(request.query, context_pack.text)
        start = await self._begin(caller, principal, "answer", ("", ""), model.max_cost(prompt))
        run = _Run(model, principal, start.budget, once)
        try:
            try:
                reply = await run.ask(prompt)
            finally:
                await self._finish(start, run.cost)
        except errors.SixfoldError as error:
            await run.refund(error)
            raise
        excerpts = [
            f"{hit.title} {hit.slug} {text}"
            for hit, text in zip(context_pack.sources, context_pack.excerpts, strict=True)
        ]
        try:
            sentences, dropped = model_replies.read_sentences(reply, excerpts)
        except UnreadableReply:
            sentences, dropped = (), (DroppedFact(reply[:200], "the reply is not JSON"),)
        return MemoryAnswer(sentences, context_pack, dropped, run.cost, run.model)

    def _chosen(self) -> ChatModel:
        if self._model is None:
            raise errors.NotConfigured(
                "The memory model is not configured: an operator can set SIXFOLD_MEMORY_MODEL to "
                "the name of a chat model, such as default"
            )
        return self._model

    async def _begin(
        self, caller: Caller, principal: Principal, kind: BatchKind, label: tuple[str, str], max_cost: int
    ) -> BatchStart:
        payer_id = principal.account_id
        return await self._database.write(
            batches.begin(caller, payer_id, kind, label, self._limits, max_cost)
        )

    async def _finish(self, start: BatchStart, cost: int) -> None:
        # A client that disconnects must not leave the reservation.
        await asyncio.shield(self._database.write(batches.finish(start, cost)))


def _asks(new: Sequence[tuple[FoundFact, PageFact]], known: Mapping[str, Sequence[PageFact]]) -> bool:
    """Return whether a new fact must be compared: known facts on its subject have different words."""
    return any(
        each.subject in known and fact.key not in {old.key for old in known[each.subject]}
        for each, fact in new
    )


class _Run(msgspec.Struct):
    """The model calls of one request, with the limit on their cost and the cost so far, in micro-dollars.

    `calls` are the ids of the calls since the last `confirm` that a refund would cover; `confirmed_cost` is
    the cost of the others, and `number` the number of all calls.
    """

    chat: ChatModel
    principal: Principal
    budget: int
    once: str
    number: int = 0
    cost: int = 0
    confirmed_cost: int = 0
    calls: list[str] = []
    model: str = ""
    started_at: float = msgspec.field(default_factory=time.monotonic)

    async def ask(self, prompt: ModelPrompt) -> str:
        """Return a reply; raises `BudgetExceeded`, and `EngineFailed` after the time limit."""
        max_cost = self.chat.max_cost(prompt)
        if self.cost + max_cost > self.budget:
            raise errors.BudgetExceeded(
                f"The next model call may cost {money.format_usd(max_cost)} USD, but this request has only "
                f"{money.format_usd(self.budget - self.cost)} USD left: send less, raise max_usd, or ask "
                "the operator to raise SIXFOLD_MEMORY_CALL_USD"
            )
        self.number += 1
        call = FactCall(ids.new("req"), self.once, self.number)
        # A call that the time limit cancels may be charged.
        self.calls.append(call.id)
        try:
            async with asyncio.timeout(self.started_at + _SECONDS - time.monotonic()):
                reply = await self.chat.ask(self.principal, call, prompt)
        except TimeoutError as error:
            raise errors.EngineFailed(f"The request has reached its limit of {_SECONDS} seconds") from error
        except errors.SixfoldError as error:
            self.cost += error.cost
            self.confirmed_cost += error.cost
            raise
        self.cost += reply.cost
        self.model = reply.model
        return reply.text

    def confirm(self) -> None:
        """Exclude the calls so far from refunds, because their results are stored."""
        self.confirmed_cost, self.calls = self.cost, []

    async def refund(self, error: errors.SixfoldError) -> None:
        """Refund the calls since the last `confirm`, because their results are lost."""
        if self.calls:
            await self.chat.refund(self.calls, error.message)
        self.cost, self.calls = self.confirmed_cost, []

    async def compare(
        self, facts: Sequence[FoundFact], known: Mapping[str, Sequence[PageFact]]
    ) -> tuple[Comparison, ...] | None:
        """Return the comparisons of new facts, or None if the reply is not usable."""
        try:
            return model_replies.read_comparisons(await self.ask(prompts.compare(facts, known)), len(facts))
        except (errors.SixfoldError, UnreadableReply):
            return None
