"""The routes of the Workflows API and of the ComfyUI-compatible API."""

from __future__ import annotations

from sixfold.api.workflows.changes import WorkflowChangeRoutes
from sixfold.api.workflows.comfyui import routes as comfyui
from sixfold.api.workflows.imports import WorkflowImportRoutes
from sixfold.api.workflows.run import WorkflowRunRoutes
from sixfold.api.workflows.workflows_list import WorkflowList
from sixfold.core.accounts import rights
from sixfold.core.workflows.workflows import PATH
from sixfold.web import responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices


def build_apis(services: WebServices) -> tuple[ApiGroup, ApiGroup]:
    """Return the routes of the Workflows API, and those of the ComfyUI-compatible API."""
    workflows = WorkflowList(services)
    running, importing = (WorkflowRunRoutes(services, workflows), WorkflowImportRoutes(services, workflows))
    changes = WorkflowChangeRoutes(services, workflows, importing)
    small, large = services.settings.json_body_bytes, services.settings.inline_body_bytes
    space = f"{PATH}/{{slug}}"
    group = ApiGroup(
        "workflows",
        responses.error_response,
        (
            RouteEntry(
                PATH,
                {"GET": workflows.page, "POST": importing.take},
                large,
                access={"GET": rights.PUBLIC, "POST": rights.RUN},
            ),
            RouteEntry(
                space,
                {"GET": workflows.show, "PATCH": changes.rename_route, "DELETE": changes.remove_route},
                small,
                access={
                    "GET": rights.PUBLIC,
                    "PATCH": rights.RUN_ACCOUNT_READ,
                    "DELETE": rights.RUN_ACCOUNT_READ,
                },
            ),
            RouteEntry(f"{space}/duplicate", {"POST": changes.duplicate_route}, small, access=rights.RUN),
            RouteEntry(
                f"{space}/download",
                {"GET": workflows.download, "HEAD": workflows.download},
                access=rights.PUBLIC,
            ),
            RouteEntry(f"{space}/graph.svg", {"GET": workflows.graph_image}, access=rights.PUBLIC),
            RouteEntry(f"{space}/run", {"POST": running.run}, large, access=rights.RUN),
            RouteEntry("/api/graph/validate", {"POST": importing.validate}, small, access=rights.RUN),
            RouteEntry("/api/graph/diff", {"POST": importing.diff}, small, access=rights.RUN),
        ),
        prefixes=("/api/graph/",),
    )
    return group, comfyui.build_api(services)
