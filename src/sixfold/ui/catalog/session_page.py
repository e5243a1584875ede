"""`/live/{model}`: the page of a live session."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_PROMPTS = {
    "image": "snowy mountains at dawn, a lake between them",
    "json": "walk forward, then wave",
}


class SessionPages:
    """The session page; its script opens the session."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show the page for the sessions of one model."""
        name = requests.path_value(request, "model")
        templates = self._services.templates
        if name not in templates or not templates[name].session:
            raise errors.NotFound(f"{name[:100]} has no live sessions")
        model = self._services.catalog[name]
        return self._pages.render(
            "catalog/session.html",
            user.session,
            model=model,
            hour_micros=templates[name].hour_micros,
            hour=money.format_usd(templates[name].hour_micros),
            free=model.is_waived(self._services.catalog.prices, self._services.predictions.terms),
            prompt=_PROMPTS[model.output_kind],
            example=example_outputs.by_model().get(name),
        )


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the route of the page."""
    return (
        RouteEntry(
            "/live/{model}", {"GET": auth.page(SessionPages(services, pages).show)}, access=rights.RUN
        ),
    )
