"""Starts runs from forms that a browser without JavaScript submits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold.core.accounts import rights
from sixfold.core.catalog.inputs import Descriptor
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions.run_api import RunRoutes
from sixfold.web import requests
from sixfold.web.routing import RouteEntry

_NUMBERS = {"integer": int, "number": float}


class FormRuns:
    """The endpoint of forms without JavaScript."""

    def __init__(self, runs: RunRoutes, auth: PageAuth) -> None:
        self._runs = runs
        self._auth = auth

    async def run(self, request: Request, user: PageUser) -> Response:
        """Start a run and redirect to its page."""
        fields = await self._auth.read_form(request, user)
        form = await self._runs.find(user, requests.path_value(request, "name"), _options(fields))
        inputs = {
            descriptor.name: value
            for descriptor in form.model.inputs
            if (value := _value(descriptor, fields.get(descriptor.name, ""))) is not None
        }
        prediction = await self._runs.submit(request, user, replace(form, inputs=inputs))
        return RedirectResponse(f"/predictions/{quote(prediction.id)}", 303)


def _options(fields: Mapping[str, str]) -> dict[str, str]:
    prefix = "option."
    return {
        name.removeprefix(prefix): text for name, text in fields.items() if text and name.startswith(prefix)
    }


def _value(descriptor: Descriptor, text: str) -> Any:
    """Return the value of a field, or None if it is empty; text that is no number is left to the check."""
    if descriptor.type == "boolean":
        return bool(text)
    if not text:
        return None
    with contextlib.suppress(ValueError):
        return _NUMBERS.get(descriptor.type, str)(text)
    return text


def routes(runs: RunRoutes, auth: PageAuth, max_bytes: int) -> tuple[RouteEntry, ...]:
    """Return the route; its errors are pages."""
    run = auth.signed_in(FormRuns(runs, auth).run)
    return (RouteEntry("/pages/forms/{name:path}", {"POST": run}, max_bytes, access=rights.RUN),)
