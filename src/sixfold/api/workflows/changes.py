"""Renaming, duplication and deletion of an account's workflows, with checks for concurrent changes."""

from __future__ import annotations

import re

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.workflows.imports import WorkflowImportRoutes, parse_name
from sixfold.api.workflows.workflows_list import KIND, WorkflowList
from sixfold.core.accounts.keys import Principal
from sixfold.core.workflows import workflows
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.workflows import PREFIX, Workflow
from sixfold.web import bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.services import ServiceHandlers, WebServices

_VERSION = re.compile(r'(?:W/)?"(\d{1,9})"')


class WorkflowChangeRoutes(ServiceHandlers):
    """Routes that change an account's workflows; `If-Match` names the version to change."""

    def __init__(
        self, services: WebServices, workflow_list: WorkflowList, importing: WorkflowImportRoutes
    ) -> None:
        super().__init__(services)
        self._models = services.predictions.custom_models
        self._workflow_list = workflow_list
        self._importing = importing

    async def rename_route(self, request: Request) -> Response:
        """Rename a workflow; its slug is unchanged."""
        principal = await self._enter(request)
        body = await bodies.parse(bodies.parse_object, await request.body())
        slug, expected = requests.path_value(request, "slug"), _expected(request)
        space = await self.rename(principal, slug, parse_name(body.get("name")), expected)
        record = {**self._workflow_list.record(space), "success": True}
        return responses.json(record, headers={"ETag": f'"{space.version}"'})

    async def duplicate_route(self, request: Request) -> Response:
        """Copy a built-in workflow, or one of the account, to a new workflow of the account."""
        principal = await self._enter(request)
        raw = await request.body()

        async def work(_idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
            name = "" if body.get("name") is None else parse_name(body["name"])
            space = await self.duplicate(principal, requests.path_value(request, "slug"), name)
            return responses.json({**self._workflow_list.record(space), "success": True}, 201)

        idempotent_request = IdempotentRequest(principal.replays, raw, responses.error_response)
        return await self._services.idempotency.run(request, idempotent_request, work)

    async def remove_route(self, request: Request) -> Response:
        """Delete a workflow of the account."""
        principal = await self._enter(request)
        await self.remove(principal, requests.path_value(request, "slug"), _expected(request))
        return Response(status_code=204)

    async def rename(self, principal: Principal, slug: str, name: str, expected: int | None) -> Workflow:
        """Rename a workflow; raises `NotFound`, `Forbidden` or `PreconditionFailed`."""
        self._require_own(principal, slug)
        custom_model = await self._models.find(PREFIX + slug, principal.account_id)
        models = mapping(custom_model.document["models"])
        document = {
            **custom_model.document,
            "models": {custom_model.name: {**mapping(models[custom_model.name]), "title": name}},
        }
        # Without `If-Match`, replace the version that was read here.
        at_least = custom_model.version if expected is None else expected
        await self._models.put(principal.account_id, KIND, custom_model.name, document, expected=at_least)
        return await self._workflow_list.find(slug, principal.account_id)

    async def duplicate(self, principal: Principal, slug: str, name: str = "") -> Workflow:
        """Copy a workflow under a new slug; raises `NotFound`."""
        principal.require_all_models()
        original = await self._workflow_list.find(slug, principal.account_id)
        name = name or f"{original.name} (copy)"
        free = await self._importing.free_slug(principal.account_id, workflows.slug_of(name) or slug)
        return await self._importing.store(principal.account_id, replace(original, slug=free, name=name))

    async def remove(self, principal: Principal, slug: str, expected: int | None) -> None:
        """Delete a workflow; raises `NotFound`, `Forbidden` or `PreconditionFailed`."""
        self._require_own(principal, slug)
        await self._models.remove(principal.account_id, PREFIX + slug, expected)

    def _require_own(self, principal: Principal, slug: str) -> None:
        principal.require_all_models()
        if slug in self._services.workflows.spaces:
            copy = f"`POST /api/graph/spaces/{slug}/duplicate`"
            raise errors.Forbidden(f"{slug} is built in and cannot be changed: {copy} makes a copy of it")


def _expected(request: Request) -> int | None:
    """Return the version in `If-Match`, or None for every version; raises `BadRequest`."""
    text = request.headers.get("if-match", "*").strip()
    if text == "*":
        return None
    if (match := _VERSION.fullmatch(text)) is None:
        raise errors.BadRequest('If-Match must be one version in quotes, as in "3", or *')
    return int(match[1])
