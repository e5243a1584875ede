"""`/lab`: kill workers or the server during runs and verify the ledger.

Available to the operator in testing mode only (`SIXFOLD_TESTING`).
"""

from __future__ import annotations

import asyncio
import os
import signal

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import ledger_queries, rights
from sixfold.core.database import now
from sixfold.core.predictions import admin_queries
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 4096
_QUEUE = 50


class LabPages:
    """The lab page and its two forms."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._killed = 0
        # Only one check runs at a time, as a check of a large ledger takes seconds.
        self._checking = asyncio.Lock()

    async def show(self, _request: Request, user: PageUser) -> Response:
        """Show the queue, the workers and the result of a full ledger check."""
        read = self._services.database.read
        async with self._checking:
            faults = await read(ledger_queries.verify(), in_thread=True)
        workers = self._services.scheduler.snapshot()
        return self._pages.render(
            "admin/lab.html",
            user.session,
            moment=await read(now()),
            queue=await read(admin_queries.queue(_QUEUE)),
            faults=faults,
            workers={name: count for name, count in sorted(workers.items()) if any(count.values())},
            killed=self._killed,
        )

    async def kill_workers(self, request: Request, _user: PageUser) -> Response:
        """Send SIGKILL to all workers of an engine."""
        self._killed += await self._services.scheduler.kill_workers(requests.path_value(request, "engine"))
        return RedirectResponse("/lab", 303)

    async def kill_server(self, _request: Request, _user: PageUser) -> Response:
        """Send SIGKILL to this server, which ends all requests without a response, including this one."""
        os.kill(os.getpid(), signal.SIGKILL)
        # The statement is unreachable, but the type checker requires it.
        raise errors.NotFound


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes of the page and its forms, or an empty tuple outside testing mode."""
    if not services.settings.testing:
        return ()
    lab = LabPages(services, pages)

    return (
        RouteEntry("/lab", {"GET": auth.operator(lab.show)}, access=rights.OPERATE),
        RouteEntry(
            "/lab/workers/{engine}/kill",
            {"POST": auth.operator(lab.kill_workers)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
        RouteEntry(
            "/lab/server/kill", {"POST": auth.operator(lab.kill_server)}, _FORM_BYTES, access=rights.OPERATE
        ),
    )
