"""`/lab`: the operator kills workers, or the server, in the middle of runs and sees that every sum holds.

It is there in testing mode only (`SIXFOLD_TESTING`), and for the operator alone.
"""

from __future__ import annotations

import os
import signal

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import ledger_queries, rights
from sixfold.core.database import now
from sixfold.core.predictions import admin_queries
from sixfold.ui.guests import PageAuth, PageUser
from sixfold.ui.pages import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 4096
_QUEUE = 50


class Lab:
    """What runs, whether the books are right, and the two ways to do harm."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._killed = 0

    async def show(self, _request: Request, guest: PageUser) -> Response:
        """The books as they are now, checked in full, beside what runs and waits."""
        read = self._services.database.read
        workers = self._services.supervisor.snapshot()
        return self._pages.render(
            "admin/lab.html",
            guest.session,
            moment=await read(now()),
            queue=await read(admin_queries.queue(_QUEUE)),
            faults=await read(ledger_queries.verify()),
            workers={name: count for name, count in sorted(workers.items()) if any(count.values())},
            killed=self._killed,
        )

    async def worker(self, request: Request, _guest: PageUser) -> Response:
        """kill −9 for every worker of an engine, whatever it holds."""
        self._killed += await self._services.supervisor.kill_workers(requests.path_value(request, "engine"))
        return RedirectResponse("/lab", 303)

    async def server(self, _request: Request, _guest: PageUser) -> Response:
        """kill −9 for this server: nobody is answered, not even this request."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise errors.NotFound  # never reached


def routes(services: WebServices, pages: PageTemplates, guests: PageAuth) -> tuple[RouteEntry, ...]:
    """The page and its two forms; none of them outside testing mode."""
    if not services.settings.testing:
        return ()
    lab = Lab(services, pages)

    return (
        RouteEntry("/lab", {"GET": guests.operators(lab.show)}, access=rights.OPERATE),
        RouteEntry(
            "/lab/workers/{engine}/kill",
            {"POST": guests.operators(lab.worker)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
        RouteEntry(
            "/lab/server/kill", {"POST": guests.operators(lab.server)}, _FORM_BYTES, access=rights.OPERATE
        ),
    )
