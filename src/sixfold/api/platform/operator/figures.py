"""`GET /api/operator/figures`: statistics of the last 24 hours, by half hour."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.clock import rfc3339
from sixfold.core.predictions.admin_figures import FigureSlot
from sixfold.web import openapi, responses
from sixfold.web.openapi import OperationSpec
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_PATH = "/api/operator/figures"


class FigureSlotSchema(TypedDict):
    """Half an hour; `queue` is the mean number of waiting runs, and run times are null without a run."""

    start: str | None
    runs: int
    calls: int
    failed: int
    queue: float
    median_seconds: float | None
    p95_seconds: float | None
    earned_usd: str
    earned_by_calls_usd: str
    provider_cost_usd: str


def _slot(slot: FigureSlot) -> FigureSlotSchema:
    return {
        "start": rfc3339(slot.start),
        "runs": slot.runs,
        "calls": slot.calls,
        "failed": slot.failed,
        "queue": round(slot.queue, 3),
        "median_seconds": None if slot.median_us is None else slot.median_us / 1e6,
        "p95_seconds": None if slot.high_us is None else slot.high_us / 1e6,
        "earned_usd": money.format_usd(slot.earned),
        "earned_by_calls_usd": money.format_usd(slot.earned_by_calls),
        "provider_cost_usd": money.format_usd(slot.spent),
    }


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    async def show(request: Request) -> Response:
        await services.authenticator.bearer(request)
        slots = [_slot(slot) for slot in await services.figures.day()]
        return responses.json({"slots": slots}, headers={"Cache-Control": "no-store"})

    return (RouteEntry(_PATH, {"GET": show}, access=rights.OPERATE_READ),)


def operations() -> dict[str, OperationSpec]:
    figures_schema = openapi.shape("Figures", slots=list[FigureSlotSchema])
    return {
        f"GET {_PATH}": OperationSpec(
            "The last 24 hours by half hour", {200: openapi.response("Oldest first", figures_schema)}
        )
    }
