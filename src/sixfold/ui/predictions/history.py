"""`/predictions`: the history of an account as a grid of results, by day, with filters and a search."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import rights
from sixfold.core.clock import DAY_US
from sixfold.core.database import now
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions.history import entries
from sixfold.core.predictions.history.entries import HistoryEntry, HistoryFilter, RunHistory
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs
from sixfold.ui.catalog.cards import has_card
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PAGE = 24
_MAX_TEXT = 100
_EPOCH = date(1970, 1, 1)
_KINDS = {
    "": "All",
    "image": "Images",
    "video": "Videos",
    "audio": "Audio",
    "model3d": "3D",
    "text": "Text and data",
    entries.WORKFLOW: "Workflows",
    entries.LIVE: "Live",
}
_STATES = {
    entries.UNFINISHED: "in progress",
    PredictionState.SUCCEEDED: "succeeded",
    PredictionState.FAILED: "failed",
    PredictionState.CANCELED: "canceled",
    PredictionState.EXPIRED: "expired",
}
# The query parameters that links to other filters and pages preserve.
_NAMES = ("q", "kind", "model", "status", "from", "to", "view")


class HistoryDay(msgspec.Struct, frozen=True):
    """The entries of one day."""

    label: str
    date: str
    entries: tuple[HistoryEntry, ...]


class HistoryLinks:
    """Builds links to the history with changes to the current parameters."""

    def __init__(self, current: dict[str, str]) -> None:
        self._current = current

    def __call__(self, **changes: str) -> str:
        """Return the path with these parameters changed, and without empty ones."""
        values = {**self._current, **{name.rstrip("_"): value for name, value in changes.items()}}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/predictions?{query}" if query else "/predictions"


class HistoryPages:
    """The history page, which shows results as a grid."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._history = RunHistory(services.database)

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show a page of the user's runs and sessions, newest first."""
        current = {name: request.query_params.get(name, "")[:_MAX_TEXT] for name in _NAMES}
        current["view"] = "list" if current["view"] == "list" else ""
        filters = _filters(current)
        cursor = request.query_params.get("cursor", "")[:_MAX_TEXT]
        page = await self._history.page(user.tenant, filters, PAGE, cursor)
        today = (await self._services.database.read(now())) // DAY_US
        deleted = count_text(
            *(_count(request.query_params.get(name, "")) for name in ("deleted", "sessions"))
        )
        return self._pages.render(
            "predictions/history.html",
            user.session,
            days=_days(page.entries, today),
            page=page,
            current=current,
            link=HistoryLinks(current),
            kinds=_KINDS,
            states=_STATES,
            models=self._titles(),
            is_filtered=filters != HistoryFilter(),
            deleted=deleted,
            **card_values(),
        )

    def _titles(self) -> dict[str, str]:
        models = [model for model in self._services.catalog.models() if has_card(model)]
        return {model.name: model.title for model in sorted(models, key=lambda each: each.title)}


def count_text(runs: int, sessions: int) -> str:
    """Return the numbers of runs and live sessions in words, without those that are 0."""
    counts = (("run", runs), ("live session", sessions))
    return " and ".join(f"{number} {name}{'s' if number > 1 else ''}" for name, number in counts if number)


def card_values() -> dict[str, Any]:
    """Return the variables of card macros: the examples of models, and the path of files."""
    return {"examples": example_outputs.by_model(), "media": MEDIA_PATH}


def _filters(values: dict[str, str]) -> HistoryFilter:
    state = values["status"]
    return HistoryFilter(
        words=tuple(values["q"].split()),
        kind=values["kind"] if values["kind"] in _KINDS else "",
        model=values["model"],
        state=state if state in _STATES or state in tuple(PredictionState) else "",
        first_day=_day(values["from"]),
        last_day=_day(values["to"]),
    )


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 4 else 0


def _day(text: str) -> int | None:
    """Return the number of days from 1970 to an ISO date, or None for an invalid date."""
    try:
        return max(0, (date.fromisoformat(text) - _EPOCH).days)
    except ValueError:
        return None


def _days(entries: Sequence[HistoryEntry], today: int) -> list[HistoryDay]:
    return [
        HistoryDay(_label(day, today), (_EPOCH + timedelta(days=day)).isoformat(), tuple(group))
        for day, group in groupby(entries, key=lambda entry: entry.day)
    ]


def _label(day: int, today: int) -> str:
    if today - day < 2:
        return "Today" if today == day else "Yesterday"
    moment = datetime.fromtimestamp(day * DAY_US / 1_000_000, UTC)
    return f"{moment:%A} {moment.day} {moment:%B %Y}"


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    show = auth.page(HistoryPages(services, pages).show)
    return (RouteEntry("/predictions", {"GET": show}, access=rights.RUN),)
