"""Area F's faces: the spaces, and ComfyUI's server."""

from __future__ import annotations

from sixfold.api.workflows.comfyui import routes as comfyui
from sixfold.api.workflows.imports import Importing
from sixfold.api.workflows.run import Running
from sixfold.api.workflows.workflows_list import Catalogue
from sixfold.core.accounts import rights
from sixfold.core.workflows.workflows import PATH
from sixfold.web import responses
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services


def faces(services: Services) -> tuple[Face, Face]:
    """The catalogue with its runs and imports; and what a ComfyUI client speaks."""
    catalogue = Catalogue(services)
    running, importing = Running(services, catalogue), Importing(services, catalogue)
    small, large = services.settings.json_body_bytes, services.settings.inline_body_bytes
    space = f"{PATH}/{{slug}}"
    face = Face(
        "workflows",
        responses.coded,
        (
            Route(
                PATH,
                {"GET": catalogue.page, "POST": importing.take},
                large,
                access={"GET": rights.PUBLIC, "POST": rights.RUN},
            ),
            Route(
                space,
                {"GET": catalogue.show, "DELETE": importing.remove},
                access={"GET": rights.PUBLIC, "DELETE": rights.RUN},
            ),
            Route(
                f"{space}/download",
                {"GET": catalogue.download, "HEAD": catalogue.download},
                access=rights.PUBLIC,
            ),
            Route(f"{space}/graph.svg", {"GET": catalogue.picture}, access=rights.PUBLIC),
            Route(f"{space}/run", {"POST": running.run}, large, access=rights.RUN),
            Route("/api/graph/validate", {"POST": importing.validate}, small, access=rights.RUN),
            Route("/api/graph/diff", {"POST": importing.diff}, small, access=rights.RUN),
        ),
        prefixes=("/api/graph/",),
    )
    return face, comfyui.face(services)
