"""Prompts of ComfyUI's clients, as the store has them: under way, ended, forgotten."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sixfold.core import pagination
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, Value, many, one
from sixfold.core.predictions.models import Prediction
from sixfold.core.workflows.workflows import PROMPT

_MOST = 200


def under_way(tenant: Tenant) -> Transaction[tuple[Prediction, ...]]:
    """What has not ended, oldest first."""
    rows = yield from many("prompts_under_way", **_of(tenant), limit=_MOST)
    return tuple(Prediction.from_row(row) for row in rows)


def remaining(tenant: Tenant) -> Transaction[int]:
    """How many have not ended."""
    return (yield from pagination.fitting("prompts_under_way_sizes", _of(tenant), _MOST))[1]


def first(tenant: Tenant) -> Transaction[tuple[Prediction, ...]]:
    """Those that have not ended, oldest first, as far as they fit into a page."""
    count, _ = yield from pagination.fitting("prompts_under_way_sizes", _of(tenant), _MOST)
    rows = yield from many("prompts_under_way", **_of(tenant), limit=count)
    return tuple(Prediction.from_row(row) for row in rows)


def ended(tenant: Tenant, most: int) -> Transaction[tuple[Prediction, ...]]:
    """The last ones that have ended, as far as they fit into a page, oldest first."""
    count, _ = yield from pagination.fitting("prompts_ended_sizes", _of(tenant), most)
    rows = yield from many("prompts_ended", **_of(tenant), limit=count)
    return tuple(Prediction.from_row(row) for row in reversed(rows))


def named(tenant: Tenant, prompt_id: str) -> Transaction[Prediction | None]:
    """The last one that a client called so."""
    row = yield from one("prompt_named", **_of(tenant), prompt_id=prompt_id)
    return None if row is None else Prediction.from_row(row)


def forget(tenant: Tenant, prompt_ids: Iterable[str], *, everything: bool) -> Transaction[None]:
    """Leave out of the history what has ended, from now on."""
    listed = msgspec.json.encode(list(prompt_ids)).decode()
    row = {**_of(tenant), "everything": int(everything), "prompt_ids": listed}
    yield Query("prompts_forget", row)


def _of(tenant: Tenant) -> dict[str, Value]:
    return {**tenant.row, "keyless": int(tenant.keyless), "model": PROMPT}
