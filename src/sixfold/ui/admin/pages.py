"""`/admin`: the operator's pages; other users receive a 404."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.operation import actions, credit_requests, link_requests
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.availability import NOT_RESPONDING
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.database import Row, now
from sixfold.core.predictions import admin_queries
from sixfold.core.predictions.admin_queries import RunFilter
from sixfold.ui.admin import sparklines
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 4096
_QUEUE, _PAGE, _MAX_TEXT = 50, 50, 200
_STATES = ("queued", "running", "succeeded", "failed", "canceled", "expired", "left")


class EngineState(msgspec.Struct, frozen=True):
    """An engine with its status, numbers of workers and queued runs, and the models it serves."""

    spec: EngineSpec
    status: EngineStatus
    busy: int
    idle: int
    queued: int
    models: tuple[str, ...]


class AdminPages:
    """The operator's pages and the forms that end runs, sessions and idle workers."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._figures = services.figures

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show figures, workers, the queue, recent failures and storage."""
        read = self._services.database.read
        queue = await read(admin_queries.queue(_QUEUE))
        slots = await self._figures.day()
        disk = await asyncio.to_thread(shutil.disk_usage, self._services.settings.data_dir)
        engines = self._engine_states(_by_engine(queue.waiting))
        resources = await self._services.resources.resources()
        return self._pages.render(
            "admin/overview.html",
            user.session,
            moment=await read(now()),
            queue=queue,
            workers=[engine for engine in engines if engine.busy or engine.idle or engine.queued],
            failures=await read(admin_queries.failures(), in_thread=True),
            request_total=sum(slot.runs + slot.calls for slot in slots),
            earned=sum(slot.earned + slot.earned_by_calls for slot in slots),
            failed=sum(slot.failed for slot in slots),
            storage=await read(admin_queries.storage(), in_thread=True),
            disk=disk,
            sessions=[running.session for running in self._services.live_sessions.running],
            draining=self._services.predictions.draining,
            link_requests=len(await read(link_requests.recent())),
            credit_requests=len(await read(credit_requests.recent())),
            problems=self._services.configuration.problems,
            away=[each for each in resources if each.state in NOT_RESPONDING],
            gpus=self._services.gpu.reports(),
            charts=sparklines.charts(slots),
        )

    async def requests(self, request: Request, user: PageUser) -> Response:
        """List the requests of all accounts; `q` searches them and `status` filters them."""
        state = request.query_params.get("status", "")
        filters = RunFilter(requests.query_text(request, "q", _MAX_TEXT), state if state in _STATES else "")
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        rows, next_cursor = await self._services.database.read(
            admin_queries.requests(filters, _PAGE, cursor), in_thread=True
        )
        return self._pages.render(
            "admin/requests.html",
            user.session,
            rows=rows,
            filters=filters,
            states=_STATES,
            next_cursor=next_cursor,
        )

    async def show_request(self, request: Request, user: PageUser) -> Response:
        """Show the receipt and log of a request, without its inputs and outputs."""
        prediction = await self._services.predictions.get_any(requests.path_value(request, "prediction_id"))
        account = await self._services.database.read(accounts.by_id(prediction.account_id))
        return self._pages.render(
            "admin/request.html",
            user.session,
            prediction=prediction,
            account=account if account.email and account.kind != "system" else None,
        )

    async def cancel(self, request: Request, user: PageUser) -> Response:
        prediction = await self._services.predictions.get_any(requests.path_value(request, "prediction_id"))
        await self._services.predictions.cancel(prediction.id, Tenant.of(prediction))
        await self._record(user, "run.cancel", prediction.id)
        return RedirectResponse("/admin", 303)

    async def close(self, request: Request, user: PageUser) -> Response:
        """Close a live session of any account."""
        session_id = requests.path_value(request, "session_id")
        live = [
            running.session
            for running in self._services.live_sessions.running
            if running.session.id == session_id
        ]
        if not live:
            raise errors.NotFound("Session not found on this server")
        await self._services.live_sessions.close(session_id, Tenant(live[0].account_id))
        await self._record(user, "session.close", session_id)
        return RedirectResponse("/admin", 303)

    async def stop_idle(self, request: Request, user: PageUser) -> Response:
        """Stop the idle workers of an engine to free their memory."""
        engine = requests.path_value(request, "engine")
        await self._services.scheduler.stop_idle(engine)
        await self._record(user, "workers.stop", f"engines.{engine}")
        return RedirectResponse("/admin", 303)

    async def _record(self, user: PageUser, action: str, target: str) -> None:
        await self._services.database.write(actions.record(user.principal, action, target[:_MAX_TEXT]))

    def _engine_states(self, queued: Mapping[str, int]) -> list[EngineState]:
        workers = self._services.scheduler.snapshot()
        status_of = self._services.predictions.terms.status_of
        models_by_engine: dict[str, list[str]] = {}
        for model in self._services.catalog.models():
            for engine in model.engines:
                models_by_engine.setdefault(engine.name, []).append(model.name)
        return [
            EngineState(
                spec,
                status_of(name),
                workers.get(name, {}).get("busy", 0),
                workers.get(name, {}).get("idle", 0),
                queued.get(name, 0),
                tuple(models_by_engine.get(name, ())),
            )
            for name, spec in sorted(self._services.catalog.engines().items())
        ]


def _by_engine(rows: Sequence[Row]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[str(row["engine"])] = counts.get(str(row["engine"]), 0) + 1
    return counts


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    admin = AdminPages(services, pages)

    return (
        RouteEntry("/admin", {"GET": auth.operator(admin.show)}, access=rights.OPERATE),
        RouteEntry("/admin/requests", {"GET": auth.operator(admin.requests)}, access=rights.OPERATE),
        RouteEntry(
            "/admin/requests/{prediction_id}",
            {"GET": auth.operator(admin.show_request)},
            access=rights.OPERATE,
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
            {"POST": auth.operator(admin.stop_idle)},
            _FORM_BYTES,
            access=rights.OPERATE,
        ),
    )
