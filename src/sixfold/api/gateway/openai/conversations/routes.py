"""`/v1/conversations`: conversations that an account stores, with their items.

Source: https://platform.openai.com/docs/api-reference/conversations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses import items as item_forms
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.conversations.conversations import (
    ConversationItem,
    ConversationRecord,
    ConversationStore,
)
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

MAX_ITEMS, MAX_PAGE = 20, 100
_PAGE, _MAX_TEXT = 20, 200
_MAX_PAIRS, _MAX_KEY, _MAX_VALUE, _MAX_TYPE = 16, 64, 512, 64
_ROLES = ("user", "assistant", "system", "developer")
_encode = parsing.encode


class _ItemHead(msgspec.Struct):
    id: str


_item_id = msgspec.json.Decoder(_ItemHead).decode


class ConversationSchema(TypedDict):
    """A conversation, without its items."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversationSchema(TypedDict):
    """A conversation that was deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class ConversationItemSchema(TypedDict):
    """An item of a conversation; further fields depend on its type."""

    id: str
    type: str


class ConversationItemsSchema(list_pages.OpenAIPageSchema):
    """A page of the items of a conversation."""

    data: Sequence[ConversationItemSchema]


class ConversationRoutes:
    """`/v1/conversations` and `/v1/conversations/{conversation_id}/items`."""

    def __init__(self, auth: CachedKeyAuth, store: ConversationStore) -> None:
        self._auth = auth
        self._store = store

    async def create(self, request: Request, principal: Principal) -> Response:
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        items = await _read_items(raw, body) if body.get("items") is not None else ()
        record = await self._store.create(principal.tenant, _metadata(body.get("metadata")), items)
        return responses.json(_conversation(record))

    async def show(self, request: Request) -> Response:
        record = await self._store.get(await self._tenant(request), _id(request))
        return responses.unstored_json(_conversation(record))

    async def update(self, request: Request) -> Response:
        tenant = await self._tenant(request)
        body = await bodies.parse(bodies.parse_object, await request.body())
        if "metadata" not in body:
            raise InvalidRequest("metadata is required", param="metadata")
        record = await self._store.describe(tenant, _id(request), _metadata(body["metadata"]))
        return responses.json(_conversation(record))

    async def delete(self, request: Request) -> Response:
        conversation_id = _id(request)
        await self._store.delete(await self._tenant(request), conversation_id)
        deletion: DeletedConversationSchema = {
            "id": conversation_id,
            "object": "conversation.deleted",
            "deleted": True,
        }
        return responses.json(deletion)

    async def add_items(self, request: Request, principal: Principal) -> Response:
        _check_include(request)
        raw = await request.body()
        items = await _read_items(raw, await bodies.parse(bodies.parse_object, raw))
        if not items:
            raise InvalidRequest("items must have at least one item", param="items")
        added = await self._store.add(principal.tenant, _id(request), items)
        return await _page([item.item for item in added], more=False)

    async def list_items(self, request: Request) -> Response:
        """Return a page of the items, newest first unless `order` is `asc`."""
        tenant = await self._tenant(request)
        _check_include(request)
        size = requests.page_size(request, _PAGE, MAX_PAGE, _MAX_TEXT)
        order = requests.query_choice(request, "order", ("asc", "desc"), _MAX_TEXT) or "desc"
        after = requests.query_text(request, "after", _MAX_TEXT)
        items, more = await self._store.page(tenant, _id(request), after, size, newest_first=order == "desc")
        return await _page(items, more=more)

    async def show_item(self, request: Request) -> Response:
        tenant = await self._tenant(request)
        _check_include(request)
        item = await self._store.item(tenant, _id(request), requests.path_value(request, "item_id"))
        return Response(item, headers=responses.NO_STORE, media_type="application/json")

    async def delete_item(self, request: Request) -> Response:
        tenant = await self._tenant(request)
        item_id = requests.path_value(request, "item_id")
        return responses.json(_conversation(await self._store.delete_item(tenant, _id(request), item_id)))

    async def _tenant(self, request: Request) -> Tenant:
        return (await self._auth.enter(request)).tenant


def build_api(services: WebServices, auth: CachedKeyAuth) -> ApiGroup:
    routes = ConversationRoutes(auth, services.conversations)
    once = partial(services.idempotency.once, auth.enter, error_format=openai_errors.dialect)
    body = services.settings.inline_body_bytes
    path = "/v1/conversations/{conversation_id}"
    item_handlers = {"GET": routes.show, "POST": routes.update, "DELETE": routes.delete}
    items = {"GET": routes.list_items, "POST": once(routes.add_items)}
    item = {"GET": routes.show_item, "DELETE": routes.delete_item}
    return ApiGroup(
        "conversations",
        openai_errors.dialect,
        (
            RouteEntry("/v1/conversations", {"POST": once(routes.create)}, body, access=rights.RUN),
            RouteEntry(path, item_handlers, access=rights.RUN),
            RouteEntry(f"{path}/items", items, body, access=rights.RUN),
            RouteEntry(f"{path}/items/{{item_id}}", item, access=rights.RUN),
        ),
        prefixes=("/v1/conversations",),
    )


def _id(request: Request) -> str:
    return requests.path_value(request, "conversation_id")


def _check_include(request: Request) -> None:
    """Accept `include`, which OpenAI's clients send: items are always returned in full."""
    names = request.query_params.getlist("include[]") + request.query_params.getlist("include")
    if any(len(name) > _MAX_TEXT for name in names):
        raise InvalidRequest(f"include must have at most {_MAX_TEXT} characters", param="include")


