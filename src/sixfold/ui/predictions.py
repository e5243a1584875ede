"""`/predictions`: what was asked for, how long each station took, and one prediction whole."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import Filter
from sixfold.core.predictions.states import State
from sixfold.ui import provenance
from sixfold.ui.guests import Guest
from sixfold.ui.pages import Pages
from sixfold.ui.prediction_view import Showing
from sixfold.web import calls
from sixfold.web.services import Services

_PAGE = 40
_MAX_FILTER = 100
_STATES = tuple(str(state) for state in State)


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a bar, in hundredths of the longest."""

    name: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """A prediction and its bar; times in µs."""

    record: Prediction
    longest: int

    @property
    def queued(self) -> int:
        """How long it waited."""
        return self.record.stations.queued or 0

    @property
    def start(self) -> int:
        """How long its worker took to start."""
        return self.record.stations.cold_start

    @property
    def run(self) -> int:
        """How long it ran."""
        return self.record.stations.run

    @property
    def total(self) -> int:
        """All three."""
        return self.queued + self.start + self.run

    @property
    def parts(self) -> tuple[Part, ...]:
        """The bar's stretches, one after another."""
        found: list[Part] = []
        at = 0.0
        for name, took in (("queued", self.queued), ("start", self.start), ("run", self.run)):
            width = 100 * took / (self.longest or 1)
            found.append(Part(name, round(at, 2), round(width, 2)))
            at += width
        return tuple(found)


class Predictions:
    """The history, and one of it."""

    def __init__(self, services: Services, pages: Pages, showing: Showing) -> None:
        self._services = services
        self._pages = pages
        self._showing = showing

    async def show(self, request: Request, guest: Guest) -> Response:
        """The guest's predictions, newest first."""
        query = request.query_params
        state = query.get("status", "")
        wanted = Filter(query.get("model", "")[:_MAX_FILTER], state if state in _STATES else "")
        cursor = query.get("cursor", "")[:_MAX_FILTER] or None
        found, following = await self._services.pipeline.page(guest.tenant, wanted, _PAGE, cursor)
        longest = max((Row(each, 1).total for each in found), default=1)
        return self._pages.render(
            "predictions.html",
            guest.session,
            rows=[Row(each, longest) for each in found],
            models=sorted(model.name for model in self._services.catalog.models()),
            states=_STATES,
            wanted=wanted,
            following=following,
        )

    async def one(self, request: Request, guest: Guest) -> Response:
        """One prediction, its output and its receipt."""
        prediction_id = calls.path_value(request, "prediction_id")
        found = await self._services.pipeline.get(prediction_id, guest.tenant)
        kin = await self._services.database.read(lineage.of(found))
        same = [
            (other, equal or await provenance.alike(self._services, found, other))
            for other, equal in kin.same
        ]
        return self._pages.render(
            "prediction.html",
            guest.session,
            kin=kin,
            same=same,
            media=MEDIA_PATH,
            **self._showing.values(found),
        )
