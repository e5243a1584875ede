"""Workflows for the web pages: listed, drawn and imported."""

from __future__ import annotations

from starlette.requests import Request

from sixfold.api.workflows.imports import WorkflowImportRoutes
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.workflows.workflows import Workflow
from sixfold.web.services import WebServices


class WorkflowView:
    """The built-in workflows and those of an account; `account_id` is None for anonymous users."""

    def __init__(self, services: WebServices) -> None:
        self._workflow_list = WorkflowList(services)
        self._importing = WorkflowImportRoutes(services, self._workflow_list)

    async def list_page(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """Return the requested page, built-in workflows first, and the cursor of the next page."""
        return await self._workflow_list.listed(request, account_id)

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        """Return a workflow; raises `NotFound`."""
        return await self._workflow_list.find(slug, account_id)

    def draw(self, workflow: Workflow) -> str:
        """Return the workflow's graph as SVG."""
        return self._workflow_list.drawn(workflow)

    def sketch(self, workflow: Workflow) -> str:
        """Return a thumbnail of the graph as SVG without a style of its own."""
        return self._workflow_list.sketched(workflow)

    async def import_file(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import the workflow in a file; raises `BadRequest`."""
        return await self._importing.bring(account_id, content, name)
