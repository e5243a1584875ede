"""The OpenAPI document of the Memory API."""

from __future__ import annotations

from sixfold.api.memory import facts, folders, schemas
from sixfold.core import documents
from sixfold.core.memory import serializers as memory_serializers
from sixfold.core.memory.facts.requests import (
    MemoryAnswerSchema,
    MemoryBatches,
    RememberResultSchema,
    UndoResultSchema,
)
from sixfold.core.memory.operation_schema import Operation
from sixfold.core.memory.search.context import ContextSchema
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec, Shape

_IF_MATCH: Node = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "Change it only at this version",
    "schema": {"type": "string", "pattern": '^"[0-9]{1,15}"$'},
}
_ETAG: Node = {"ETag": {"schema": {"type": "string"}, "description": "The version, for If-Match"}}
_WRITING = (400, 402, 404, 409, 412)
_AS_OF = schemas.fields(schemas.AS_OF)
_ARCHIVES = ("application/zip", "application/x-tar", "application/gzip")
_LINKS = openapi.page("Links", links=memory_serializers.LinkSchema)
_TIMELINE = openapi.page("Timeline", timeline=memory_serializers.TimelineEntrySchema)
_TAGS = openapi.page("PageTags", tags=str)
_VERSIONS: Node = {
    "anyOf": [
        openapi.page("Versions", versions=memory_serializers.VersionSchema),
        memory_serializers.PageVersionSchema,
        memory_serializers.ChangeSchema,
    ]
}
_DELETED = openapi.shape("DeletedPage", slug=str, deleted=bool, version=int)


def _page(text: str) -> Node:
    return openapi.response(text, memory_serializers.PageSchema, headers=_ETAG)


def _query(operation: Operation) -> tuple[Node, ...]:
    return tuple(
        openapi.query(field.name, field.schema(), required=field.required) for field in operation.fields
    )


def _get(summary: str, shape: Shape, operation: Operation, *statuses: int) -> OperationSpec:
    response = openapi.response(summary, shape)
    return OperationSpec(summary, {200: response}, (400, 404, *statuses), parameters=_query(operation))


def _write(summary: str, body: Operation, responses: dict[int, Node], *parameters: Node) -> OperationSpec:
    return OperationSpec(summary, responses, _WRITING, body.schema(), (_IF_MATCH, *parameters))


def document() -> OpenApiDocument:
    """Return the document: pages, links, timelines, search and files."""
    return OpenApiDocument(
        "Sixfold Memory",
        "1.0.0",
        "A durable memory for agents and people: markdown pages with links, timelines and versions.",
        {**_pages(), **_facts(), **_parts(), **_lists(), **folders.operations()},
    )


def _pages() -> dict[str, OperationSpec]:
    page_response, new = _page("The page"), _page("A new page")
    moved = _page("The page has another slug now, in Location")
    deleted = openapi.response("Deleted; its versions remain", _DELETED)
    page = openapi.page("Pages", pages=memory_serializers.PageOfListSchema)
    key = openapi.IDEMPOTENCY
    return {
        "POST /api/context": OperationSpec(
            "What the memory knows about a question, within a number of tokens",
            {200: openapi.response("Excerpts, marked as data, and their pages", ContextSchema)},
            (400, 503),
            schemas.CONTEXT.schema(),
        ),
        "POST /api/search": OperationSpec(
            "Search",
            {200: openapi.response("Best first", memory_serializers.FoundSchema)},
            (400, 503),
            schemas.SEARCH.schema(),
        ),
        "GET /api/pages": _get("List pages", page, schemas.LIST),
        "POST /api/pages": OperationSpec(
            "Create a page", {201: new}, _WRITING, schemas.NEW_PAGE.schema(), (key,)
        ),
        "GET /api/pages/{slug}": OperationSpec(
            "One page", {200: page_response, 308: moved}, (400, 404), parameters=_query(_AS_OF)
        ),
        "PUT /api/pages/{slug}": _write(
            "Create or replace a page", schemas.PAGE, {200: page_response, 201: new}
        ),
        "PATCH /api/pages/{slug}": _write("Change a part of a page", schemas.PATCH, {200: page_response}),
        "DELETE /api/pages/{slug}": OperationSpec(
            "Delete a page", {200: deleted}, (400, 404, 412), parameters=(_IF_MATCH,)
        ),
        "POST /api/versions/{slug}": _write("Restore a version", schemas.RESTORE, {200: page_response}, key),
    }


