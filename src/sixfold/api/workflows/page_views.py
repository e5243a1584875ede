"""The spaces as the pages for people show them: found, drawn, and brought in from a file."""

from __future__ import annotations

from starlette.requests import Request

from sixfold.api.workflows.imports import WorkflowImportRoutes
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.workflows.workflows import Workflow
from sixfold.web.services import WebServices


class WorkflowView:
    """Built-in spaces, and those of the account that looks; `account_id` is None for nobody."""

    def __init__(self, services: WebServices) -> None:
        self._catalogue = WorkflowList(services)
        self._importing = WorkflowImportRoutes(services, self._catalogue)

    async def listed(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """The page that is asked for, the built-in first, and the cursor of the next one."""
        return await self._catalogue.listed(request, account_id)

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        """One of them; raises `NotFound`."""
        return await self._catalogue.find(slug, account_id)

    def drawn(self, space: Workflow) -> str:
        """Its graph in SVG."""
        return self._catalogue.drawn(space)

    def sketched(self, space: Workflow) -> str:
        """Its graph in little, in SVG without a style of its own."""
        return self._catalogue.sketched(space)

    async def bring(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import the workflow that a file is or carries; raises `BadRequest`."""
        return await self._importing.bring(account_id, content, name)
