"""Another check of the credential of a request whose body ends some time after its authentication."""

from __future__ import annotations

import time

from starlette.types import Message, Receive

from sixfold import errors
from sixfold.core.accounts import connections
from sixfold.core.accounts.authentication import access_checks, login_sessions
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
            await _check(open_connections)
        return message

    return received


def _is_authenticated() -> bool:
    return connections.authenticated.get() is not None or connections.signed_in.get() is not None


async def _check(open_connections: Connections) -> None:
    principal, session = connections.authenticated.get(), connections.session.get()
    if principal is not None:
        found = await open_connections.read(access_checks.current(principal))
        access_checks.require_unchanged(principal, found)
    elif session is not None:
        transaction = login_sessions.session_by_hash(bytes.fromhex(session.id))
        signed_in, before = await open_connections.read(transaction), connections.signed_in.get()
        if signed_in is None or before is None:
            raise errors.Unauthenticated(login_sessions.ENDED)
        access_checks.require_unchanged(before, signed_in.principal)
    folder = connections.shared_folder.get()
    if folder is not None and not await open_connections.is_valid(folder):
        raise errors.NotFound
