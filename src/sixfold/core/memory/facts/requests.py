"""The arguments and responses of `remember` and `answer`, which REST and MCP tools share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from sixfold import errors
from sixfold.core import money, pagination
from sixfold.core.accounts.keys import Principal
from sixfold.core.memory import limits, page_edits, slugs
from sixfold.core.memory.facts import batches, sources
from sixfold.core.memory.facts.batches import MemoryBatchSchema
from sixfold.core.memory.facts.model_replies import DroppedFact
from sixfold.core.memory.facts.service import FactReport, FactService, MemoryAnswer, RememberRequest
from sixfold.core.memory.facts.writing import FactTarget, UndoResult
from sixfold.core.memory.models import Caller
from sixfold.core.memory.operation_schema import Arguments, OperationField
from sixfold.core.memory.search import context
from sixfold.core.memory.search.context import ContextRequest, ContextSourceSchema

_FOLDER_CHARS = 100
_MAX_REPORTED = 200
_LIST = 50

REMEMBER = (
    OperationField("text", "string", "A document or a conversation", max_chars=sources.MAX_CHARS),
    OperationField("messages", "objects", 'Instead of text: a chat, as {"role" or "name", "content"} each'),
    OperationField("folder", "string", "The folder of the pages", default="facts", max_chars=_FOLDER_CHARS),
    OperationField(
        "source", "string", "The name of the text, for its facts", default="", max_chars=limits.TITLE_CHARS
    ),
    OperationField("date", "string", "The date of the text: 2026-11-20; default: today", max_chars=40),
    OperationField("collections", "strings", "Collections of new pages"),
    OperationField(
        "max_usd", "string", "The most that it may cost, such as 0.02, below the server's limit", max_chars=40
    ),
)
UNDO = (OperationField("batch", "string", "The batch of a response", required=True, max_chars=80),)
BATCHES = (
    OperationField("limit", "integer", "Maximum number of results", default=_LIST, minimum=1, maximum=200),
    OperationField("cursor", "string", "next_cursor of the previous response", max_chars=500),
)
ANSWER = (
    OperationField(
        "question", "string", "A question, in any language", required=True, max_chars=context.MAX_QUERY
    ),
    *(field for field in context.FIELDS if field.name != "query"),
)
REMEMBER_TEXT = (
    "Extract facts from a conversation or document and write them on pages, with dates and quotations. "
    "Costs credit. The response has a batch, by which undo_remember takes them back."
)
UNDO_TEXT = "Undo a batch of remember: restore every page that it has written."
ANSWER_TEXT = (
    "Answer a question from the pages in sentences that cite them, or say that the memory does not know. "
    "Costs credit."
)


class StoredFactSchema(TypedDict):
    """A fact that was written: its page, its date, and the sentence of the source."""

    slug: str
    statement: str
    date: str
    quote: str


class SupersededFactSchema(TypedDict):
    """A fact that has moved to the earlier facts of its page, and the date until which it held."""

    slug: str
    statement: str
    until: str


class DroppedFactSchema(TypedDict):
    """A part of the model's reply that was not used, and the reason."""

    statement: str
    reason: str


class RememberResultSchema(TypedDict):
    """The result of `remember`; `stopped` is null if the whole source was read."""

    batch: str
    folder: str
    model: str
    cost_usd: money.Usd
    pages: list[str]
    added: list[StoredFactSchema]
    superseded: list[SupersededFactSchema]
    known: int
    dropped: list[DroppedFactSchema]
    unreadable_replies: int
    uncompared: int
    chars: int
    read_chars: int
    stopped: str | None


class UndoResultSchema(TypedDict):
    """The result of an undo: the slugs of restored pages, and of new pages that were deleted."""

    batch: str
    restored: list[str]
    deleted: list[str]


class CitedSentenceSchema(TypedDict):
    """A sentence of an answer; `sources` are numbers of the answer's sources."""

    text: str
    sources: list[int]


class MemoryAnswerSchema(TypedDict):
    """An answer; if `known` is false, the memory does not contain one, and `text` states this."""

    known: bool
    text: str
    sentences: list[CitedSentenceSchema]
    sources: list[ContextSourceSchema]
    dropped: list[DroppedFactSchema]
    model: str
    cost_usd: money.Usd


