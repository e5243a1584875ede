"""Requests and responses of OpenAI's Vector Stores API.

Source: https://platform.openai.com/docs/api-reference/vector-stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from sixfold.api.gateway import list_pages
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.vector_stores import attributes as file_attributes
from sixfold.core.vector_stores import chunking
from sixfold.core.vector_stores.search import ChunkHit, ChunkQuery
from sixfold.core.vector_stores.stores import (
    VectorStore,
    VectorStoreBatch,
    VectorStoreDetails,
    VectorStoreFile,
    VectorStoreFileSpec,
)

MAX_FILES, MAX_RESULTS, MAX_DAYS = 500, 50, 365
NAME_CHARS, QUERY_CHARS, MAX_QUERIES = 256, 4096, 10
_RANKERS = ("auto", "default-2024-11-15", "none")
_SECOND_US = 1_000_000
Status = Literal["in_progress", "completed", "failed", "cancelled"]


class FileCountsSchema(TypedDict):
    """The numbers of files by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class ExpiresAfterSchema(TypedDict):
    """The expiration policy of a vector store."""

    anchor: Literal["last_active_at"]
    days: int


class VectorStoreSchema(TypedDict):
    """A vector store."""

    id: str
    object: Literal["vector_store"]
    created_at: int
    name: str
    description: str
    usage_bytes: int
    file_counts: FileCountsSchema
    status: Literal["expired", "in_progress", "completed"]
    expires_after: ExpiresAfterSchema | None
    expires_at: int | None
    last_active_at: int
    metadata: dict[str, Any]


class VectorStoreErrorSchema(TypedDict):
    """Error of a file that could not be read."""

    code: str
    message: str


class VectorStoreFileSchema(TypedDict):
    """A file of a vector store."""

    id: str
    object: Literal["vector_store.file"]
    usage_bytes: int
    created_at: int
    vector_store_id: str
    status: Status
    last_error: VectorStoreErrorSchema | None
    chunking_strategy: dict[str, Any]
    attributes: dict[str, Any]


class VectorStoreBatchSchema(TypedDict):
    """A batch of files of a vector store."""

    id: str
    object: Literal["vector_store.files_batch"]
    created_at: int
    vector_store_id: str
    status: Status
    file_counts: FileCountsSchema


class VectorStoresSchema(list_pages.OpenAIPageSchema):
    """A page of vector stores."""

    data: Sequence[VectorStoreSchema]


class VectorStoreFilesSchema(list_pages.OpenAIPageSchema):
    """A page of files of a vector store."""

    data: Sequence[VectorStoreFileSchema]


class ChunkTextSchema(TypedDict):
    """The text of a chunk."""

    type: Literal["text"]
    text: str


class ChunkHitSchema(TypedDict):
    """A result of a search."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, Any]
    content: Sequence[ChunkTextSchema]


class ChunkHitsSchema(TypedDict):
    """The results of a search."""

    object: Literal["vector_store.search_results.page"]
    search_query: Sequence[str]
    data: Sequence[ChunkHitSchema]
    has_more: bool
    next_page: str | None


class FileContentSchema(TypedDict):
    """The chunks of a file."""

    object: Literal["vector_store.file_content.page"]
    data: Sequence[ChunkTextSchema]
    has_more: bool
    next_page: str | None


class DeletedVectorStoreSchema(TypedDict):
    """A deleted vector store, or a file that was removed from one."""

    id: str
    object: Literal["vector_store.deleted", "vector_store.file.deleted"]
    deleted: Literal[True]


def store(record: VectorStore) -> VectorStoreSchema:
    """Return a store in OpenAI's format."""
    days, expires_at = record.details.expires_days, record.expires_at
    status = "in_progress" if record.counts["in_progress"] else "completed"
    return {
        "id": record.id,
        "object": "vector_store",
        "created_at": record.created_at // _SECOND_US,
        "name": record.details.name,
        "description": record.details.description,
        "usage_bytes": record.bytes,
        "file_counts": _counts(record.counts),
        "status": "expired" if record.expired else status,
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": None if expires_at is None else expires_at // _SECOND_US,
        "last_active_at": record.last_active_at // _SECOND_US,
        "metadata": dict(record.details.metadata),
    }


def file(record: VectorStoreFile) -> VectorStoreFileSchema:
    """Return a file in OpenAI's format."""
    static = {"max_chunk_size_tokens": record.max_tokens, "chunk_overlap_tokens": record.overlap}
    return {
        "id": record.file_id,
        "object": "vector_store.file",
        "usage_bytes": record.bytes,
        "created_at": record.created_at // _SECOND_US,
        "vector_store_id": record.store_id,
        "status": record.status,  # pyright: ignore[reportReturnType] # one of the four, as the table checks
        "last_error": {"code": record.error_code, "message": record.error} if record.error_code else None,
        "chunking_strategy": {"type": "static", "static": static},
        "attributes": dict(record.attributes),
    }


def batch(record: VectorStoreBatch) -> VectorStoreBatchSchema:
    """Return a batch in OpenAI's format."""
    return {
        "id": record.id,
        "object": "vector_store.files_batch",
        "created_at": record.created_at // _SECOND_US,
        "vector_store_id": record.store_id,
        "status": record.status,  # pyright: ignore[reportReturnType] # one of the four
        "file_counts": _counts(record.counts),
    }


def hits(queries: Sequence[str], chunk_hits: Sequence[ChunkHit]) -> ChunkHitsSchema:
    """Return the results of a search in OpenAI's format."""
    rows: list[ChunkHitSchema] = [
        {
            "file_id": hit.file_id,
            "filename": hit.filename,
            "score": hit.score,
            "attributes": dict(hit.attributes),
            "content": [{"type": "text", "text": hit.text}],
        }
        for hit in chunk_hits
    ]
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(queries),
        "data": rows,
        "has_more": False,
        "next_page": None,
    }


