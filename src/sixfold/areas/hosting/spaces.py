"""Area E's import of spaces: a served application becomes a template of the account."""

from __future__ import annotations

from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.areas.hosting import catalogue
from sixfold.core.accounts.keys import Principal
from sixfold.core.work import spaces
from sixfold.web import answers, bodies
from sixfold.web.idempotency import Once
from sixfold.web.routing import Route
from sixfold.web.services import Services

_WAYS = ("remote", "container")


class SpaceImport:
    """Reads spaces and keeps them as models."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def post(self, request: Request) -> Response:
        """The template that a space became."""
        principal = await self._services.doors.bearer(request)
        principal.require_models()
        raw = await request.body()

        async def made(_idempotency_id: str | None) -> Response:
            return await self._imported(principal, bodies.parse_object(raw))

        once = Once(principal.account_id, raw, answers.coded)
        return await self._services.repeats.run(request, once, made)

    async def _imported(self, principal: Principal, body: dict[str, Any]) -> Response:
        services = self._services
        given = {name: _text(body, name) for name in ("space", "run", "hardware")}
        if not given["space"]:
            raise errors.InvalidInput.of("space", "space is required")
        space = spaces.parse(given["space"])
        if given["run"] and given["run"] not in _WAYS:
            raise errors.InvalidInput.of("run", f"run must be one of {', '.join(_WAYS)}")
        if given["run"] == "container":
            raise errors.EngineUnavailable(
                "This server starts no containers of spaces. Import it with run: remote."
            )
        hire = services.templates.hire(space.model, given["hardware"] or None)
        if space.model in services.catalog:
            raise errors.Conflict(f"{space.model} is a built-in name")
        found = await services.spaces.read(space, hardware=hire.hardware, private=principal.is_operator)
        own = await services.pipeline.own.put(
            principal.account_id, spaces.KIND, space.model, cast("dict[str, Any]", found.document)
        )
        shown = catalogue.own_template(own, services.templates, services.settings.idle_seconds)
        return answers.json(shown, 201)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise errors.InvalidInput.of(name, f"{name} must be a string")
    return value or ""


def routes(services: Services) -> tuple[Route, ...]:
    """The one route."""
    importing = SpaceImport(services)
    size = services.settings.json_body_bytes
    return (Route("/api/containers/spaces/import", {"POST": importing.post}, size),)
