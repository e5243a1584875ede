"""`/api/operator/backups`: backups on this machine.

The routes require `operate` together with `account.read` to list, and with `account.manage` for everything
else, as a backup contains the data of all accounts.
"""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.configuration.ports import BackupFile, BackupState
from sixfold.web import files, openapi, requests, responses
from sixfold.web.files import ServedFile
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_ROOT = "/api/operator/backups"
_ONE = f"{_ROOT}/{{name}}"


class BackupSchema(TypedDict):
    """A backup; `bytes` is the size so far while it is being written."""

    name: str
    state: BackupState
    bytes: int
    created_at: str | None
    problem: str | None


class BackupRoutes(ServiceHandlers):
    """Handlers that start, list, download and delete backups."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._backups = services.backups

    async def show(self, request: Request) -> Response:
        """List the backups, newest first."""
        await self._enter(request)
        return await self._listed()

    async def start(self, _request: Request, principal: Principal) -> Response:
        """Begin a backup, unless one is being written."""
        await self._backups.start(principal)
        return await self._listed(202)

    async def download(self, request: Request) -> Response:
        """Return the file of a complete backup."""
        principal = await self._enter(request)
        name = requests.path_value(request, "name")
        file = await self._backups.open(principal, name)
        served = ServedFile(
            file.store, file.key, file.size, file.media_type, file.tag, "private, no-store", file.key
        )
        return await files.serve(request, served)

    async def remove(self, request: Request) -> Response:
        """Delete a backup, or stop one that is being written."""
        principal = await self._enter(request)
        await self._backups.remove(principal, requests.path_value(request, "name"))
        return await self._listed()

    async def _listed(self, status: int = 200) -> Response:
        rows = [
            BackupSchema(
                name=view.name,
                state=view.state,
                bytes=view.size_bytes,
                created_at=rfc3339(view.created_at),
                problem=view.problem or None,
            )
            for view in await self._backups.view()
        ]
        return responses.unstored_json({"backups": rows}, status)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, see, change = BackupRoutes(services), rights.OPERATE_READ, rights.OPERATE_CHANGES
    start = services.idempotency.once(services.authenticator.bearer, handlers.start)
    return (
        RouteEntry(_ROOT, {"GET": handlers.show, "POST": start}, access={"GET": see, "POST": change}),
        RouteEntry(_ONE, {"GET": handlers.download, "DELETE": handlers.remove}, access=change),
    )


def operations() -> dict[str, OperationSpec]:
    page = openapi.shape("Backups", backups=list[BackupSchema])
    listed = {200: openapi.response("The backups on this machine, newest first", page)}
    return {
        f"GET {_ROOT}": OperationSpec("Backups on this machine", listed),
        f"POST {_ROOT}": OperationSpec(
            "Begin a backup",
            {202: openapi.response("The backups on this machine", page)},
            (409,),
            parameters=(openapi.IDEMPOTENCY,),
        ),
        f"GET {_ONE}": OperationSpec(
            "Download a complete backup",
            {200: openapi.response("The file", openapi.FILE, BackupFile.media_type)},
            (404,),
        ),
        f"DELETE {_ONE}": OperationSpec(
            "Delete a backup, or stop one that is being written", listed, (404, 409)
        ),
    }
