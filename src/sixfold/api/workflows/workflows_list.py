"""Routes that list and return the built-in workflows and those of the caller's account."""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors, near_names
from sixfold.core.catalog.custom_models import CustomModel
from sixfold.core.workflows import workflows
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.svg import layout, thumbnail
from sixfold.core.workflows.workflows import PREFIX, Workflow
from sixfold.web import requests, responses
from sixfold.web.services import ServiceHandlers, WebServices

# The kind of custom models made from imported workflows.
KIND = "workflow"


class WorkflowList(ServiceHandlers):
    """Finds workflows, lists them, and returns their files and drawings."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._built_in = services.workflows.spaces
        self._base = services.settings.base_url

    async def page(self, request: Request) -> Response:
        """Return a page of workflows: with a key, those that it may use, including the account's."""
        principal = await self._enter_to_run(request)
        workflows, next_cursor = await self.list_page(
            request, principal.account_id if principal is not None else None
        )
        permitted = (
            workflow for workflow in workflows if principal is None or principal.allows(workflow.model)
        )
        rows = await responses.encode_each(self.record(space) for space in permitted)
        more = {} if principal is None else {"next_cursor": next_cursor}
        return responses.json({"spaces": rows, "success": True, **more}, headers=_FRESH)

    async def list_page(self, request: Request, account_id: str | None) -> tuple[list[Workflow], str | None]:
        """Return the requested page without stored bytes, built-in workflows first."""
        records = [] if requests.cursor(request) else list(self._built_in.values())
        if account_id is None:
            return records, None
        own_workflows, following = await requests.own_models(
            self._services.predictions.custom_models, request, account_id, KIND
        )
        return [*records, *(_space(own_workflow) for own_workflow in own_workflows)], following

    async def show(self, request: Request) -> Response:
        space = await self._requested(request)
        etag = {"ETag": f'"{space.version}"'} if space.version else {}
        return responses.json({**self.record(space), "success": True}, headers={**_FRESH, **etag})

    async def download(self, request: Request) -> Response:
        """Return the stored file unchanged."""
        space = await self._requested(request)
        extension = {"image/png": "png", "image/webp": "webp"}.get(space.content_type, "json")
        name = f'attachment; filename="{space.slug}.{extension}"'
        return Response(space.content, 200, {**_FRESH, "Content-Disposition": name}, space.content_type)

    async def graph_image(self, request: Request) -> Response:
        space = await self._requested(request)
        await self._services.workflows.load()
        svg = self.thumbnail(space)
        return Response(svg, 200, {**_FRESH, "Content-Security-Policy": _NO_SCRIPTS}, "image/svg+xml")

    def thumbnail(self, space: Workflow) -> str:
        return layout.draw(space.graph, self._services.workflows.classes, space.name)

    def sketched(self, space: Workflow) -> str:
        """Return a thumbnail of a graph as SVG without embedded styles."""
        return thumbnail.sketch(space.graph, self._services.workflows.classes)

    def record(self, space: Workflow) -> dict[str, Any]:
        """Return a workflow as the API shows it, with absolute URLs."""
        record = space.record
        if record["customNodes"]:
            record["customNodes"] = [self._absolute_url(custom_node) for custom_node in record["customNodes"]]
        record["source"]["url"] = self._absolute_url(record["source"]["url"])
        return record

    def _absolute_url(self, path: str) -> str:
        return self._base + path if path.startswith("/") else path

    async def find(self, slug: str, account_id: str | None) -> Workflow:
        """Return a built-in workflow, or one of an account's; raises `NotFound`."""
        if slug in self._built_in:
            return self._built_in[slug]
        if account_id is None:
            raise self._not_found(slug)
        try:
            return await self._of(
                await self._services.predictions.custom_models.find(PREFIX + slug, account_id)
            )
        except errors.NotFound:
            raise self._not_found(slug) from None

    def _not_found(self, slug: str) -> errors.NotFound:
        near = near_names.question(slug, self._built_in)
        return errors.NotFound(f"Workflow {slug[:100]} not found{near and f'; {near}'}")

    async def _requested(self, request: Request) -> Workflow:
        principal = await self._enter_to_run(request)
        slug = requests.path_value(request, "slug")
        if principal is not None and slug not in self._built_in:
            principal.permit(PREFIX + slug)
        return await self.find(slug, principal.account_id if principal is not None else None)

    async def _of(self, own: CustomModel) -> Workflow:
        file = await self._services.media.find(str(mapping(own.document.get("space"))["media"]))
        content = await self._services.blobs.get(file.blob)
        return replace(_space(own), content=content, content_type=file.content_type)


def _space(own: CustomModel) -> Workflow:
    """Return a custom model as the workflow that was imported, without its stored bytes."""
    metadata = mapping(own.document.get("space"))
    row = mapping(mapping(own.document["models"]).get(own.name))
    fixed = mapping(row.get("fixed"))
    inputs = workflows.api_inputs(fixed.get("api_inputs", ()))
    return Workflow(
        slug=own.name.removeprefix(PREFIX),
        name=str(row["title"]),
        description=str(row["description"]),
        kind=str(metadata["kind"]),
        output_kind=str(row["output_kind"]),
        graph=fixed["graph"],
        content=b"",
        inputs=inputs or None,
        models=tuple(cast("list[dict[str, Any]]", metadata.get("models", []))),
        source=mapping(metadata.get("source")),
        verification=mapping(metadata.get("verification")),
        custom_nodes=tuple(cast("list[str]", metadata.get("custom_nodes", []))),
        parts=tuple(cast("list[str]", row.get("parts") or [])),
        version=own.version,
    )


_FRESH = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
_NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
