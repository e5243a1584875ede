"""`/api/account/logging`: the content log of an account, which is off until the account switches it on."""

from __future__ import annotations

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.platform import accounts
from sixfold.core.accounts import rights
from sixfold.core.clock import rfc3339
from sixfold.core.gateway.content_log import storage as contents
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PATH = "/api/account/logging"


class ContentLoggingSchema(TypedDict):
    """The number of days for which contents of calls are logged; 0 disables the log."""

    enabled: bool
    days: int


class LoggedCallSchema(TypedDict):
    """A logged call without its contents."""

    id: str
    key: str | None
    endpoint: str
    model: str
    created_at: str
    expires_at: str


class LoggedContentSchema(LoggedCallSchema):
    """A logged call: the body of its request, and the text of its response."""

    request: str
    response: str


class ContentLogRoutes(ServiceHandlers):
    """Handlers of the content log."""

    async def show(self, request: Request) -> Response:
        principal = await self._enter(request)
        return _setting(await self._services.database.read(contents.days_of(principal.account_id)))

    async def put(self, request: Request) -> Response:
        """Set the number of days for which later calls are logged."""
        principal = await self._enter(request)
        days = bodies.parse_object(await request.body()).get("days")
        if isinstance(days, bool) or not isinstance(days, int):
            raise errors.InvalidInput.of("days", "days must be an integer; 0 disables the log")
        change = contents.set_days(principal.account_id, days)
        await self._write(principal, change)
        return _setting(days)

    async def page(self, request: Request) -> Response:
        """List the logged calls, newest first."""
        principal = await self._enter(request)
        limit, cursor = accounts.page_size(request), request.query_params.get("cursor")
        rows, following = await self._services.database.read(
            contents.page(principal.account_id, limit, cursor)
        )
        calls = [_call(dict(row)) for row in rows]
        return responses.unstored_json({"calls": calls, "next_cursor": following})

    async def get(self, request: Request) -> Response:
        principal = await self._enter(request)
        log = self._services.content_log
        if log is None:
            raise errors.NotConfigured
        row = await log.get(principal.account_id, requests.path_value(request, "request_id"))
        document = {**_call(row), "request": row["request"], "response": row["response"]}
        return responses.unstored_json(document)

    async def clear(self, request: Request) -> Response:
        """Delete all logged calls."""
        principal = await self._enter(request)
        removal = contents.clear(principal.account_id)
        await self._write(principal, removal)
        return Response(status_code=204)


def _setting(days: int) -> Response:
    setting: ContentLoggingSchema = {"enabled": days > 0, "days": days}
    return responses.unstored_json(setting)


def _call(row: dict[str, Any]) -> LoggedCallSchema:
    return {
        "id": row["id"],
        "key": row["key_id"],
        "endpoint": row["face"],
        "model": row["model"],
        "created_at": rfc3339(row["created_at"]),
        "expires_at": rfc3339(row["expires_at"]),
    }


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers = ContentLogRoutes(services)
    small, manage = services.settings.json_body_bytes, rights.OWNER
    return (
        RouteEntry(PATH, {"GET": handlers.show, "PUT": handlers.put}, small, access=manage),
        RouteEntry(f"{PATH}/calls", {"GET": handlers.page, "DELETE": handlers.clear}, small, access=manage),
        RouteEntry(f"{PATH}/calls/{{request_id}}", {"GET": handlers.get}, access=manage),
    )
