"""OpenAPI descriptions of the routes of vector stores."""

from __future__ import annotations

from sixfold.api.gateway.openai.errors import OpenAIErrorSchema
from sixfold.api.gateway.vector_stores import routes, schemas
from sixfold.core.vector_stores import attributes, chunking, stores
from sixfold.web import openapi
from sixfold.web.openapi import Node, OperationSpec, Shape, Text

_STATUSES = (400, 401, 403, 404, 409, 413, 429, 503)
_ID: Node = {"type": "string", "minLength": 1}
_VALUES: Node = {
    "type": "object",
    "maxProperties": attributes.MAX_ATTRIBUTES,
    "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": attributes.TEXT_CHARS},
}
_EXPIRY: Node = {
    "type": "object",
    "required": ["anchor", "days"],
    "properties": {
        "anchor": {"const": "last_active_at"},
        "days": {"type": "integer", "minimum": 1, "maximum": schemas.MAX_DAYS},
    },
}
_STATIC: Node = {
    "type": "object",
    "required": ["max_chunk_size_tokens", "chunk_overlap_tokens"],
    "properties": {
        "max_chunk_size_tokens": {
            "type": "integer",
            "minimum": chunking.MIN_TOKENS,
            "maximum": chunking.MAX_TOKENS,
        },
        "chunk_overlap_tokens": {"type": "integer", "minimum": 0, "description": "at most half a chunk"},
    },
}
_CHUNKING: Node = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["auto", "static"]}, "static": _STATIC},
}
_FILE_IDS: Node = {"type": "array", "items": _ID, "minItems": 1, "maxItems": schemas.MAX_FILES}
_NAME: Node = {"type": "string", "maxLength": schemas.NAME_CHARS}
_DETAILS: Node = {"name": _NAME, "description": _NAME, "metadata": _VALUES, "expires_after": _EXPIRY}
_FILE: Node = {"file_id": _ID, "attributes": _VALUES, "chunking_strategy": _CHUNKING}
_PAGING = (
    openapi.limit(routes.MAX_PAGE),
    openapi.query("order", {"enum": ["asc", "desc"]}),
    openapi.text("after", routes.MAX_TEXT),
)
_FILTER = openapi.query("filter", {"enum": list(stores.STATUSES)})


def operations() -> dict[str, OperationSpec]:
    """Return the operations of `/v1/vector_stores`."""
    store, deleted = schemas.VectorStoreSchema, schemas.DeletedVectorStoreSchema
    file, files, batch = (
        schemas.VectorStoreFileSchema,
        schemas.VectorStoreFilesSchema,
        schemas.VectorStoreBatchSchema,
    )
    path = "/v1/vector_stores"
    item_path = f"{path}/{{vector_store_id}}"
    a_file, a_batch = f"{item_path}/files/{{file_id}}", f"{item_path}/file_batches/{{file_batch_id}}"
    new: Node = {**_DETAILS, "file_ids": _FILE_IDS, "chunking_strategy": _CHUNKING}
    rows: Node = {
        "type": "array",
        "items": _object(_FILE, "file_id"),
        "minItems": 1,
        "maxItems": schemas.MAX_FILES,
    }
    many: Node = {"file_ids": _FILE_IDS, "files": rows, "attributes": _VALUES, "chunking_strategy": _CHUNKING}
    page = openapi.text("page", routes.MAX_TEXT)
    return {
        f"POST {path}": _operation("Create a vector store", store, _object(new), openapi.IDEMPOTENCY),
        f"GET {path}": _operation("List vector stores", schemas.VectorStoresSchema, None, *_PAGING),
        f"GET {item_path}": _operation("Get a vector store", store),
        f"POST {item_path}": _operation("Change a vector store", store, _object(_DETAILS)),
        f"DELETE {item_path}": _operation("Delete a vector store", deleted),
        f"POST {item_path}/search": _operation("Search a vector store", schemas.ChunkHitsSchema, _query()),
        f"POST {item_path}/files": _operation(
            "Add a file", file, _object(_FILE, "file_id"), openapi.IDEMPOTENCY
        ),
        f"GET {item_path}/files": _operation(
            "List the files of a vector store", files, None, *_PAGING, _FILTER
        ),
        f"GET {a_file}": _operation("Get a file of a vector store", file),
        f"POST {a_file}": _operation(
            "Replace the attributes of a file", file, _object({"attributes": _VALUES})
        ),
        f"DELETE {a_file}": _operation("Remove a file", deleted),
        f"GET {a_file}/content": _operation(
            "Get the chunks of a file", schemas.FileContentSchema, None, page
        ),
        f"POST {item_path}/file_batches": _operation(
            "Add a batch of files", batch, _object(many), openapi.IDEMPOTENCY
        ),
        f"GET {a_batch}": _operation("Get a batch", batch),
        f"POST {a_batch}/cancel": _operation("Cancel a batch", batch),
        f"GET {a_batch}/files": _operation("List the files of a batch", files, None, *_PAGING, _FILTER),
    }


def _query() -> Node:
    texts: Node = {"type": "string", "minLength": 1, "maxLength": schemas.QUERY_CHARS}
    properties: Node = {
        "query": {"anyOf": [texts, {"type": "array", "items": texts, "maxItems": schemas.MAX_QUERIES}]},
        "max_num_results": {"type": "integer", "minimum": 1, "maximum": schemas.MAX_RESULTS},
        "filters": {"type": "object", "description": "a comparison, or `and` and `or` of filters"},
        "ranking_options": {
            "type": "object",
            "properties": {"ranker": Text, "score_threshold": {"type": "number", "minimum": 0, "maximum": 1}},
        },
        "rewrite_query": {"type": "boolean", "description": "has no effect"},
    }
    return _object(properties, "query")


def _object(properties: Node, *required: str) -> Node:
    return {"type": "object", "required": list(required), "properties": properties}


def _operation(summary: str, shape: Shape, body: Node | None = None, *parameters: Node) -> OperationSpec:
    return OperationSpec(
        summary, {200: openapi.response(summary, shape)}, _STATUSES, body, parameters, error=OpenAIErrorSchema
    )
