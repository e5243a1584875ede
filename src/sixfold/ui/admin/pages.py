"""`/admin`: the operator's pages; other users get a 404."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.database import Row, now
from sixfold.core.predictions import admin_queries
from sixfold.core.predictions.admin_queries import RunFilter
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 4096
_QUEUE, _PAGE, _MAX_TEXT = 50, 50, 200
_STATES = ("queued", "running", "succeeded", "failed", "canceled", "expired", "left")
_KINDS = {
    "weights": "Weights",
    "comfyui": "ComfyUI",
    "provider": "Providers",
    "embedded": "Built in",
    "relay": "Model servers",
    "graph": "Graphs",
    "space": "Spaces",
}
_OTHERS = "Others"


@dataclass(frozen=True, slots=True)
class TestbedState:
    """An engine with its status, numbers of workers and queued runs, and the models it serves."""

    spec: EngineSpec
    standing: EngineStatus
    busy: int
    idle: int
    waiting: int
    models: tuple[str, ...]


class AdminPages:
    """The operator's pages and the forms that end runs, sessions and idle workers."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show figures, workers, the queue, recent failures and storage."""
        read = self._services.database.read
        queue, day = await read(admin_queries.queue(_QUEUE)), await read(admin_queries.day())
        disk = await asyncio.to_thread(shutil.disk_usage, self._services.settings.data_dir)
        benches = self._benches(_by_engine(queue.waiting))
        return self._pages.render(
            "admin/overview.html",
            user.session,
            moment=await read(now()),
            queue=queue,
            workers=[bench for bench in benches if bench.busy or bench.idle or bench.waiting],
            day=day,
            asked=sum(int(row["total"]) for row in day.endings),
            earned=sum(int(row["cost"] or 0) for row in day.endings),
            failed=sum(int(row["total"]) for row in day.failures),
            storage=await read(admin_queries.storage()),
            disk=disk,
            sessions=[running.session for running in self._services.live_sessions.running],
            draining=self._services.predictions.draining,
        )

    async def engines(self, _request: Request, user: PageUser) -> Response:
        """Show all engines with what they need, available ones first, and errors in model files."""
        benches = self._benches({})
        groups: dict[str, list[TestbedState]] = {title: [] for title in (*_KINDS.values(), _OTHERS)}
        for bench in sorted(benches, key=lambda bench: not bench.standing.ready):
            groups[_KINDS.get(bench.spec.kind, _OTHERS)].append(bench)
        return self._pages.render(
            "admin/engines.html",
            user.session,
            groups={title: found for title, found in groups.items() if found},
            ready=sum(bench.standing.ready for bench in benches),
            total=len(benches),
            faults=sorted(self._services.model_faults.items()),
        )

    async def requests(self, request: Request, user: PageUser) -> Response:
        """List the requests of all accounts; `q` searches them and `status` filters them."""
        state = request.query_params.get("status", "")
        wanted = RunFilter(requests.query_text(request, "q", _MAX_TEXT), state if state in _STATES else "")
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        rows, following = await self._services.database.read(admin_queries.requests(wanted, _PAGE, cursor))
        return self._pages.render(
            "admin/requests.html",
            user.session,
            rows=rows,
            wanted=wanted,
            states=_STATES,
            following=following,
        )

    async def one(self, request: Request, user: PageUser) -> Response:
        """Show the receipt and log of a request, without its inputs and outputs."""
        found = await self._services.predictions.get_any(requests.path_value(request, "prediction_id"))
        return self._pages.render("admin/request.html", user.session, prediction=found)

    async def cancel(self, request: Request, _user: PageUser) -> Response:
        """Cancel a run of any account."""
        found = await self._services.predictions.get_any(requests.path_value(request, "prediction_id"))
        await self._services.predictions.cancel(found.id, Tenant.of(found))
        return RedirectResponse("/admin", 303)

    async def close(self, request: Request, _user: PageUser) -> Response:
        """Close a live session of any account."""
        wanted = requests.path_value(request, "session_id")
        found = [
            running.session
            for running in self._services.live_sessions.running
            if running.session.id == wanted
        ]
        if not found:
            raise errors.NotFound("Session not found on this server")
        await self._services.live_sessions.close(wanted, Tenant(found[0].account_id))
        return RedirectResponse("/admin", 303)

    async def rest(self, request: Request, _user: PageUser) -> Response:
        """Stop the idle workers of an engine to free their memory."""
        await self._services.scheduler.stop_idle(requests.path_value(request, "engine"))
        return RedirectResponse("/admin", 303)

    def _benches(self, waiting: Mapping[str, int]) -> list[TestbedState]:
        workers = self._services.scheduler.snapshot()
        status_of = self._services.predictions.terms.status_of
        served: dict[str, list[str]] = {}
        for model in self._services.catalog.models():
            for engine in model.engines:
                served.setdefault(engine.name, []).append(model.name)
        return [
            TestbedState(
                spec,
                status_of(name),
                workers.get(name, {}).get("busy", 0),
                workers.get(name, {}).get("idle", 0),
                waiting.get(name, 0),
                tuple(served.get(name, ())),
            )
            for name, spec in sorted(self._services.catalog.engines().items())
        ]


def _by_engine(rows: Sequence[Row]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in rows:
        counted[str(row["engine"])] = counted.get(str(row["engine"]), 0) + 1
    return counted


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes of the operator's pages."""
    admin = AdminPages(services, pages)

    return (
        RouteEntry("/admin", {"GET": auth.operator(admin.show)}, access=rights.OPERATE),
        RouteEntry("/admin/engines", {"GET": auth.operator(admin.engines)}, access=rights.OPERATE),
        RouteEntry("/admin/requests", {"GET": auth.operator(admin.requests)}, access=rights.OPERATE),
        RouteEntry(
            "/admin/requests/{prediction_id}", {"GET": auth.operator(admin.one)}, access=rights.OPERATE
        ),
        RouteEntry(
            "/admin/requests/{prediction_id}/cancel",
            {"POST": auth.operator(admin.cancel)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
        RouteEntry(
            "/admin/sessions/{session_id}/close",
            {"POST": auth.operator(admin.close)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
        RouteEntry(
            "/admin/workers/{engine}/rest",
            {"POST": auth.operator(admin.rest)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
    )
