"""Import and export of pages as archives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold.api.memory import schemas
from sixfold.api.memory.schemas import caller_of
from sixfold.core import documents
from sixfold.core.memory import serializers as memory_serializers
from sixfold.core.memory.import_export import document_fields
from sixfold.core.memory.models import Caller
from sixfold.core.temporary_files import temporary_path
from sixfold.web import responses, uploads
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload

_ZIP = {"Content-Disposition": 'attachment; filename="memory.zip"', "Cache-Control": "no-store"}


class MemoryFileRoutes:
    """Handlers that import and export archives of pages."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._folder = services.settings.data_dir / "tmp"

    async def import_archive(self, request: Request) -> Response:
        """Import a zip or tar, sent as the raw body or as the part `file` of a form."""
        caller = await caller_of(self._services, request)

        async def work(upload: ReceivedUpload) -> Response:
            report = await self._services.memory.import_archive(caller, upload.path)
            return responses.json(memory_serializers.import_result(report))

        return await self._received(request, caller, b"", work)

    async def import_documents(self, request: Request) -> Response:
        """Import a document or an archive of documents.

        It is sent as the raw body or as the part `file` of a form; the parameter `name` is its file name.
        """
        caller = await caller_of(self._services, request)
        arguments = schemas.from_query(schemas.DOCUMENT, request)
        options = document_fields.parse(arguments)

        async def work(upload: ReceivedUpload) -> Response:
            name = arguments["name"] or upload.filename or "document"
            if not PurePosixPath(name).suffix:
                name += documents.MEDIA_TYPES.get(upload.claimed_type, "")
            report = await self._services.memory.import_document(caller, upload.path, name, options)
            return responses.json(memory_serializers.imported_documents(report))

        return await self._received(request, caller, request.scope["query_string"], work)

    async def _received(
        self,
        request: Request,
        caller: Caller,
        query: bytes,
        work: Callable[[ReceivedUpload], Awaitable[Response]],
    ) -> Response:
        """Return the response of `work` to the request's file, once per Idempotency-Key."""
        async with temporary_path(self._folder) as path:
            upload = await uploads.receive(request, path)
            idempotent_request = IdempotentRequest(
                caller.replays, upload.digest + query, responses.error_response
            )
            return await self._services.idempotency.run(request, idempotent_request, lambda _: work(upload))

    async def export_archive(self, request: Request) -> Response:
        """Export all pages as a zip of markdown files."""
        caller = await caller_of(self._services, request)
        logseq = schemas.from_query(schemas.EXPORT, request)["format"] == "logseq"
        self._services.admission.export(request, caller.account_id)
        archive = self._services.memory.export_archive(caller, logseq=logseq)
        return StreamingResponse(archive, 200, _ZIP, "application/zip")
