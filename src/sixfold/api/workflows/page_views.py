"""Workflows for the web pages: listed, drawn and imported."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from sixfold.api.workflows.changes import WorkflowChangeRoutes
from sixfold.api.workflows.imports import WorkflowImportRoutes, parse_name
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.accounts.keys import Principal
from sixfold.core.workflows import missing_nodes
from sixfold.core.workflows.svg import layout
from sixfold.core.workflows.workflows import Workflow
from sixfold.web.services import WebServices


class WorkflowView:
    """The built-in workflows and those of an account; `account_id` is None for anonymous users."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._workflow_list = WorkflowList(services)
        self._importing = WorkflowImportRoutes(services, self._workflow_list)
        self._changes = WorkflowChangeRoutes(services, self._workflow_list, self._importing)

    async def list_page(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """Return the requested page, built-in workflows first, and the cursor of the next page."""
        return await self._workflow_list.list_page(request, account_id)

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        return await self._workflow_list.find(slug, account_id)

    def draw(self, workflow: Workflow, columns: int = layout.MAX_COLUMNS, *, compact: bool = False) -> str:
        """Return the graph as SVG, in at most `columns` columns; compact nodes have titles only."""
        classes = self._services.workflows.classes
        return layout.draw(workflow.graph, classes, workflow.name, columns=columns, compact=compact)

    def sketch(self, workflow: Workflow) -> str:
        """Return a thumbnail of the graph as SVG without embedded styles."""
        return self._workflow_list.sketched(workflow)

    async def missing(self, workflow: Workflow) -> dict[str, dict[str, list[str]]]:
        registry = self._services.workflows.classes
        if not any(str(node.get("class_type")) not in registry for node in workflow.graph.values()):
            return {}
        document = await asyncio.to_thread(missing_nodes.parse, workflow.content)
        return missing_nodes.by_package(workflow.graph, registry, document)

    async def rename(self, principal: Principal, slug: str, name: str, expected: int | None) -> Workflow:
        return await self._changes.rename(principal, slug, parse_name(name), expected)

    async def duplicate(self, principal: Principal, slug: str) -> Workflow:
        return await self._changes.duplicate(principal, slug)

    async def remove(self, principal: Principal, slug: str, expected: int | None) -> None:
        await self._changes.remove(principal, slug, expected)

    async def import_file(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import the workflow in a file; raises `BadRequest`."""
        return await self._importing.import_document(account_id, content, name)
