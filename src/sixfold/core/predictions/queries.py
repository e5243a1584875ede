"""Reads of predictions: single ones, lists, positions in the queue, and the costs of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sixfold.core import ids, pagination
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.database import (
    Database,
    Query,
    Row,
    Rows,
    Transaction,
    Value,
    encode_json,
    many,
    now,
    one,
)
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import PredictionDraft
from sixfold.core.predictions.states import TERMINAL, PredictionState
from sixfold.core.provenance import redaction

# Larger predictions, such as the vectors of thousands of texts, share a limit on memory.
_LARGE_BYTES = 8 * 2**20
# A new run has further copies: the body, its values, the stored row, and the task of a worker.
_LARGE_INPUT_CHARS, _MAX_INPUT_CHARS = 2 * 2**20, 2**27
# The row, its texts in the prediction, and what a page or a picture shows of them.
_COPIES = 4
# The sizes of rows that are read in a thread, by the id in their query.
_large: dict[str, int] = {}
_MAX_LARGE = 10_000
# Queries for which an index contains the rows of an account in a state, in order.
_OF_STATE: dict[str, str] = {
    state: "prediction_page_unsuccessful" if state in TERMINAL else "prediction_page_unfinished"
    for state in PredictionState
    if state is not PredictionState.SUCCEEDED
}


class PredictionFilter(msgspec.Struct, frozen=True):
    """The filter of a list of predictions; empty fields match all predictions."""

    model: str = ""
    state: str = ""


class PageIds(msgspec.Struct, frozen=True):
    """The ids of the predictions of a page, the sum of their sizes, and whether there are more after them."""

    ids: tuple[str, ...]
    size: int
    has_more: bool

    def rows(self) -> Transaction[list[Row]]:
        """Return the predictions of the page in its order."""
        rows = {row["id"]: row for row in (yield Query("predictions_by_id", {"ids": encode_json(self.ids)}))}
        return [rows[each] for each in self.ids if each in rows]


def page_ids(query: str, params: Mapping[str, Value], limit: int) -> Transaction[PageIds]:
    """Return the first predictions, up to `limit`, that fit into `pagination.PAGE_BYTES`, but at least one.

    `query` returns the ids of a list. On SQLite, which reads texts to measure them, at most one prediction
    after the page is measured.
    """
    found = tuple(row["id"] for row in (yield Query(query, {**params, "limit": limit + 1})))
    measured = {"ids": encode_json(found[:limit]), "page_bytes": pagination.PAGE_BYTES}
    count = size = 0
    for row in (yield Query("prediction_sizes", measured)):
        if count and row["total"] > pagination.PAGE_BYTES:
            break
        count, size = count + 1, int(row["total"])
    return PageIds(found[:count], size, has_more=len(found) > count)


async def reserve_inputs(draft: PredictionDraft) -> None:
    """Reserve memory for the inputs of a new run, if they are large, until its request ends."""
    size = redaction.minimum_size(draft.task.inputs, _MAX_INPUT_CHARS)
    if size > _LARGE_INPUT_CHARS:
        await loaded_objects.reserve(size, _COPIES, draft.id)


async def load(database: Database, key: str, query: Callable[[], Transaction[Row]]) -> Prediction:
    """Return the prediction of the row that `query` reads, within a limit on the memory of large ones.

    `key` is the id in the query. A row of 33 MB takes 0.1 s to read, so a row that is known to be large is
    read in a thread.
    """
    if (size := _large.get(key, 0)) > _LARGE_BYTES:
        await loaded_objects.reserve(size, _COPIES, key)
    row = await database.read(query(), snapshot=False, in_thread=bool(size))
    if not size and (size := Prediction.stored_size(row)) > min(LOOP_BYTES, _LARGE_BYTES):
        if len(_large) >= _MAX_LARGE:
            _large.clear()
        _large[key] = size
        if size > _LARGE_BYTES:
            # Requests that wait for memory do not hold their rows.
            del row
            # A stream of states reads its prediction again and again.
            await loaded_objects.reserve(size, _COPIES, key)
            row = await database.read(query(), snapshot=False, in_thread=True)
    # The vectors of 2,048 texts are 17 MiB of JSON, which takes more than 100 ms to decode.
    return await PARSER.run_large(Prediction.stored_size(row), Prediction.from_row, row)


async def page(
    database: Database, tenant: Tenant, filters: PredictionFilter, limit: int, cursor: str | None
) -> tuple[Rows, str | None]:
    """Return the rows of a page of a tenant's predictions, newest first, and the cursor of the next page.

    `cursor` comes from the previous page; raises `BadRequest` if it is invalid. A page may contain fewer than
    `limit` predictions, because its size in bytes is also limited. A large one is read in a thread, within
    the limit on the memory of large predictions.
    """
    params = {
        **tenant.row,
        "model": filters.model,
        "state": filters.state,
        "before": pagination.id_before(cursor, "pred_"),
    }
    query = _OF_STATE.get(filters.state, "prediction_page")
    if tenant.credential_id:
        query = "prediction_page_of_credential"
    found = await database.read(page_ids(query, params, limit))
    if found.size > _LARGE_BYTES:
        await loaded_objects.reserve(found.size, _COPIES)
    rows = await database.read(found.rows(), snapshot=False, in_thread=found.size > LOOP_BYTES)
    return rows, found.ids[-1] if found.has_more else None


def history_window(tenant: Tenant, before: str, limit: int, *, with_texts: bool = False) -> Transaction[Rows]:
    """Return the filterable fields of a tenant's predictions before an id, newest first."""
    query = "history_window_of_credential" if tenant.credential_id else "history_window"
    return (yield from many(query, **tenant.row, before=before, texts=int(with_texts), limit=limit))


def count_waiting(engine: str | None = None) -> Transaction[int]:
    """Return the number of queued predictions, of all engines or of one."""
    rows = yield Query("prediction_engines_waiting", {})
    return sum(int(row["waiting"]) for row in rows if engine in (None, row["engine"]))


def position(prediction: Prediction) -> Transaction[int]:
    """Return the number of predictions ahead of a queued prediction."""
    row = yield from one(
        "prediction_position", engine=prediction.engine, created_at=prediction.created_at, id=prediction.id
    )
    return int(row["ahead"]) if row is not None else 0


class EngineCost(msgspec.Struct, frozen=True):
    """Successful runs of one engine, or calls of one model of a server; amounts in micro-dollars.

    `spent` is the sum of the costs that providers reported for `runs_with_cost` of the runs; the cost of the
    other runs is unknown.
    """

    engine: str
    runs: int
    earned: int
    spent: int
    runs_with_cost: int


def by_engine(life_us: int) -> Transaction[tuple[EngineCost, ...]]:
    """Return the costs of engines with successful runs in the last `life_us` µs, followed by calls."""
    since = (yield from now()) - life_us
    runs = yield from many("prediction_upstream_costs", since=since)
    calls = yield from many("gateway_call_upstream_costs", since=since, first=ids.earliest("req", since))
    return tuple(
        EngineCost(row["engine"], row["runs"], row["earned"], row["spent"], row["reported"])
        for row in (*runs, *calls)
    )