def _facts() -> dict[str, OperationSpec]:
    return {
        "POST /api/remember": OperationSpec(
            "Write the facts of a conversation or document on pages",
            {200: openapi.response("What was written, and what was not", RememberResultSchema)},
            (400, 402, 403, 409, 429, 502, 503),
            facts.REMEMBER.schema(),
            (openapi.IDEMPOTENCY,),
        ),
        "GET /api/remember": _get("List the batches of remember", MemoryBatches, facts.BATCHES),
        "POST /api/remember/undo": OperationSpec(
            "Undo a batch of remember",
            {200: openapi.response("The pages", UndoResultSchema)},
            (400, 402, 403, 404, 409),
            facts.UNDO.schema(),
        ),
        "POST /api/answer": OperationSpec(
            "Answer a question from pages",
            {200: openapi.response("Sentences with the pages that they cite", MemoryAnswerSchema)},
            (400, 402, 403, 429, 502, 503),
            facts.ANSWER.schema(),
            (openapi.IDEMPOTENCY,),
        ),
    }


def _parts() -> dict[str, OperationSpec]:
    links, added = openapi.response("The links", _LINKS), openapi.response("The entries", _TIMELINE)
    tags, key = openapi.response("The tags", _TAGS), openapi.IDEMPOTENCY
    backlinks = openapi.page("Backlinks", backlinks=memory_serializers.BacklinkSchema)
    return {
        "GET /api/versions/{slug}": _get("Versions of a page", _VERSIONS, schemas.VERSIONS),
        "GET /api/links/{slug}": _get("Links of a page", _LINKS, schemas.LINKS),
        "POST /api/links/{slug}": _write("Add a link", schemas.LINK, {201: links}, key),
        "DELETE /api/links/{slug}": OperationSpec(
            "Remove a link", {200: links}, _WRITING, None, (_IF_MATCH, *_query(schemas.UNLINK))
        ),
        "GET /api/backlinks/{slug}": _get("What leads to a page", backlinks, schemas.PARTS),
        "GET /api/traverse/{slug}": _get("Pages around one", memory_serializers.WalkSchema, schemas.TRAVERSE),
        "GET /api/timeline/{slug}": _get("What happened around a page", _TIMELINE, schemas.PARTS),
        "POST /api/timeline/{slug}": _write("Add an entry", schemas.ENTRY, {201: added}, key),
        "GET /api/tags/{slug}": _get("Tags of a page", _TAGS, _AS_OF),
        "POST /api/tags/{slug}": _write("Add tags", schemas.TAGS, {200: tags}, key),
        "DELETE /api/tags/{slug}": _write("Remove tags", schemas.TAGS, {200: tags}),
    }


def _lists() -> dict[str, OperationSpec]:
    """Return the operations that count tags, collections and types, and those for archives."""
    form: Node = {"type": "object", "required": ["file"], "properties": {"file": openapi.CONTENT}}
    counts = {
        f"GET /api/{noun}": _get(
            f"Count {noun}",
            openapi.page(noun.title(), **{noun: memory_serializers.CountSchema}),
            schemas.COUNTS,
        )
        for noun in ("tags", "collections", "types")
    }
    return {
        **counts,
        "POST /api/import": OperationSpec(
            "Import an archive of markdown files",
            {200: openapi.response("The result of the import", memory_serializers.ImportResultSchema)},
            (400, 402, 409, 503),
            parameters=(openapi.IDEMPOTENCY,),
            bodies={"multipart/form-data": form, **dict.fromkeys(_ARCHIVES, openapi.CONTENT)},
        ),
        "POST /api/documents": OperationSpec(
            "Import a document, or an archive of documents and markdown files",
            {
                200: openapi.response(
                    "The result of the import", memory_serializers.DocumentImportResultSchema
                )
            },
            (400, 402, 409, 503),
            parameters=(openapi.IDEMPOTENCY, *_query(schemas.DOCUMENT)),
            bodies={
                "multipart/form-data": form,
                **dict.fromkeys((*documents.MEDIA_TYPES, *_ARCHIVES), openapi.CONTENT),
            },
        ),
        "GET /api/export": OperationSpec(
            "Export every page",
            {200: openapi.response("A zip of markdown files", openapi.FILE, "application/zip")},
            (400,),
            parameters=_query(schemas.EXPORT),
        ),
    }
