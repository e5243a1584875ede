"""Records of operators' actions: the user, time, action, and values before and after, without secrets."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from sixfold.core import ids, pagination
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Query, Transaction, encode_json

# Maximum length of the record of a value; longer records are truncated.
_MAX_TEXT = 4000


class OperatorAction(msgspec.Struct, frozen=True):
    """An action on `target`, such as an account id; `before` and `after` are JSON or empty."""

    id: str
    actor: str
    action: str
    target: str
    before: str
    after: str
    created_at: int


class ActionPage(msgspec.Struct, frozen=True):
    """A page of actions, newest first; `next_cursor` is None on the last page."""

    actions: tuple[OperatorAction, ...]
    next_cursor: str | None


def note(actor: Principal, action: str, target: str, before: Any = None, after: Any = None) -> Query:
    """Return the query that records an action, for the transaction that performs it."""
    return Query(
        "operator_action_insert",
        {
            "id": ids.new("act"),
            "actor_id": actor.account_id,
            "actor": f"{actor.email}, {actor.key_id or actor.authentication}",
            "action": action,
            "target": target,
            "before": _text(before),
            "after": _text(after),
        },
    )


def record(actor: Principal, action: str, target: str) -> Transaction[None]:
    """Record an action that does not itself change the database."""
    yield note(actor, action, target)


def page(limit: int, cursor: str | None, target: str = "") -> Transaction[ActionPage]:
    """Return at most `limit` actions, optionally only those on `target`.

    A target that ends in `.` or `_` selects all targets that begin with it. `cursor` is the `next_cursor` of
    the previous page. Raises `BadRequest` for an invalid cursor.
    """
    params = {"before_id": pagination.id_before(cursor), "target": target, "limit": limit + 1}
    rows = yield Query("operator_actions", params)
    entries = tuple(OperatorAction(**dict(row)) for row in rows[:limit])
    return ActionPage(entries, entries[-1].id if len(rows) > limit else None)


def url_origin(url: str) -> str:
    """Return the origin of an account's URL, whose path and query may be a secret of the account."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _text(value: Any) -> str:
    return "" if value is None else encode_json(value)[:_MAX_TEXT]
