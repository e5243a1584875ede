"""Prompts of ComfyUI's clients, as the store has them: under way, ended, forgotten."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sixfold.core.database import Query, Transaction, many, one
from sixfold.core.graphs.spaces import PROMPT
from sixfold.core.work.records import Prediction

_MOST = 200


def under_way(account_id: str) -> Transaction[tuple[Prediction, ...]]:
    """What has not ended, oldest first."""
    rows = yield from many("prompts_under_way", account_id=account_id, model=PROMPT, limit=_MOST)
    return tuple(Prediction.of(row) for row in rows)


def ended(account_id: str, most: int) -> Transaction[tuple[Prediction, ...]]:
    """The last ones that have ended, oldest first."""
    rows = yield from many("prompts_ended", account_id=account_id, model=PROMPT, limit=most)
    return tuple(Prediction.of(row) for row in reversed(rows))


def named(account_id: str, prompt_id: str) -> Transaction[Prediction | None]:
    """The last one that a client called so."""
    row = yield from one("prompt_named", account_id=account_id, model=PROMPT, prompt_id=prompt_id)
    return None if row is None else Prediction.of(row)


def forget(account_id: str, prompt_ids: Iterable[str], *, everything: bool) -> Transaction[None]:
    """Leave out of the history what has ended, from now on."""
    listed = msgspec.json.encode(list(prompt_ids)).decode()
    row = {"account_id": account_id, "model": PROMPT, "everything": int(everything), "prompt_ids": listed}
    yield Query("prompts_forget", row)
