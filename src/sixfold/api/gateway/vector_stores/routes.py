"""Routes of `/v1/vector_stores`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.vector_stores import schemas
from sixfold.api.gateway.vector_stores.schemas import (
    ChunkTextSchema,
    DeletedVectorStoreSchema,
    FileContentSchema,
)
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.vector_stores import attributes, stores
from sixfold.core.vector_stores.stores import VectorStoreFilePage
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

PAGE, MAX_PAGE, MAX_TEXT = 20, 100, 200
# The maximum number of chunks of a page of a file's content, and of their characters.
_CHUNKS, _CHUNK_CHARS = 200, 2**20


class VectorStoreRoutes:
    """Handlers of vector stores, their files and their batches."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._auth = auth
        self._stores = services.vector_stores.stores
        self._search = services.vector_stores.search
        self._wake = services.vector_stores.ingestion.wake

    async def create(self, request: Request, principal: Principal) -> Response:
        body = await _body(request)
        details, files = schemas.new_store(body)
        store = await self._stores.create(principal.tenant, details, files)
        self._wake()
        return responses.json(schemas.store(store))

    async def page(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        limit, ascending, bound = list_pages.openai_query(request, PAGE, MAX_PAGE)
        stores = await self._stores.page(principal.tenant, limit + 1, bound, ascending=ascending)
        rows = [schemas.store(store) for store in stores[:limit]]
        return responses.json(list_pages.openai_page(rows, has_more=len(stores) > limit))

    async def show(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        return responses.json(schemas.store(await self._stores.get(principal.tenant, _store(request))))

    async def update(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        body = await _body(request)
        changed = await self._stores.update(principal.tenant, _store(request), schemas.details(body))
        return responses.json(schemas.store(changed))

    async def delete(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        await self._stores.delete(principal.tenant, _store(request))
        deletion: DeletedVectorStoreSchema = {
            "id": _store(request),
            "object": "vector_store.deleted",
            "deleted": True,
        }
        return responses.json(deletion)

    async def search(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        body = await _body(request)
        texts, query = schemas.query(body)
        hits = await self._search.search(principal.tenant, _store(request), query)
        return responses.json(schemas.hits(texts, hits))

    async def add(self, request: Request, principal: Principal) -> Response:
        body = await _body(request)
        spec = schemas.file_spec(body)
        await self._stores.add(principal.tenant, _store(request), [spec])
        self._wake()
        added = await self._stores.file(principal.tenant, _store(request), spec.file_id)
        return responses.json(schemas.file(added))

    async def files(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        return await self._files_page(request, principal)

    async def file(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        return responses.json(
            schemas.file(await self._stores.file(principal.tenant, _store(request), _file(request)))
        )

    async def set_attributes(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        body = await _body(request)
        values = attributes.check(body.get("attributes"))
        changed = await self._stores.set_attributes(principal.tenant, _store(request), _file(request), values)
        return responses.json(schemas.file(changed))

    async def remove(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        await self._stores.remove(principal.tenant, _store(request), _file(request))
        deletion: DeletedVectorStoreSchema = {
            "id": _file(request),
            "object": "vector_store.file.deleted",
            "deleted": True,
        }
        return responses.json(deletion)

    async def content(self, request: Request) -> Response:
        """Return the chunks of a file, a page at a time."""
        principal = await self._auth.enter(request)
        start = requests.query_text(request, "page", MAX_TEXT) or "0"
        if not (start.isascii() and start.isdigit() and len(start) < 9):
            raise InvalidRequest("page must be the value of next_page from the previous page", param="page")
        chunks = await self._stores.chunks(
            principal.tenant, _store(request), _file(request), int(start), _CHUNKS + 1
        )
        rows: list[ChunkTextSchema] = []
        chars = 0
        for _, text in chunks[:_CHUNKS]:
            chars += len(text)
            if rows and chars > _CHUNK_CHARS:
                break
            rows.append({"type": "text", "text": text})
        more = len(chunks) > len(rows)
        content: FileContentSchema = {
            "object": "vector_store.file_content.page",
            "data": rows,
            "has_more": more,
            "next_page": str(chunks[len(rows)][0]) if more else None,
        }
        return responses.json(content)

    async def add_batch(self, request: Request, principal: Principal) -> Response:
        body = await _body(request)
        specs = schemas.batch_specs(body)
        batch_id = await self._stores.add(principal.tenant, _store(request), specs, batch=True)
        self._wake()
        return responses.json(
            schemas.batch(await self._stores.batch(principal.tenant, _store(request), batch_id))
        )

    async def batch(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        batch = await self._stores.batch(principal.tenant, _store(request), _batch(request))
        return responses.json(schemas.batch(batch))

    async def cancel(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        batch = await self._stores.cancel(principal.tenant, _store(request), _batch(request))
        return responses.json(schemas.batch(batch))

    async def batch_files(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        await self._stores.batch(principal.tenant, _store(request), _batch(request))
        return await self._files_page(request, principal, _batch(request))

    async def _files_page(self, request: Request, principal: Principal, batch_id: str = "") -> Response:
        """Return a page of files, newest first unless `order` is asc."""
        limit, ascending, bound = list_pages.openai_query(request, PAGE, MAX_PAGE)
        page = VectorStoreFilePage(limit + 1, bound, ascending, _status(request), batch_id)
        files = await self._stores.files(principal.tenant, _store(request), page)
        rows = [schemas.file(file) for file in files[:limit]]
        return responses.json(list_pages.openai_page(rows, has_more=len(files) > limit))


async def _body(request: Request) -> Mapping[str, Any]:
    raw = await request.body()
    return await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}


def _status(request: Request) -> str:
    return requests.query_choice(request, "filter", stores.STATUSES, MAX_TEXT) or ""


def _store(request: Request) -> str:
    return requests.path_value(request, "vector_store_id")


def _file(request: Request) -> str:
    return requests.path_value(request, "file_id")


def _batch(request: Request) -> str:
    return requests.path_value(request, "file_batch_id")


def build_api(services: WebServices, auth: CachedKeyAuth) -> ApiGroup:
    api, body = VectorStoreRoutes(services, auth), services.settings.json_body_bytes
    once = partial(services.idempotency.once, auth.enter, error_format=openai_errors.dialect)
    store = "/v1/vector_stores/{vector_store_id}"
    routes = {
        "/v1/vector_stores": {"GET": api.page, "POST": once(api.create)},
        store: {"GET": api.show, "POST": api.update, "DELETE": api.delete},
        f"{store}/search": {"POST": api.search},
        f"{store}/files": {"GET": api.files, "POST": once(api.add)},
        f"{store}/files/{{file_id}}": {"GET": api.file, "POST": api.set_attributes, "DELETE": api.remove},
        f"{store}/files/{{file_id}}/content": {"GET": api.content},
        f"{store}/file_batches": {"POST": once(api.add_batch)},
        f"{store}/file_batches/{{file_batch_id}}": {"GET": api.batch},
        f"{store}/file_batches/{{file_batch_id}}/cancel": {"POST": api.cancel},
        f"{store}/file_batches/{{file_batch_id}}/files": {"GET": api.batch_files},
    }
    return ApiGroup(
        "vector_stores",
        openai_errors.dialect,
        tuple(RouteEntry(path, methods, body, access=rights.RUN) for path, methods in routes.items()),
        prefixes=("/v1/vector_stores",),
    )
