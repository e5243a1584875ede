"""The query parameters of a list: a text, one of some words, a number of rows, a page of own models."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request

from sixfold import errors
from sixfold.core.catalog.custom_models import PAGE, CustomModel, CustomModels

_MAX_OWN_PAGE, _MAX_CURSOR = 200, 200


def text(request: Request, name: str, most: int) -> str:
    """A parameter, empty where it is not there; raises `BadRequest` beyond `most` characters."""
    value = request.query_params.get(name, "")
    if len(value) > most:
        raise errors.BadRequest(f"{name} is too long")
    return value


def word(request: Request, name: str, words: Collection[str], most: int) -> str:
    """A parameter that is one of some words, or empty; raises `BadRequest`."""
    value = text(request, name, most)
    if value and value not in words:
        raise errors.BadRequest(f"{name} must be one of {', '.join(words)}")
    return value


def page_size(request: Request, usual: int, largest: int, most: int) -> int:
    """How many rows a page is to have; raises `BadRequest`."""
    value = text(request, "limit", most) or str(usual)
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= largest):
        raise errors.BadRequest(f"limit must be from 1 to {largest}")
    return int(value)


async def own_models(
    models: CustomModels, request: Request, account_id: str, kind: str = ""
) -> tuple[tuple[CustomModel, ...], str | None]:
    """An account's models behind `cursor`, at most `limit`, and the cursor of the next page.

    Raises `BadRequest`.
    """
    limit = page_size(request, PAGE, _MAX_OWN_PAGE, _MAX_CURSOR)
    return await models.page(account_id, kind, limit, cursor(request))


def cursor(request: Request) -> str:
    """Where a page begins; empty for the first."""
    return text(request, "cursor", _MAX_CURSOR)
