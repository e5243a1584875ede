"""Start of runs from forms that a browser without JavaScript submits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.text_values import from_text
from sixfold.core.workflows import workflows
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions.form_uploads import FormUploads
from sixfold.ui.predictions.run_api import RunForm, RunRoutes
from sixfold.web import bodies, multipart, requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_NUMBERS = {"integer": int, "number": float}
_MODEL, _OPTION, _FILE = "model", "option.", "file."
Fields = Mapping[str, str]
Files = Mapping[str, UploadFile]


class FormRuns:
    """The endpoints of forms without JavaScript."""

    def __init__(self, services: WebServices, runs: RunRoutes, auth: PageAuth) -> None:
        self._services = services
        self._runs = runs
        self._uploads = FormUploads(services)
        self._auth = auth

    async def run(self, request: Request, user: PageUser) -> Response:
        """Start a run of the model in the path and redirect to its page."""
        async with self._form(request, user) as (fields, files):
            return await self._start(request, user, requests.path_value(request, "name"), fields, files)

    async def run_of_field(self, request: Request, user: PageUser) -> Response:
        """Start a run of the model that the form names, and redirect to its page."""
        fields = await self._auth.read_form(request, user)
        return await self._start(request, user, fields.get(_MODEL, ""), fields, {})

    async def _start(
        self, request: Request, user: PageUser, name: str, fields: Fields, files: Files
    ) -> Response:
        form = await self._runs.find(user, name, _options(fields))
        inputs = {
            descriptor.name: value
            for descriptor in form.model.inputs
            if (value := _value(descriptor, fields.get(descriptor.name, ""))) is not None
        }
        uploads = await self._store_files(user, form, files)
        prediction = await self._runs.submit(request, user, replace(form, inputs={**inputs, **uploads}))
        return RedirectResponse(f"/predictions/{quote(prediction.id)}", 303)

    @contextlib.asynccontextmanager
    async def _form(self, request: Request, user: PageUser) -> AsyncIterator[tuple[Fields, Files]]:
        """Yield the fields, and the files by the names of their inputs, after the CSRF check."""
        if bodies.media_type(request) != multipart.TYPE:
            yield await self._auth.read_form(request, user), {}
            return
        # Every file field is a part of the form, even if it is empty, so the limits are equal.
        maximum = multipart.MAX_FIELDS
        async with multipart.form(request, max_files=maximum, max_fields=maximum) as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            self._auth.check_csrf(request, user, fields.get("csrf"))
            yield (
                fields,
                {
                    name.removeprefix(_FILE): value
                    for name, value in form.items()
                    if isinstance(value, UploadFile) and value.filename and name.startswith(_FILE)
                },
            )

    async def _store_files(self, user: PageUser, form: RunForm, files: Files) -> dict[str, str]:
        """Store the files of a form and return their URLs by input."""
        model = workflows.with_files(form.model, self._services.workflows.classes)
        kinds = {each.name: each.type for each in model.media_inputs}
        unknown = next((name for name in files if name not in kinds), None)
        if unknown is not None:
            raise errors.BadRequest(f"{form.model.name} does not have a file input {unknown[:100]!r}")
        return {name: await self._uploads.store(user, file, kinds[name]) for name, file in files.items()}


def _options(fields: Fields) -> dict[str, str]:
    return {
        name.removeprefix(_OPTION): text for name, text in fields.items() if text and name.startswith(_OPTION)
    }


def _value(descriptor: Descriptor, text: str) -> Any:
    """Return the value of a field, or None if it is empty; an invalid number is returned as text."""
    if descriptor.type == "boolean":
        return bool(text)
    if not text:
        return None
    if descriptor.type in _NUMBERS:
        with contextlib.suppress(ValueError):
            return _NUMBERS[descriptor.type](text)
    return from_text(descriptor.type, text)


def routes(services: WebServices, runs: RunRoutes, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes; their errors are pages."""
    forms = FormRuns(services, runs, auth)
    field_bytes, file_bytes = services.settings.json_body_bytes, services.settings.inline_body_bytes
    run, run_of_field = auth.signed_in(forms.run), auth.signed_in(forms.run_of_field)
    return (
        RouteEntry("/pages/forms", {"POST": run_of_field}, field_bytes, access=rights.RUN),
        RouteEntry("/pages/forms/{name:path}", {"POST": run}, file_bytes, access=rights.RUN),
    )
