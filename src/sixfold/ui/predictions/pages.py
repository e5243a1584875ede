"""`/predictions`: the list of predictions with their durations, and the page of one prediction."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions import provenance
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_PAGE = 40
_MAX_FILTER = 100
_STATES = tuple(str(state) for state in PredictionState)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a duration bar; `x` and `width` are percentages of the longest bar."""

    name: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """A prediction with its duration bar; times are in µs."""

    record: Prediction
    longest: int

    @property
    def queued(self) -> int:
        """Return the time in the queue."""
        return self.record.stations.queued or 0

    @property
    def start(self) -> int:
        """Return the time that the worker took to start."""
        return self.record.stations.cold_start

    @property
    def run(self) -> int:
        """Return the run time."""
        return self.record.stations.run

    @property
    def total(self) -> int:
        """Return the total time."""
        return self.queued + self.start + self.run

    @property
    def segments(self) -> tuple[BarSegment, ...]:
        """Return the segments of the bar in order."""
        segments: list[BarSegment] = []
        at = 0.0
        for name, duration in (("queued", self.queued), ("start", self.start), ("run", self.run)):
            width = 100 * duration / (self.longest or 1)
            segments.append(BarSegment(name, round(at, 2), round(width, 2)))
            at += width
        return tuple(segments)


class PredictionPages:
    """The pages of predictions."""

    def __init__(self, services: WebServices, pages: PageTemplates, output_view: OutputView) -> None:
        self._services = services
        self._pages = pages
        self._output_view = output_view

    async def show_list(self, request: Request, user: PageUser) -> Response:
        """List the user's predictions, newest first."""
        query = request.query_params
        state = query.get("status", "")
        filters = PredictionFilter(query.get("model", "")[:_MAX_FILTER], state if state in _STATES else "")
        cursor = query.get("cursor", "")[:_MAX_FILTER] or None
        predictions, next_cursor = await self._services.predictions.page(user.tenant, filters, _PAGE, cursor)
        longest = max((PredictionRow(each, 1).total for each in predictions), default=1)
        return self._pages.render(
            "predictions/list.html",
            user.session,
            rows=[PredictionRow(each, longest) for each in predictions],
            models=self._services.catalog.names(),
            states=_STATES,
            filters=filters,
            next_cursor=next_cursor,
        )

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
    """Return the routes of the list and the predictions."""
    predictions = PredictionPages(services, pages, output_view)
    show_prediction = auth.page(predictions.show_prediction)
    return (
        RouteEntry("/predictions", {"GET": auth.page(predictions.show_list)}, access=rights.RUN),
        RouteEntry("/predictions/{prediction_id}", {"GET": show_prediction}, access=rights.RUN),
    )
