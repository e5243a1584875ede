"""`/api/operator/installs`: the weights of engines on this machine.

The routes require `operate` together with `account.read` or `account.manage`.
"""

from __future__ import annotations

from typing import TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.configuration.ports import InstallState, InstallView
from sixfold.web import bodies, openapi, requests, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_BODY_BYTES = 4096
_ROOT = "/api/operator/installs"
_ONE = f"{_ROOT}/{{family}}/{{name}}"


class InstallSchema(TypedDict):
    """Weights that are or can be installed; `percent` is null while the size is unknown."""

    family: str
    name: str
    title: str
    state: InstallState
    percent: int | None
    bytes: int
    license: str
    log: list[str]


class InstallRoutes(ServiceHandlers):
    """Handlers that install and remove weights."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._installs = services.installs

    async def show(self, request: Request) -> Response:
        """List the weights with their state."""
        await self._enter(request)
        return await self._listed()

    async def start(self, request: Request) -> Response:
        principal = await self._enter(request)
        body = bodies.parse_object(await request.body())
        family, name = body.get("family"), body.get("name")
        if not isinstance(family, str) or not isinstance(name, str):
            raise errors.InvalidInput.of("name", "family and name must be strings")
        await self._installs.start(principal, family, name)
        return await self._listed(202)

    async def stop(self, request: Request) -> Response:
        """Stop an installation; the downloaded part is kept."""
        principal = await self._enter(request)
        await self._installs.stop(principal, *_named(request))
        return await self._listed()

    async def remove(self, request: Request) -> Response:
        principal = await self._enter(request)
        await self._installs.remove(principal, *_named(request))
        return await self._listed()

    async def _listed(self, status: int = 200) -> Response:
        rows = [_install(view) for view in await self._installs.view()]
        return responses.unstored_json({"installs": rows}, status)


def _named(request: Request) -> tuple[str, str]:
    return requests.path_value(request, "family"), requests.path_value(request, "name")


def _install(view: InstallView) -> InstallSchema:
    return {
        "family": view.family,
        "name": view.name,
        "title": view.title,
        "state": view.state,
        "percent": view.percent,
        "bytes": view.size_bytes,
        "license": view.licence,
        "log": list(view.log),
    }


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, see, change = InstallRoutes(services), rights.OPERATE_READ, rights.OPERATE_CHANGES
    return (
        RouteEntry(
            _ROOT,
            {"GET": handlers.show, "POST": handlers.start},
            _BODY_BYTES,
            access={"GET": see, "POST": change},
        ),
        RouteEntry(_ONE, {"DELETE": handlers.remove}, access=change),
        RouteEntry(f"{_ONE}/stop", {"POST": handlers.stop}, access=change),
    )


def operations() -> dict[str, OperationSpec]:
    page = openapi.shape("Installs", installs=list[InstallSchema])
    weights_response = {200: openapi.response("All weights", page)}
    body = msgspec.defstruct("InstallRequestSchema", [("family", str), ("name", str)])
    return {
        f"GET {_ROOT}": OperationSpec("Weights with their state", weights_response),
        f"POST {_ROOT}": OperationSpec(
            "Begin to install weights", {202: openapi.response("All weights", page)}, (400, 404, 409), body
        ),
        f"DELETE {_ONE}": OperationSpec("Delete installed weights", weights_response, (404,)),
        f"POST {_ONE}/stop": OperationSpec("Stop an installation", weights_response, (404,)),
    }
