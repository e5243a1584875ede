"""Area E's import of spaces: an application becomes a template, served elsewhere or run here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting import models_list
from sixfold.core.accounts import ledger, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.catalog import gradio_spaces
from sixfold.core.catalog.gradio_spaces import SpaceId
from sixfold.web import bodies, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_NONE_HERE = 'No container can be started here: install Docker or Podman, or send `"run": "remote"`'


class SpaceImportRoutes:
    """Reads spaces and keeps them as models."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def post(self, request: Request) -> Response:
        """The template that a space became."""
        principal = await self._services.authenticator.bearer(request)
        raw = await request.body()

        async def made(_idempotency_id: str | None) -> Response:
            return await self._imported(principal, bodies.parse_object(raw))

        once = IdempotentRequest(principal.replays, raw, responses.error_response)
        return await self._services.idempotency.run(request, once, made)

    async def _imported(self, principal: Principal, body: dict[str, Any]) -> Response:
        services = self._services
        principal.require_all_models()
        await services.database.read(ledger.require_not_below_zero(principal.account_id))
        given = {name: _text(body, name) for name in ("space", "folder", "run", "hardware")}
        space = _space(given)
        if given["run"] and given["run"] not in gradio_spaces.WAYS:
            raise errors.InvalidInput.of("run", f"run must be one of {', '.join(gradio_spaces.WAYS)}")
        hire = services.templates.hardware_rate(space.model, given["hardware"] or None)
        if space.model in services.catalog:
            raise errors.Conflict(f"{space.model} is a built-in name")
        way = self._way(principal, given)
        if way == "remote":
            private = principal.has(Rights.OPERATE)
            found = await services.spaces.read(space, hardware=hire.hardware, private=private)
        else:
            found = await services.local_spaces.bring(
                space, run=way, folder=given["folder"], hardware=hire.hardware
            )
        own = await services.pipeline.custom_models.put(
            principal.account_id, gradio_spaces.KIND, space.model, cast("dict[str, Any]", found.document)
        )
        shown = models_list.own_template(own, services.templates, services.settings.idle_seconds)
        return responses.json(shown, 201)

    def _way(self, principal: Principal, given: Mapping[str, str]) -> str:
        """Where it is to run; starting a program of others on this machine needs the right `operate`.

        Without a choice it is the endpoint in the request, else a container where one can be started.
        """
        run, folder, operates = given["run"], given["folder"], principal.has(Rights.OPERATE)
        here = self._services.local_spaces
        if folder and run == "remote":
            raise errors.InvalidInput.of("run", "run must be container or process for a folder")
        if not folder and run == "process":
            raise errors.InvalidInput.of("run", "run must be remote or container for a space of the hub")
        if not run and not folder:
            served = bool(self._services.settings.space_endpoint)
            run = "container" if operates and not served and here.containers else "remote"
        if run != "remote" and not operates:
            if not here.containers and not folder:
                raise errors.EngineUnavailable(_NONE_HERE)
            raise errors.Forbidden("Only the operator may have spaces started on this machine")
        return run


def _space(given: Mapping[str, str]) -> SpaceId:
    """The space that is meant: by its folder, or by its id."""
    if given["folder"]:
        return gradio_spaces.of_folder(given["folder"])
    if not given["space"]:
        raise errors.InvalidInput.of("space", "space is required")
    return gradio_spaces.parse(given["space"])


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise errors.InvalidInput.of(name, f"{name} must be a string")
    return value or ""


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    """The one route."""
    importing = SpaceImportRoutes(services)
    size = services.settings.json_body_bytes
    return (RouteEntry("/api/containers/spaces/import", {"POST": importing.post}, size, access=rights.RUN),)
