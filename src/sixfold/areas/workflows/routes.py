"""Area F's faces: the spaces, and ComfyUI's server."""

from __future__ import annotations

from sixfold.areas.workflows import comfyui
from sixfold.areas.workflows.catalogue import Catalogue
from sixfold.areas.workflows.importing import Importing
from sixfold.areas.workflows.running import Running
from sixfold.core.graphs.spaces import PATH
from sixfold.web import answers
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
        answers.coded,
        (
            Route(PATH, {"GET": catalogue.page, "POST": importing.take}, large),
            Route(space, {"GET": catalogue.show, "DELETE": importing.remove}),
            Route(f"{space}/download", {"GET": catalogue.download, "HEAD": catalogue.download}),
            Route(f"{space}/graph.svg", {"GET": catalogue.picture}),
            Route(f"{space}/run", {"POST": running.run}, large),
            Route("/api/graph/validate", {"POST": importing.validate}, small),
            Route("/api/graph/diff", {"POST": importing.diff}, small),
        ),
        prefixes=("/api/graph/",),
    )
    return face, comfyui.face(services)
