"""Pages of lists in the forms of OpenAI and Anthropic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from starlette.requests import Request

from sixfold import errors
from sixfold.web import requests

# The default and the maximum size of a page in Anthropic's form.
PAGE, MAX_PAGE = 20, 1000
MAX_TEXT = 200


class AnthropicPageSchema(TypedDict):
    """A page in Anthropic's form; `data` has the objects."""

    first_id: str | None
    last_id: str | None
    has_more: bool


class OpenAIPageSchema(AnthropicPageSchema):
    """A page in OpenAI's form; `data` has the objects."""

    object: Literal["list"]


def openai_page(rows: Sequence[Mapping[str, object]], *, has_more: bool) -> dict[str, Any]:
    """Return the page with these objects in OpenAI's form."""
    return {"object": "list", **anthropic_page(rows, has_more=has_more)}


def anthropic_page(rows: Sequence[Mapping[str, object]], *, has_more: bool) -> dict[str, Any]:
    """Return the page with these objects in Anthropic's form."""
    first, last = (rows[0]["id"], rows[-1]["id"]) if rows else (None, None)
    return {"data": rows, "first_id": first, "last_id": last, "has_more": has_more}


def openai_query(request: Request, default: int, most: int) -> tuple[int, bool, str]:
    """Return the size of a page up to `most`, whether `order` is asc, and `after`."""
    limit = requests.page_size(request, default, most, MAX_TEXT)
    order = requests.query_choice(request, "order", ("asc", "desc"), MAX_TEXT) or "desc"
    return limit, order == "asc", requests.query_text(request, "after", MAX_TEXT)


def anthropic_query(request: Request) -> tuple[int, str, str]:
    """Return `limit`, `after_id` and `before_id`; raises `BadRequest` for both ids at once."""
    limit = requests.page_size(request, PAGE, MAX_PAGE, MAX_TEXT)
    after = requests.query_text(request, "after_id", MAX_TEXT)
    before = requests.query_text(request, "before_id", MAX_TEXT)
    if after and before:
        raise errors.BadRequest("after_id and before_id cannot be combined")
    return limit, after, before
