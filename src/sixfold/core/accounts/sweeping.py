"""What accounts leave behind and nobody needs: kept answers, sign-ins, grants and rates that are over."""

from __future__ import annotations

from sixfold.core.accounts import idempotency, limits, login_sessions, oauth
from sixfold.core.database import Transaction, now


def sweep() -> Transaction[None]:
    """Forget all that is over."""
    yield from idempotency.sweep((yield from now()))
    yield from login_sessions.sweep()
    yield from oauth.sweep()
    yield from limits.sweep()
