"""Operators' deletion of accounts, and removal of posts, characters and shared links of any account."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.platform.account_data import CONFIRMATION, ClosedAccountSchema
from sixfold.api.platform.operator import schemas
from sixfold.api.platform.organization import fields
from sixfold.core import gallery
from sixfold.core.account_data import operation
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.shares import shares
from sixfold.web import openapi, requests, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_ROOT = "/api/operator"
_BODY_BYTES = 16_384
_LINK = "/s/"


class RemovalRoutes(ServiceHandlers):
    """Handlers that delete accounts and remove what they have published."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._read = services.database.read

    async def close(self, request: Request) -> Response:
        """Close an account: disable its keys at once, and erase its data after a grace period."""
        principal, body = await self._fields(request, "confirm")
        account_id = requests.path_value(request, "account_id")
        days, confirmation = self._services.settings.deletion_days, fields.text(body, "confirm")
        erased_at = await self._write(principal, operation.close(principal, account_id, days, confirmation))
        await self._services.account_deletion.sweep()
        document: ClosedAccountSchema = {"account_id": account_id, "erased_at": rfc3339(erased_at)}
        return responses.unstored_json(document, 202)

    async def keep(self, request: Request) -> Response:
        """Cancel the deletion of an account."""
        principal, _body = await self._fields(request)
        account_id = requests.path_value(request, "account_id")
        await self._write(principal, operation.keep(principal, account_id))
        account = await self._read(accounts.by_id(account_id))
        return responses.unstored_json(schemas.of_account(account))

    async def remove_post(self, request: Request) -> Response:
        """Delete a post of any account with its file."""
        principal = await self._enter(request)
        await self._write(principal, gallery.remove_post(principal, requests.path_value(request, "post_id")))
        return Response(status_code=204)

    async def remove_character(self, request: Request) -> Response:
        """Delete a character of any account with its avatar."""
        principal = await self._enter(request)
        character_id = requests.path_value(request, "character_id")
        await self._write(principal, gallery.remove_character(principal, character_id))
        return Response(status_code=204)

    async def end_share(self, request: Request) -> Response:
        """End a shared link of any account. Its token is in the body, because paths are logged."""
        principal, body = await self._fields(request, "url")
        await self._write(principal, shares.withdraw(principal, _token(fields.text(body, "url"))))
        return Response(status_code=204)

    async def _fields(self, request: Request, *names: str) -> tuple[Principal, dict[str, Any]]:
        return await self._enter(request), await fields.of_request(request, *names)


def _token(url: str) -> str:
    """Return the token or id in the URL of a shared link; raises `InvalidInput`."""
    try:
        path = urlsplit(url).path
    except ValueError:
        # The host has invalid brackets.
        path = ""
    if not path.startswith(_LINK):
        raise errors.InvalidInput.of("url", f"url must be a shared link, whose path begins with {_LINK}")
    return path.removeprefix(_LINK).partition("/")[0]


def operations() -> dict[str, OperationSpec]:
    """Return the operations of the OpenAPI document."""
    removed = {204: {"description": "Removed"}}
    account_path = f"{_ROOT}/accounts/{{account_id}}"
    return {
        f"DELETE {account_path}": OperationSpec(
            "Delete an account; `confirm` is its e-mail address or name",
            {202: openapi.response("The time of the deletion", ClosedAccountSchema)},
            (400, 404, 409),
            CONFIRMATION,
        ),
        f"POST {account_path}/keep": OperationSpec(
            "Cancel the deletion of an account",
            {200: openapi.response("The account", schemas.CustomerSchema)},
            (404, 409),
        ),
        f"DELETE {_ROOT}/posts/{{post_id}}": OperationSpec("Remove a post of any account", removed, (404,)),
        f"DELETE {_ROOT}/characters/{{character_id}}": OperationSpec(
            "Remove a character of any account", removed, (404,)
        ),
        f"POST {_ROOT}/shares/end": OperationSpec(
            "End a shared link of any account", removed, (400, 404), openapi.shape("SharedUrl", url=str)
        ),
    }


def routes(handlers: RemovalRoutes) -> tuple[RouteEntry, ...]:
    change = rights.OPERATE_CHANGES
    return tuple(
        RouteEntry(path, {method: handler}, _BODY_BYTES, access=change)
        for path, method, handler in (
            (f"{_ROOT}/accounts/{{account_id}}/keep", "POST", handlers.keep),
            (f"{_ROOT}/posts/{{post_id}}", "DELETE", handlers.remove_post),
            (f"{_ROOT}/characters/{{character_id}}", "DELETE", handlers.remove_character),
            (f"{_ROOT}/shares/end", "POST", handlers.end_share),
        )
    )
