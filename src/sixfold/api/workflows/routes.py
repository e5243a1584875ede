"""Area F's faces: the spaces, and ComfyUI's server."""

from __future__ import annotations

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
    """The catalogue with its runs and imports; and what a ComfyUI client speaks."""
    catalogue = WorkflowList(services)
    running, importing = WorkflowRunRoutes(services, catalogue), WorkflowImportRoutes(services, catalogue)
    small, large = services.settings.json_body_bytes, services.settings.inline_body_bytes
    space = f"{PATH}/{{slug}}"
    face = ApiGroup(
        "workflows",
        responses.error_response,
        (
            RouteEntry(
                PATH,
                {"GET": catalogue.page, "POST": importing.take},
                large,
                access={"GET": rights.PUBLIC, "POST": rights.RUN},
            ),
            RouteEntry(
                space,
                {"GET": catalogue.show, "DELETE": importing.remove},
                access={"GET": rights.PUBLIC, "DELETE": rights.RUN},
            ),
            RouteEntry(
                f"{space}/download",
                {"GET": catalogue.download, "HEAD": catalogue.download},
                access=rights.PUBLIC,
            ),
            RouteEntry(f"{space}/graph.svg", {"GET": catalogue.picture}, access=rights.PUBLIC),
            RouteEntry(f"{space}/run", {"POST": running.run}, large, access=rights.RUN),
            RouteEntry("/api/graph/validate", {"POST": importing.validate}, small, access=rights.RUN),
            RouteEntry("/api/graph/diff", {"POST": importing.diff}, small, access=rights.RUN),
        ),
        prefixes=("/api/graph/",),
    )
    return face, comfyui.build_api(services)
