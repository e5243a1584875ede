"""`/api/shared-folders`: folders of the memory that other accounts and teams read or write."""

from __future__ import annotations

from functools import partial
from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.memory.sharing import folders, membership
from sixfold.core.memory.sharing.folders import Access, FolderShareDraft
from sixfold.web import bodies, openapi, requests, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PATH = "/api/shared-folders"

NewFolderShareSchema = TypedDict(
    "NewFolderShareSchema",
    {"folder": str, "with": NotRequired[str], "team_id": NotRequired[str], "access": NotRequired[Access]},
)
FolderShareSchema = TypedDict(
    "FolderShareSchema",
    {"id": str, "folder": str, "with": str, "team": str | None, "access": Access, "created_at": str},
)


class ReceivedFolderSchema(FolderShareSchema):
    """A folder that another account, the `owner`, shares."""

    owner: str


class SharedFoldersSchema(TypedDict):
    """The folders that the account shares, and those that are shared with it."""

    folders: list[FolderShareSchema]
    received: list[ReceivedFolderSchema]


class FolderRoutes(ServiceHandlers):
    """Handlers of shared folders."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._database = services.database

    async def list(self, request: Request) -> Response:
        """List the folders that are shared by the account and with it."""
        principal = await self._enter(request)
        limited = bool(principal.scope.collections)
        own_folders = () if limited else await self._database.read(folders.of_account(principal))
        received_folders = await self._database.read(folders.received(principal))
        document = {
            "folders": [own_folder.record for own_folder in own_folders],
            "received": [other.received_record for other in received_folders],
        }
        return responses.unstored_json(document)

    async def share(self, request: Request, principal: Principal) -> Response:
        """Share a folder with an account or a team."""
        draft = FolderShareDraft.of(bodies.parse_object(await request.body()))
        shared = await self._database.write(folders.share(principal, draft))
        await membership.move_all(self._database, principal.account_id, draft.folder)
        return responses.unstored_json(shared.record, 201)

    async def end(self, request: Request) -> Response:
        principal = await self._enter(request)
        share_id = requests.path_value(request, "folder_id")
        folder = await self._database.write(folders.end(principal, share_id))
        await membership.move_all(self._database, principal.account_id, folder)
        return Response(status_code=204)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, small = FolderRoutes(services), services.settings.json_body_bytes
    once = partial(services.idempotency.once, services.authenticator.bearer)
    access = {"GET": rights.MEMORY_READ, "POST": rights.MEMORY_EDIT}
    return (
        RouteEntry(PATH, {"GET": handlers.list, "POST": once(handlers.share)}, small, access=access),
        RouteEntry(f"{PATH}/{{folder_id}}", {"DELETE": handlers.end}, access=rights.MEMORY_WRITE),
    )


def operations() -> dict[str, OperationSpec]:
    return {
        f"GET {PATH}": OperationSpec(
            "Folders that are shared by and with the account",
            {200: openapi.response("Both lists", SharedFoldersSchema)},
            (400,),
        ),
        f"POST {PATH}": OperationSpec(
            "Share a folder of the memory with an account or a team",
            {201: openapi.response("The shared folder", FolderShareSchema)},
            (400, 403, 404, 409),
            NewFolderShareSchema,
            (openapi.IDEMPOTENCY,),
        ),
        f"DELETE {PATH}/{{folder_id}}": OperationSpec(
            "End the share of a folder at once", {204: {"description": "Ended"}}, (403, 404)
        ),
    }