def _counts(counts: Mapping[str, int]) -> FileCountsSchema:
    return {
        "in_progress": counts["in_progress"],
        "completed": counts["completed"],
        "failed": counts["failed"],
        "cancelled": counts["cancelled"],
        "total": sum(counts.values()),
    }


def details(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a store that a request names; raises `InvalidRequest`."""
    fields: dict[str, Any] = {}
    for name in ("name", "description"):
        if name in body:
            fields[name] = _text(body, name, NAME_CHARS)
    if "metadata" in body:
        fields["metadata"] = file_attributes.check(body["metadata"], "metadata")
    if "expires_after" in body:
        fields["expires_days"] = _days(body["expires_after"])
    return fields


def new_store(body: Mapping[str, Any]) -> tuple[VectorStoreDetails, list[VectorStoreFileSpec]]:
    """Return the details and the files of a new store; raises `InvalidRequest`."""
    chunks = _chunking(body.get("chunking_strategy"))
    ids = body.get("file_ids")
    files = [] if ids is None else [VectorStoreFileSpec(each, {}, *chunks) for each in _ids(ids)]
    return VectorStoreDetails(**details(body)), files


def file_spec(body: Mapping[str, Any]) -> VectorStoreFileSpec:
    """Return a file to add; raises `InvalidRequest`."""
    chunks = _chunking(body.get("chunking_strategy"))
    return VectorStoreFileSpec(
        _id(body.get("file_id")), file_attributes.check(body.get("attributes")), *chunks
    )


def batch_specs(body: Mapping[str, Any]) -> list[VectorStoreFileSpec]:
    """Return the files of a batch; raises `InvalidRequest`."""
    if (body.get("files") is None) == (body.get("file_ids") is None):
        raise InvalidRequest("file_ids and files cannot be combined: send only one of them", param="file_ids")
    if body.get("files") is not None:
        rows = parsing.items(body["files"], "files")
        if not 0 < len(rows) <= MAX_FILES:
            raise InvalidRequest(f"files must have 1 to {MAX_FILES} entries", param="files")
        return [file_spec(parsing.mapping(row, "files")) for row in rows]
    chunks, shared = _chunking(body.get("chunking_strategy")), file_attributes.check(body.get("attributes"))
    return [VectorStoreFileSpec(each, shared, *chunks) for each in _ids(body["file_ids"])]


def query(body: Mapping[str, Any]) -> tuple[list[str], ChunkQuery]:
    """Return the texts of a query, and the search options; raises `InvalidRequest`."""
    value = body.get("query")
    texts = [value] if isinstance(value, str) else list(parsing.items(value, "query"))
    if not 0 < len(texts) <= MAX_QUERIES or not all(
        isinstance(text, str) and 0 < len(text) <= QUERY_CHARS for text in texts
    ):
        message = f"query must be a string of 1 to {QUERY_CHARS} characters, or a list of 1 to {MAX_QUERIES}"
        raise InvalidRequest(message, param="query")
    limit = _integer(body, "max_num_results", 10, 1, MAX_RESULTS)
    options = parsing.mapping(body.get("ranking_options") or {}, "ranking_options")
    if options.get("ranker", "auto") not in _RANKERS:
        raise InvalidRequest(f"ranker must be one of {', '.join(_RANKERS)}", param="ranking_options.ranker")
    threshold = parsing.number(options, "score_threshold") or 0.0
    if not 0 <= threshold <= 1:
        raise InvalidRequest("score_threshold must be from 0 to 1", param="ranking_options.score_threshold")
    keep = file_attributes.parse_filter(body.get("filters"))
    return texts, ChunkQuery(" ".join(texts), limit, threshold, keep)


def _chunking(value: Any) -> tuple[int, int]:
    strategy = parsing.mapping(value or {"type": "auto"}, "chunking_strategy")
    if strategy.get("type") == "auto":
        return chunking.DEFAULT_TOKENS, chunking.DEFAULT_OVERLAP
    if strategy.get("type") != "static":
        raise InvalidRequest("chunking_strategy.type must be auto or static", param="chunking_strategy.type")
    static = parsing.mapping(strategy.get("static"), "chunking_strategy.static")
    size = _integer(static, "max_chunk_size_tokens", None, chunking.MIN_TOKENS, chunking.MAX_TOKENS)
    return size, _integer(static, "chunk_overlap_tokens", None, 0, size // 2)


def _days(value: Any) -> int | None:
    if value is None:
        return None
    policy = parsing.mapping(value, "expires_after")
    if policy.get("anchor") != "last_active_at":
        raise InvalidRequest("expires_after.anchor must be last_active_at", param="expires_after.anchor")
    return _integer(policy, "days", None, 1, MAX_DAYS)


def _integer(body: Mapping[str, Any], name: str, default: int | None, low: int, high: int) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be an integer from {low} to {high}", param=name)
    return value


def _text(body: Mapping[str, Any], name: str, max_chars: int) -> str:
    value = body[name]
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > max_chars or "\0" in value:
        raise InvalidRequest(f"{name} must be a string of at most {max_chars} characters", param=name)
    return value


def _ids(value: Any) -> list[str]:
    rows = parsing.items(value, "file_ids")
    if len(rows) > MAX_FILES:
        raise InvalidRequest(f"file_ids must have at most {MAX_FILES} ids", param="file_ids")
    return list(dict.fromkeys(map(_id, rows)))


def _id(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest("file_id must be the id of a file", param="file_id")
    return value
