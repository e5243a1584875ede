"""Pages of the list of models, in the forms of OpenAI, Anthropic and Cohere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from sixfold import errors
from sixfold.api.gateway import list_pages
from sixfold.api.gateway.cohere import responses as cohere_responses

# The header and the part of its value by which Cohere's libraries are recognized.
_CLIENT_HEADER, _COHERE = "x-fern-sdk-name", "cohere"
_BOUNDS = frozenset({"limit", "after_id", "before_id"})


def is_cohere(request: Request) -> bool:
    """Return whether one of Cohere's libraries has sent the request."""
    return _COHERE in request.headers.get(_CLIENT_HEADER, "")


def page(request: Request, rows: Sequence[Any]) -> dict[str, Any]:
    """Return the rows that `limit`, `after_id` and `before_id` select: all of them if none is present.

    OpenAI's list has no pages. Raises `BadRequest` for an unknown id or both ids at once.
    """
    page_rows, has_more = rows, False
    if not _BOUNDS.isdisjoint(request.query_params):
        limit, after, before = list_pages.anthropic_query(request)
        ids = [row["id"] for row in rows]
        if (cursor := after or before) and cursor not in ids:
            name = "after_id" if after else "before_id"
            raise errors.BadRequest(f"{name} must be the id of a model (got {cursor[:100]!r})")
        if before:
            page_rows = rows[: ids.index(before)]
            page_rows, has_more = page_rows[-limit:], len(page_rows) > limit
        else:
            page_rows = rows[ids.index(after) + 1 if after else 0 :]
            page_rows, has_more = page_rows[:limit], len(page_rows) > limit
    document = list_pages.openai_page(page_rows, has_more=has_more)
    if is_cohere(request):
        document["models"] = cohere_responses.models(page_rows, request.query_params.get("endpoint"))
    return document


def model(request: Request, row: Any) -> dict[str, Any]:
    """Return one model, for Cohere's libraries also with the fields of their format."""
    if not is_cohere(request):
        return row
    (fields,) = cohere_responses.models([row], None)
    return {**row, "name": fields["name"], "endpoints": fields["endpoints"]}
