"""Import of archives and Markdown files, and export of all pages as a zip."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from sixfold import errors
from sixfold.core import documents
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.memory import slugs
from sixfold.core.memory.commands import WriteTerms
from sixfold.core.memory.import_export import archives
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ImportReport
from sixfold.core.memory.import_export.documents import ARCHIVES, DocumentOptions
from sixfold.core.memory.import_export.paths import ENDINGS
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.temporary_files import temporary_path
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.memory.markdown import page_path
from sixfold.ui.templating import PageTemplates
from sixfold.web import bodies, multipart, requests
from sixfold.web.files import REVALIDATE_PRIVATE, ServedFile, serve
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER

_FORM_ERRORS = (
    errors.BadRequest,
    errors.Conflict,
    errors.EngineUnavailable,
    errors.Forbidden,
    errors.InsufficientCredits,
    errors.TooLarge,
)
_ZIP = {"Content-Disposition": 'attachment; filename="memory.zip"', "Cache-Control": "no-store"}


class MemoryFilePages:
    """The import and export pages."""

    def __init__(self, services: WebServices, templates: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._memory = services.memory
        self._pages = templates
        self._auth = auth
        self._folder = services.settings.data_dir / "tmp"

    async def form(self, request: Request, user: PageUser) -> Response:
        return self._render(user)

    async def import_file(self, request: Request, user: PageUser) -> Response:
        """Import an archive, or one Markdown file as a new page."""
        if bodies.media_type(request) != "multipart/form-data":
            raise errors.UnsupportedMedia("The request must be a multipart form with a file")
        async with multipart.form(request, max_files=1, max_fields=4) as form:
            csrf, file = form.get("csrf"), form.get("file")
            token = csrf if isinstance(csrf, str) else request.headers.get(CSRF_HEADER)
            self._auth.check_csrf(request, user, token)
            if not isinstance(file, UploadFile) or not file.filename:
                return self._render(user, problem="Choose a file first", status=400)
            return await self._import(user, file)

    async def _import(self, user: PageUser, file: UploadFile) -> Response:
        try:
            if (file.filename or "").lower().endswith(ENDINGS):
                return await self._import_page(user, file)
            return self._render(user, report=await self._import_file(user, file))
        except _FORM_ERRORS as error:
            return self._render(user, problem=error.message, status=error.status)

    async def _import_page(self, user: PageUser, file: UploadFile) -> Response:
        name = Path(file.filename or "").name
        slug = slugs.loosely(Path(name).stem)
        if slug is None:
            raise errors.BadRequest("The file name must have at least one letter or digit")
        raw = await file.read(self._services.settings.memory_page_bytes + 1)
        try:
            text = archives.decoded_page(raw).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise errors.BadRequest("The file is not UTF-8 text") from error
        page_write = PageWrite(slug, text, whole=True, path=import_export_files.origin(name, slug))
        saved_page = await self._memory.write(user.caller, page_write, WriteTerms())
        return RedirectResponse(page_path(saved_page.page.slug), 303)

    async def _import_file(self, user: PageUser, file: UploadFile) -> ImportReport:
        """Import an archive of pages, or one document."""
        async with temporary_path(self._folder) as path:
            await asyncio.to_thread(_save, file.file, path)
            name = file.filename or ""
            if documents.kind_of(name) or archives.is_attachment(name) or name.lower().endswith(ARCHIVES):
                return await self._memory.import_document(user.caller, path, name, DocumentOptions())
            return await self._memory.import_archive(user.caller, path)

    async def show_file(self, request: Request, user: PageUser) -> Response:
        file = await self._memory.attachment(user.caller, requests.path_value(request, "slug"))
        tag = digest_of(file.blob)
        response = await serve(
            request,
            ServedFile(
                self._services.files.blobs, file.blob, file.size, file.content_type, tag, REVALIDATE_PRIVATE
            ),
        )
        # A page at another port of this host, which gets the cookie, could see that a file exists.
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    async def export(self, request: Request, user: PageUser) -> Response:
        """Stream all pages as a zip of Markdown files."""
        self._services.admission.export(request, user.caller.account_id)
        return StreamingResponse(self._memory.export_archive(user.caller), 200, _ZIP, "application/zip")

    def _render(
        self, user: PageUser, *, problem: str = "", report: ImportReport | None = None, status: int = 200
    ) -> Response:
        return self._pages.render(
            "memory/import.html", user.session, status=status, user=user, problem=problem, report=report
        )


def _save(source: BinaryIO, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)
