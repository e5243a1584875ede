"""`/predictions/{id}`: the page of one run with its result, receipt and lineage."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions import provenance
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices


class PredictionPages:
    """The page of a run."""

    def __init__(self, services: WebServices, pages: PageTemplates, output_view: OutputView) -> None:
        self._services = services
        self._pages = pages
        self._output_view = output_view

    async def show_prediction(self, request: Request, user: PageUser) -> Response:
        """Show a prediction with its output, receipt and lineage."""
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.get(prediction_id, user.tenant)
        related = await self._services.database.read(lineage.get(prediction))
        repeats = [
            (other, equal or await provenance.has_same_output(self._services, prediction, other))
            for other, equal in (related.same if prediction.state is PredictionState.SUCCEEDED else ())
        ]
        return self._pages.render(
            "predictions/prediction.html",
            user.session,
            related=related,
            repeats=repeats,
            media=MEDIA_PATH,
            **self._output_view.values(prediction),
        )


def routes(
    services: WebServices, pages: PageTemplates, output_view: OutputView, auth: PageAuth
) -> tuple[RouteEntry, ...]:
    predictions = PredictionPages(services, pages, output_view)
    show_prediction = auth.page(predictions.show_prediction)
    return (RouteEntry("/predictions/{prediction_id}", {"GET": show_prediction}, access=rights.RUN),)