def _conversation(record: ConversationRecord) -> ConversationSchema:
    return {
        "id": record.id,
        "object": "conversation",
        "created_at": record.created_at // SECOND_US,
        "metadata": msgspec.json.decode(record.metadata),
    }


async def _page(items: Sequence[str], *, more: bool) -> Response:
    size = sum(map(len, items))
    content = await PARSER.run_large(size, _encoded_page, items, more=more)
    return Response(content, headers=responses.NO_STORE, media_type="application/json")


def _encoded_page(items: Sequence[str], *, more: bool) -> bytes:
    ids = [_item_id(item).id for item in items]
    document = {
        "object": "list",
        "data": [msgspec.Raw(item.encode()) for item in items],
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": more,
    }
    return _encode(document)


def _metadata(value: Any) -> str:
    """Return metadata as JSON; raises `InvalidRequest`."""
    fields = parsing.mapping({} if value is None else value, "metadata")
    if len(fields) > _MAX_PAIRS:
        raise InvalidRequest(
            f"metadata must have at most {_MAX_PAIRS} pairs (got {len(fields)})", param="metadata"
        )
    for name, text in fields.items():
        if not isinstance(text, str) or len(text) > _MAX_VALUE or len(name) > _MAX_KEY:
            raise InvalidRequest(
                f"metadata keys must be at most {_MAX_KEY} characters, and values must be strings of at most "
                f"{_MAX_VALUE} characters",
                param="metadata",
            )
    return _encode(fields).decode()


async def _read_items(raw: bytes, body: Mapping[str, Any]) -> tuple[ConversationItem, ...]:
    return await PARSER.run_large(len(raw), _items, body.get("items"), "items")


def _items(value: Any, param: str) -> tuple[ConversationItem, ...]:
    """Return items in their full form, with new ids; raises `InvalidRequest`."""
    items = parsing.items(value, param)
    if len(items) > MAX_ITEMS:
        raise InvalidRequest(f"{param} must have at most {MAX_ITEMS} items (got {len(items)})", param=param)
    for index, item in enumerate(items):
        _check_item(parsing.mapping(item, f"{param}[{index}]"), f"{param}[{index}]")
    encoded = (msgspec.Raw(_encode(item)) for item in cast("Sequence[Mapping[str, Any]]", items))
    return item_forms.conversation_items(encoded, keep_ids=False)


def _check_item(item: Mapping[str, Any], path: str) -> None:
    kind = item.get("type", "message")
    if not isinstance(kind, str) or not 0 < len(kind) <= _MAX_TYPE:
        raise InvalidRequest(f"{path}.type must be a string of 1 to {_MAX_TYPE} characters", param=path)
    if kind == "item_reference":
        raise InvalidRequest(f"{path} must be an item: a conversation cannot store references", param=path)
    if kind != "message":
        return
    if item.get("role") not in _ROLES:
        raise InvalidRequest(f"{path}.role must be one of {', '.join(_ROLES)}", param=f"{path}.role")
    if not isinstance(item.get("content"), str | list):
        raise InvalidRequest(f"{path}.content must be a string or an array", param=f"{path}.content")
