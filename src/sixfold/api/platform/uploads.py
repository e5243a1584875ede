"""Uploads, counted against the quota of the account."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.media.media import MEDIA_PATH
from sixfold.web import responses, uploads
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.responses import Url
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload


class UploadSchema(TypedDict):
    """A file that can be an input of a model."""

    url: Url
    id: str
    media_type: str
    bytes: Annotated[int, msgspec.Meta(ge=1)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class UploadRoutes:
    """Handlers for uploads."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._folder = services.settings.data_dir / "tmp"

    async def take(self, request: Request) -> Response:
        """Store a file, whose URL can be an input of any model."""
        principal = await self._services.authenticator.bearer(request)
        path = await asyncio.to_thread(self._new_path)
        try:
            received = await uploads.receive(request, path)
            idempotent = IdempotentRequest(principal.replays, received.digest, responses.error_response)

            async def work(_idempotency_id: str | None) -> Response:
                return await self._keep(principal, received)

            return await self._services.idempotency.run(request, idempotent, work)
        except OSError as error:
            raise errors.StoreFailed from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def _new_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"upload-{secrets.token_hex(16)}"

    async def _keep(self, principal: Principal, received: ReceivedUpload) -> Response:
        media = self._services.media
        upload = await media.upload(principal.tenant, received.path, received.content_type)
        result: UploadSchema = {
            "url": f"{self._services.settings.base_url}{MEDIA_PATH}{upload.name}",
            "id": upload.id,
            "media_type": upload.content_type,
            "bytes": upload.size,
            "sha256": upload.sha256,
        }
        return responses.json(result, 201)
