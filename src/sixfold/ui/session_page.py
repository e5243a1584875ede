"""`/live/{model}`: a session on a canvas, steered by keys, touch and words."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.ui import specimens
from sixfold.ui.guests import Guest, Guests
from sixfold.ui.pages import Pages
from sixfold.web import calls
from sixfold.web.routing import Route
from sixfold.web.services import Services

_PROMPTS = {
    "image": "snowy mountains at dawn, a lake between them",
    "json": "walk forward, then wave",
}


class Live:
    """The page; its script opens the session."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request, guest: Guest) -> Response:
        """A stage for one model's sessions."""
        name = calls.path_value(request, "model")
        templates = self._services.templates
        if name not in templates or not templates[name].session:
            raise errors.NotFound(f"{name[:100]} has no sessions")
        model = self._services.catalog[name]
        return self._pages.render(
            "live.html",
            guest.session,
            model=model,
            hour=money.format_usd(templates[name].hour_micros),
            free=model.is_waived(self._services.catalog.prices, self._services.pipeline.terms),
            prompt=_PROMPTS[model.output_kind],
            specimen=specimens.known().get(name),
        )


def routes(services: Services, pages: Pages, guests: Guests) -> tuple[Route, ...]:
    """The stage."""
    return (Route("/live/{model}", {"GET": guests.page(Live(services, pages).show)}, access=rights.RUN),)
