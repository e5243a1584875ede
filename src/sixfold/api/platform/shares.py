"""`/api/shares`: links by which anyone can read a run, workflow, chat or page of the memory."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.shares import shares
from sixfold.core.shares.objects import ShareKind
from sixfold.core.shares.shares import ShareDraft
from sixfold.web import bodies, idempotency, openapi, requests, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PATH = "/api/shares"
_PAGE, _MAX_PAGE, _MAX_TEXT = 50, 100, 100


class NewShareSchema(TypedDict):
    """A share to create; `expires_in` is in seconds, or null if the share does not expire."""

    kind: ShareKind
    id: str
    include_inputs: NotRequired[bool]
    public: NotRequired[bool]
    expires_in: NotRequired[int | None]
    team_id: NotRequired[str]


# `with` is a keyword, so these cannot be classes.
_GranteeSchema = TypedDict("_GranteeSchema", {"with": str | None, "team_id": str | None})
_NewGranteeSchema = TypedDict("_NewGranteeSchema", {"with": NotRequired[str]})


class RestrictedShareSchema(NewShareSchema, _NewGranteeSchema):
    """A share to create, optionally for one account or team only."""


class ShareSchema(_GranteeSchema):
    """A share of an object; `public` allows search engines to list it."""

    id: str
    kind: ShareKind
    object_id: str
    title: str
    include_inputs: bool
    public: bool
    views: int
    created_at: str
    expires_at: str | None


class CreatedShareSchema(ShareSchema):
    """A new share with its link, which is not shown again."""

    url: str


class ReceivedShareSchema(CreatedShareSchema):
    """A share that only the account or its team may open, with its owner."""

    owner: str


class ShareRoutes(ServiceHandlers):
    """Handlers of an account's shares."""

    async def page(self, request: Request) -> Response:
        """List the shares that have not expired, newest first."""
        principal = await self._enter(request)
        limit = requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_TEXT)
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        result = await self._services.database.read(shares.page(principal, limit, cursor))
        rows = [share.record for share in result.shares]
        return responses.unstored_json({"shares": rows, "next_cursor": result.next_cursor})

    async def received(self, request: Request) -> Response:
        """List the shares that only the account or the team of the key may open, newest first."""
        principal = await self._enter(request)
        limit = requests.page_size(request, _PAGE, _MAX_PAGE, _MAX_TEXT)
        cursor = requests.query_text(request, "cursor", _MAX_TEXT) or None
        found = await self._services.database.read(shares.received(principal, limit, cursor))
        base = self._services.settings.base_url
        rows = [
            {**share.record, "url": f"{base}{shares.path_of(share.id)}", "owner": owner}
            for share, owner in found[:limit]
        ]
        following = found[limit - 1][0].id if len(found) > limit else None
        return responses.unstored_json({"shares": rows, "next_cursor": following})

    async def create(self, request: Request) -> Response:
        principal = await self._enter(request)
        draft = ShareDraft.of(bodies.parse_object(await request.body()))
        share, token = await self._services.database.write(shares.create(principal, draft))
        link = {"url": f"{self._services.settings.base_url}{shares.path_of(token)}"}
        return responses.unstored_json({**share.record, **link}, 201)

    async def end(self, request: Request) -> Response:
        principal = await self._enter(request)
        share_id = requests.path_value(request, "share_id")
        await self._services.database.write(shares.end(principal, share_id))
        return Response(status_code=204)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, small = ShareRoutes(services), services.settings.json_body_bytes
    create = idempotency.refused(services.authenticator.bearer, handlers.create)
    return (
        RouteEntry(PATH, {"GET": handlers.page, "POST": create}, small, access=rights.RUN),
        RouteEntry(f"{PATH}/received", {"GET": handlers.received}, access=rights.ACCOUNT_READ),
        RouteEntry(f"{PATH}/{{share_id}}", {"DELETE": handlers.end}, access=rights.RUN),
    )


def operations() -> dict[str, OperationSpec]:
    paging = (openapi.limit(_MAX_PAGE, _PAGE), openapi.text("cursor", _MAX_TEXT))
    page = openapi.response("Newest first", openapi.page("Shares", shares=ShareSchema))
    return {
        f"GET {PATH}": OperationSpec("The shares of the account", {200: page}, (400,), parameters=paging),
        f"POST {PATH}": OperationSpec(
            "Share a run, workflow, chat or page of the memory",
            {201: openapi.response("The share and its link", CreatedShareSchema)},
            (400, 403, 404, 409),
            RestrictedShareSchema,
        ),
        f"GET {PATH}/received": OperationSpec(
            "Shares that only the account or its team may open",
            {
                200: openapi.response(
                    "Newest first", openapi.page("ReceivedShares", shares=ReceivedShareSchema)
                )
            },
            (400, 403),
            parameters=paging,
        ),
        f"DELETE {PATH}/{{share_id}}": OperationSpec(
            "End a share at once", {204: {"description": "Ended"}}, (404,)
        ),
    }
