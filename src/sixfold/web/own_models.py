"""The page of an account's own models that a list asks for."""

from __future__ import annotations

from starlette.requests import Request

from sixfold.core.work.own import PAGE, OwnModel
from sixfold.web import queries
from sixfold.web.services import Services

_MAX_PAGE, _MAX_NAME = 200, 200


async def page(
    services: Services, request: Request, account_id: str, kind: str = ""
) -> tuple[tuple[OwnModel, ...], str | None]:
    """The models behind `cursor`, at most `limit`, and the cursor of the next page; raises `BadRequest`."""
    limit = queries.page_size(request, PAGE, _MAX_PAGE, _MAX_NAME)
    return await services.pipeline.own.page(account_id, kind, limit, cursor(request))


def cursor(request: Request) -> str:
    """Where the page begins; empty for the first, which built-in models stand on too."""
    return queries.text(request, "cursor", _MAX_NAME)
