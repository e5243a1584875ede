"""Another check of the credential of a request whose body ends some time after its authentication."""

from __future__ import annotations

from starlette.types import Message, Receive

from sixfold.core.accounts import connections
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.connections import Connections


def recheck(open_connections: Connections, receive: Receive) -> Receive:
    """Return a `receive` that checks the credential again at the end of a body that ends late.

    A body may take hours at the slowest accepted rate. The `receive` raises the errors of
    `access_checks.unchanged`:

    - `Unauthenticated` if the key or login session has ended,
    - `NotFound` if the shared folder has ended,
    - `Forbidden` if the rights have changed.
    """

    async def received() -> Message:
        message = await receive()
        is_end = message["type"] == "http.request" and not message.get("more_body")
        if is_end and connections.is_late():
            await open_connections.read(access_checks.unchanged())
        return message

    return received
