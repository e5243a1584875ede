"""Deletion of expired account data: stored responses, sessions, grants and rates."""

from __future__ import annotations

from sixfold.core.accounts import idempotency, limits, login_sessions, oauth
from sixfold.core.database import Transaction, now


def sweep() -> Transaction[None]:
    """Delete all expired rows."""
    yield from idempotency.sweep((yield from now()))
    yield from login_sessions.sweep()
    yield from oauth.sweep()
    yield from limits.sweep()
