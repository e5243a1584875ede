"""`/predictions`: the list of predictions with their durations, and the page of one prediction."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.auth import PageUser
from sixfold.ui.predictions import provenance
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.services import WebServices

_PAGE = 40
_MAX_FILTER = 100
_STATES = tuple(str(state) for state in PredictionState)


@dataclass(frozen=True, slots=True)
class ListPart:
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
    def parts(self) -> tuple[ListPart, ...]:
        """Return the segments of the bar in order."""
        found: list[ListPart] = []
        at = 0.0
        for name, took in (("queued", self.queued), ("start", self.start), ("run", self.run)):
            width = 100 * took / (self.longest or 1)
            found.append(ListPart(name, round(at, 2), round(width, 2)))
            at += width
        return tuple(found)


class PredictionPages:
    """The pages of predictions."""

    def __init__(self, services: WebServices, pages: PageTemplates, showing: OutputView) -> None:
        self._services = services
        self._pages = pages
        self._showing = showing

    async def show(self, request: Request, user: PageUser) -> Response:
        """List the user's predictions, newest first."""
        query = request.query_params
        state = query.get("status", "")
        wanted = PredictionFilter(query.get("model", "")[:_MAX_FILTER], state if state in _STATES else "")
        cursor = query.get("cursor", "")[:_MAX_FILTER] or None
        found, following = await self._services.predictions.page(user.tenant, wanted, _PAGE, cursor)
        longest = max((PredictionRow(each, 1).total for each in found), default=1)
        return self._pages.render(
            "predictions/list.html",
            user.session,
            rows=[PredictionRow(each, longest) for each in found],
            models=sorted(model.name for model in self._services.catalog.models()),
            states=_STATES,
            wanted=wanted,
            following=following,
        )

    async def one(self, request: Request, user: PageUser) -> Response:
        """Show a prediction with its output, receipt and lineage."""
        prediction_id = requests.path_value(request, "prediction_id")
        found = await self._services.predictions.get(prediction_id, user.tenant)
        kin = await self._services.database.read(lineage.get(found))
        same = [
            (other, equal or await provenance.alike(self._services, found, other))
            for other, equal in kin.same
        ]
        return self._pages.render(
            "predictions/prediction.html",
            user.session,
            kin=kin,
            same=same,
            media=MEDIA_PATH,
            **self._showing.values(found),
        )