class MemoryBatches(TypedDict):
    batches: list[MemoryBatchSchema]
    next_cursor: str | None


async def remember(
    service: FactService, principal: Principal, arguments: Arguments, once: str = ""
) -> RememberResultSchema:
    """Run `remember` with validated arguments; `once` is the id of a request with an Idempotency-Key."""
    folder = slugs.normalize(arguments["folder"].strip("/"), "folder")
    if len(folder) > _FOLDER_CHARS:
        raise errors.InvalidInput.of("folder", f"folder must have at most {_FOLDER_CHARS} characters")
    date = arguments["date"] or await service.today()
    source = sources.of(arguments["text"], arguments["messages"], arguments["source"], date[:10])
    collections = arguments["collections"]
    target = FactTarget(folder, None if collections is None else page_edits.texts("collections", collections))
    request = RememberRequest(source, target, _amount(arguments["max_usd"]))
    report = await service.remember(principal, request, once)
    return _remembered(report, folder, len(source.text))


async def undo(service: FactService, caller: Caller, arguments: Arguments) -> UndoResultSchema:
    """Run `undo_remember` with validated arguments."""
    undone: UndoResult = await service.undo(caller, arguments["batch"])
    return {"batch": arguments["batch"], "restored": list(undone.restored), "deleted": list(undone.deleted)}


async def list_batches(service: FactService, caller: Caller, arguments: Arguments) -> MemoryBatches:
    """Return the batches of `remember`, newest first."""
    result = await service.list(caller, arguments["limit"], pagination.id_before(arguments["cursor"]))
    return {"batches": [batches.to_json(row) for row in result.rows], "next_cursor": result.next_cursor}


async def answer(
    service: FactService, principal: Principal, arguments: Arguments, base_url: str, once: str = ""
) -> MemoryAnswerSchema:
    """Run `answer` with validated arguments; `once` is the id of a request with an Idempotency-Key."""
    request: ContextRequest = context.parse({**arguments, "query": arguments["question"]})
    answer: MemoryAnswer = await service.answer(principal, request, once)
    is_known = bool(answer.sentences)
    return {
        "known": is_known,
        "text": " ".join(sentence.text for sentence in answer.sentences) if is_known else context.NOTHING,
        "sentences": [{"text": sentence.text, "sources": sentence.sources} for sentence in answer.sentences],
        "sources": answer.context.to_json(base_url)["sources"],
        "dropped": _dropped(answer.dropped),
        "model": answer.model,
        "cost_usd": money.format_usd(answer.cost),
    }


def _amount(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        micros = money.parse_usd(text)
    except ValueError as error:
        raise errors.InvalidInput.of("max_usd", f"max_usd: {error}") from error
    if micros < 0:
        raise errors.InvalidInput.of("max_usd", f"max_usd must not be negative (got {text})")
    return micros


def _remembered(report: FactReport, folder: str, chars: int) -> RememberResultSchema:
    added: list[StoredFactSchema] = []
    superseded: list[SupersededFactSchema] = []
    for page in report.written:
        slug = page.page.slug
        for fact in page.added:
            added.append(
                StoredFactSchema(slug=slug, statement=fact.statement, date=fact.date, quote=fact.quote)
            )
        for old in page.superseded:
            superseded.append(SupersededFactSchema(slug=slug, statement=old.fact.statement, until=old.until))
    return {
        "batch": report.batch,
        "folder": folder,
        "model": report.model,
        "cost_usd": money.format_usd(report.cost),
        "pages": sorted({page.page.slug for page in report.written}),
        "added": added,
        "superseded": superseded,
        "known": report.known,
        "dropped": _dropped(report.dropped),
        "unreadable_replies": report.unreadable,
        "uncompared": report.uncompared,
        "chars": chars,
        "read_chars": report.read,
        "stopped": report.stopped or None,
    }


def _dropped(dropped: Sequence[DroppedFact]) -> list[DroppedFactSchema]:
    return [{"statement": fact.statement, "reason": fact.reason} for fact in dropped[:_MAX_REPORTED]]
