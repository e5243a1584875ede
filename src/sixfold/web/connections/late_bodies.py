"""Another check of the credential of a request whose body ends some time after its authentication."""

from __future__ import annotations

import time

from starlette.types import Message, Receive

from sixfold.core.accounts import connections
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.connections import CHECK_SECONDS, Connections


def recheck(open_connections: Connections, receive: Receive) -> Receive:
    """Return a `receive` that checks the credential again at the end of a body that took `CHECK_SECONDS`.

    A body may take hours at the slowest accepted rate. The `receive` raises `Unauthenticated` if the key or
    login session has ended, `NotFound` if the shared folder has, and `Forbidden` if the rights have changed.
    """
    began_at: float | None = None

    async def received() -> Message:
        nonlocal began_at
        if began_at is None and _is_authenticated():
            began_at = time.monotonic()
        message = await receive()
        is_end = message["type"] == "http.request" and not message.get("more_body")
        if is_end and began_at is not None and time.monotonic() - began_at >= CHECK_SECONDS:
            await open_connections.read(access_checks.unchanged())
        return message

    return received


def _is_authenticated() -> bool:
    return connections.authenticated.get() is not None or connections.signed_in.get() is not None
