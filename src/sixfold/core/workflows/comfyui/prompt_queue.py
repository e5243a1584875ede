"""Prompts of ComfyUI clients in the database: running, ended or deleted.

The tasks contain the graphs. Decoding takes milliseconds for each prompt of 1 MB, so the transactions that
read whole prompts run in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Rows, Transaction, Value, encode_json, many, one
from sixfold.core.predictions import queries
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows.workflows import PROMPT

_PAGE_ROWS = 200


class UnfinishedPrompt(NamedTuple):
    """A prompt that has not ended, without its graph."""

    id: str
    prompt_id: str
    state: PredictionState


def under_way(tenant: Tenant) -> Transaction[tuple[UnfinishedPrompt, ...]]:
    """Return the prompts that have not ended, oldest first."""
    found = yield from many("prompts_under_way", **_of(tenant), limit=_PAGE_ROWS)
    rows = yield from many("prompts_by_id", ids=encode_json([row["id"] for row in found]))
    return tuple(
        UnfinishedPrompt(row["id"], row["prompt_id"] or row["id"], PredictionState(row["state"]))
        for row in rows
    )


def count_unfinished(tenant: Tenant) -> Transaction[int]:
    """Return the number of prompts that have not ended."""
    return len((yield from many("prompts_under_way", **_of(tenant), limit=_PAGE_ROWS)))


def first(tenant: Tenant) -> Transaction[Rows]:
    """Return the predictions of the first page of prompts that have not ended, oldest first.

    The rows are not decoded, because decoded graphs take up to thirty times as much memory.
    """
    page = yield from queries.page_ids("prompts_under_way", _of(tenant), _PAGE_ROWS)
    return (yield from page.rows())


def list_ended(tenant: Tenant, limit: int) -> Transaction[Rows]:
    """Return the last ended prompts as rows, newest first, at most `limit` or one page."""
    page = yield from queries.page_ids("prompts_ended", _of(tenant), limit)
    return (yield from page.rows())


def find(tenant: Tenant, prompt_id: str) -> Transaction[Prediction | None]:
    """Return the last prompt with an id chosen by the client, or None."""
    row = yield from one("prompt_named", **_of(tenant), prompt_id=prompt_id)
    return None if row is None else Prediction.from_row(row)


def named(tenant: Tenant, prompt_ids: Iterable[str]) -> Transaction[list[str]]:
    """Return the prediction ids of ended prompts with ids chosen by the client."""
    rows = yield from many("prompts_named", **_of(tenant), prompt_ids=encode_json(list(prompt_ids)))
    return [row["id"] for row in rows]


def forget(tenant: Tenant, ids: Iterable[str], *, everything: bool) -> Transaction[None]:
    """Remove ended prompts from the history: all of them, or those with these prediction ids."""
    row = {**_of(tenant), "everything": int(everything), "ids": encode_json(list(ids))}
    yield Query("prompts_forget", row)


def _of(tenant: Tenant) -> dict[str, Value]:
    return {**tenant.row, "keyless": int(tenant.keyless), "model": PROMPT}
