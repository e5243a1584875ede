"""`/predictions/selection`: selected runs and live sessions, two runs side by side, and their deletion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction
from sixfold.core.predictions.history import deletion
from sixfold.core.predictions.history.entries import SESSION_PREFIX, RunHistory
from sixfold.core.predictions.models import Prediction
from sixfold.ui import forms
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions.history import card_values, count_text
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_MAX_RUNS = 48
_MAX_ID = 100
_FORM_BYTES = 8192
_COMPARED = 2
_MAX_VALUE = 1000


class ComparedInput(msgspec.Struct, frozen=True):
    """An input of both runs; its value is "–" for a run without it."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the values are not equal."""
        return len(set(self.values)) > 1


class SelectionPages:
    """Shows selected runs and sessions, and deletes them after a confirmation."""

    def __init__(self, services: WebServices, pages: PageTemplates, output_view: OutputView) -> None:
        self._services = services
        self._pages = pages
        self._output_view = output_view
        self._history = RunHistory(services.database)

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show what is selected: two runs side by side with their inputs."""
        ids = _unique(request.query_params.getlist("id"))
        entries = await self._history.by_ids(user.tenant, ids)
        if ids and not entries:
            raise errors.NotFound("The selected runs were not found")
        compared: list[dict[str, Any]] = []
        inputs: list[ComparedInput] = []
        sessions = sum(entry.is_session for entry in entries)
        if len(entries) == _COMPARED and not sessions:
            both = [await self._services.predictions.get(entry.id, user.tenant) for entry in entries]
            compared = [await self._output_view.values(prediction) for prediction in both]
            inputs = _compared(both)
        return self._pages.render(
            "predictions/selection.html",
            user.session,
            entries=entries,
            count_text=count_text(len(entries) - sessions, sessions),
            sessions=sessions,
            compared=compared,
            inputs=inputs,
            parts=sum(len(entry.parts) for entry in entries),
            unfinished=[entry for entry in entries if entry.is_unfinished],
            **card_values(),
        )

    async def delete(self, request: Request, user: PageUser) -> Response:
        """Delete the runs and sessions in the field `ids`, all or none of them."""
        form = await forms.read(request)
        self._services.sessions.check_csrf(request, user.session, form.get("csrf"))
        ids = _unique(form.get("ids", "").split(","))
        await self._services.database.write(_delete_all(ids, user.tenant))
        sessions = sum(each.startswith(SESSION_PREFIX) for each in ids)
        counts = {"deleted": len(ids) - sessions, "sessions": sessions}
        query = urlencode({name: number for name, number in counts.items() if number})
        return RedirectResponse(f"/predictions?{query}" if query else "/predictions", 303)


def _unique(values: Sequence[str]) -> list[str]:
    """Return the different ids in their order; raises `BadRequest` for too many."""
    ids = list(dict.fromkeys(value for value in values if 0 < len(value) <= _MAX_ID))
    if len(ids) > _MAX_RUNS:
        raise errors.BadRequest(f"At most {_MAX_RUNS} runs can be selected (got {len(ids)})")
    return ids


def _delete_all(prediction_ids: Sequence[str], tenant: Tenant) -> Transaction[None]:
    for prediction_id in prediction_ids:
        is_session = prediction_id.startswith(SESSION_PREFIX)
        delete = deletion.delete_session if is_session else deletion.delete
        yield from delete(prediction_id, tenant)


def _compared(both: Sequence[Prediction]) -> list[ComparedInput]:
    values = [{**each.inputs, "model": each.model} for each in both]
    for each, prediction in zip(values, both, strict=True):
        if "seed" in prediction.task.inputs:
            each["seed"] = prediction.task.inputs["seed"]
    names = dict.fromkeys(name for each in values for name in each)
    inputs = [ComparedInput(name, tuple(_text(each, name) for each in values)) for name in names]
    return sorted(inputs, key=lambda each: not each.differs)


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, "–")
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_MAX_VALUE]


def routes(
    services: WebServices, pages: PageTemplates, output_view: OutputView, auth: PageAuth
) -> tuple[RouteEntry, ...]:
    selection = SelectionPages(services, pages, output_view)
    handlers = {"GET": auth.page(selection.show), "POST": auth.page(selection.delete)}
    return (RouteEntry("/predictions/selection", handlers, _FORM_BYTES, access=rights.RUN),)
