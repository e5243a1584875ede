"""Routes of files: the header `anthropic-version` selects Anthropic's format."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.files.anthropic_files import AnthropicFileRoutes
from sixfold.api.gateway.files.openai_files import OpenAIFileRoutes
from sixfold.api.gateway.files.uploads import UploadInPartsRoutes
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.core.accounts import rights
from sixfold.web.routing import ApiGroup, Handler, RouteEntry
from sixfold.web.services import WebServices

_HEADER = "anthropic-version"


def build_api(services: WebServices, auth: CachedKeyAuth) -> ApiGroup:
    """Return the routes of `/v1/files` and `/v1/uploads`."""
    openai, anthropic = OpenAIFileRoutes(services, auth), AnthropicFileRoutes(services, auth)
    uploads = UploadInPartsRoutes(services, auth)
    once = partial(services.idempotency.once, auth.enter, error_format=openai_errors.dialect)
    body = services.settings.upload_body_bytes
    json_body = services.settings.json_body_bytes
    collection = {
        "GET": _by_header(openai.page, anthropic.page),
        "POST": _by_header(openai.create, anthropic.create),
    }
    file = {
        "GET": _by_header(openai.show, anthropic.show),
        "DELETE": _by_header(openai.delete, anthropic.delete),
    }
    content = {"GET": _by_header(openai.content, anthropic.content)}
    return ApiGroup(
        "files",
        openai_errors.dialect,
        (
            RouteEntry("/v1/files", collection, body, access=rights.RUN),
            RouteEntry("/v1/files/{file_id}", file, access=rights.RUN),
            RouteEntry("/v1/files/{file_id}/content", content, access=rights.RUN),
            RouteEntry("/v1/uploads", {"POST": once(uploads.create)}, json_body, access=rights.RUN),
            RouteEntry("/v1/uploads/{upload_id}/parts", {"POST": uploads.add}, body, access=rights.RUN),
            RouteEntry(
                "/v1/uploads/{upload_id}/complete",
                {"POST": once(uploads.complete)},
                json_body,
                access=rights.RUN,
            ),
            RouteEntry("/v1/uploads/{upload_id}/cancel", {"POST": uploads.cancel}, access=rights.RUN),
        ),
        prefixes=("/v1/files", "/v1/uploads"),
        variants={_HEADER.encode(): anthropic_errors.dialect},
    )


def _by_header(openai: Handler, anthropic: Handler) -> Handler:
    async def handle(request: Request) -> Response:
        return await (anthropic if _HEADER in request.headers else openai)(request)

    return handle
