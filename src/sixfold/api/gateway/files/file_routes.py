"""Routes that `/v1/files` of OpenAI and of Anthropic have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway.files import intake
from sixfold.api.gateway.files.intake import FileIntake
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.core.accounts.rights import Rights
from sixfold.core.files.files import AccountFile
from sixfold.web import requests, responses
from sixfold.web.services import WebServices


class FileRoutes(ABC):
    """Routes of one file; a subclass renders the documents of its API."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth
        self._intake = FileIntake(services, auth)

    async def show(self, request: Request) -> Response:
        return responses.json(self._document(await self._find(request)))

    async def content(self, request: Request) -> Response:
        """Return a file's bytes."""
        return await intake.content(request, self._services, await self._find(request))

    async def delete(self, request: Request) -> Response:
        principal = await self._auth.enter(request)
        file_id = requests.path_value(request, "file_id")
        writes = principal.has(Rights.MEMORY_WRITE)
        await self._services.files.delete(principal.tenant, file_id, with_memory=writes)
        return responses.json(self._deleted(file_id))

    @abstractmethod
    def _document(self, file: AccountFile) -> Mapping[str, Any]: ...

    @abstractmethod
    def _deleted(self, file_id: str) -> Mapping[str, Any]: ...

    async def _find(self, request: Request) -> AccountFile:
        principal = await self._auth.enter(request)
        file_id, reads = requests.path_value(request, "file_id"), principal.has(Rights.MEMORY_READ)
        return await self._services.files.get(principal.tenant, file_id, with_memory=reads)
