"""The import of Gradio spaces as templates, hosted elsewhere or run on this machine."""

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
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_NO_CONTAINERS = 'No container can be started: install Docker or Podman, or send `"run": "remote"`'


class SpaceImportRoutes(ServiceHandlers):
    """Imports spaces as models."""

    async def post(self, request: Request, principal: Principal) -> Response:
        body, services = bodies.parse_object(await request.body()), self._services
        principal.require_all_models()
        await services.database.read(ledger.require_not_below_zero(principal.account_id))
        fields = {name: _text(body, name) for name in ("space", "folder", "run", "hardware")}
        space = _space(fields)
        if fields["run"] and fields["run"] not in gradio_spaces.WAYS:
            raise errors.InvalidInput.of("run", f"run must be one of {', '.join(gradio_spaces.WAYS)}")
        rate = services.templates.hardware_rate(space.model, fields["hardware"] or None)
        if space.model in services.catalog:
            raise errors.Conflict(
                f"{space.model} is the name of a built-in model: rename the space to import it"
            )
        await self._check_replacement(principal, space)
        mode = self._mode(principal, fields)
        if mode == "remote":
            private = principal.has(Rights.OPERATE)
            description = await services.spaces.read(space, hardware=rate.hardware, private=private)
        else:
            description = await services.local_spaces.import_space(
                space, run=mode, folder=fields["folder"], hardware=rate.hardware
            )
        record = await services.predictions.custom_models.put(
            principal.account_id,
            gradio_spaces.KIND,
            space.model,
            cast("dict[str, Any]", description.document),
        )
        result = models_list.own_template(record, services.templates, services.settings.idle_seconds)
        return responses.json(result, 201)

    async def _check_replacement(self, principal: Principal, space: SpaceId) -> None:
        """Raise `Forbidden` or `Conflict` if an import must not replace the model of this name."""
        try:
            found = await self._services.predictions.custom_models.find(space.model, principal.account_id)
        except errors.NotFound:
            return
        principal.require(rights.RUN_ACCOUNT_READ)
        if found.kind != gradio_spaces.KIND:
            raise errors.Conflict(
                f"{space.model} is the name of another model of this account: rename the space to import it"
            )

    def _mode(self, principal: Principal, fields: Mapping[str, str]) -> str:
        """Return how the space runs; starting a process on this machine requires the right `operate`.

        By default a configured endpoint is used, else a container if one can be started.
        """
        run, folder, operates = fields["run"], fields["folder"], principal.has(Rights.OPERATE)
        local_spaces = self._services.local_spaces
        if folder and run == "remote":
            raise errors.InvalidInput.of("run", "run must be container or process for a folder")
        if not folder and run == "process":
            raise errors.InvalidInput.of("run", "run must be remote or container for a space on the Hub")
        if not run and not folder:
            served = bool(self._services.settings.space_endpoint)
            run = "container" if operates and not served and local_spaces.containers else "remote"
        if run != "remote" and not operates:
            if not local_spaces.containers and not folder:
                raise errors.EngineUnavailable(_NO_CONTAINERS)
            raise errors.Forbidden(
                'Only the operator may start spaces on this machine: send `"run": "remote"`'
            )
        return run


def _space(fields: Mapping[str, str]) -> SpaceId:
    """Return the id of the space in the request, by folder or by id."""
    if fields["folder"]:
        return gradio_spaces.of_folder(fields["folder"])
    if not fields["space"]:
        raise errors.InvalidInput.of("space", "space is required")
    return gradio_spaces.parse(fields["space"])


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise errors.InvalidInput.of(name, f"{name} must be a string")
    return value or ""


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    post = services.idempotency.once(services.authenticator.bearer, SpaceImportRoutes(services).post)
    size = services.settings.json_body_bytes
    return (RouteEntry("/api/containers/spaces/import", {"POST": post}, size, access=rights.RUN),)
