"""Import and export of pages as archives."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.memory.schemas import caller_of
from sixfold.core.memory.models import Caller
from sixfold.web import responses, uploads
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.services import WebServices

_ZIP = {"Content-Disposition": 'attachment; filename="memory.zip"', "Cache-Control": "no-store"}


class ImportProblemSchema(TypedDict):
    """A file that was not imported, and the reason."""

    path: str
    error: str


class ImportedSchema(TypedDict):
    """The result of an import."""

    created: int
    updated: int
    skipped: int
    errors: list[ImportProblemSchema]


class MemoryFileRoutes:
    """Handlers that import and export archives of pages."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._folder = services.settings.data_dir / "tmp"

    async def take_in(self, request: Request) -> Response:
        """Import a zip or tar, sent as the raw body or as the part `file` of a form."""
        caller = await caller_of(self._services, request)
        path = await asyncio.to_thread(self._new_path)
        try:
            received = await uploads.receive(request, path)
            idempotent = IdempotentRequest(caller.replays, received.digest, responses.error_response)
            return await self._services.idempotency.run(
                request, idempotent, lambda _: self._import(caller, path)
            )
        except OSError as error:
            raise errors.StoreFailed from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _import(self, caller: Caller, path: Path) -> Response:
        report = await self._services.memory.take_in(caller, path)
        imported: ImportedSchema = {
            "created": report.created,
            "updated": report.updated,
            "skipped": report.skipped,
            "errors": [{"path": name, "error": why} for name, why in report.errors],
        }
        return responses.json(imported)

    async def take_out(self, request: Request) -> Response:
        """Export all pages as a zip of markdown files."""
        caller = await caller_of(self._services, request)
        return StreamingResponse(self._services.memory.take_out(caller), 200, _ZIP, "application/zip")

    def _new_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"import-{secrets.token_hex(16)}"
