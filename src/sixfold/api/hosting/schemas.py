"""Area E's own shapes: what a run may be asked with, and what whoever joins a queue is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Required, TypedDict, cast

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.prices import ListPriceSchema, list_price_field
from sixfold.core.clock import HOUR_US, SECOND_US
from sixfold.core.media import mounts
from sixfold.core.predictions.models import Prediction, Webhook
from sixfold.core.predictions.requests import PriceQuote
from sixfold.net import urls
from sixfold.web import predictions
from sixfold.web.predictions import Status

RUN = "/api/containers/run"
JOIN = "/api/containers/{model_id}/queue/join"
DEFAULT_WAIT, MAX_WAIT = 60.0, 600.0


class RunOptionsSchema(TypedDict, total=False):
    """The inputs of a run, and how it is done."""

    input: dict[str, Any]
    hardware: Annotated[str | None, msgspec.Meta(description="other hardware than the template's own")]
    variant: Annotated[str | None, msgspec.Meta(description="one of the template's `modelVariants`")]
    webhook: Annotated[str | None, msgspec.Meta(description="a URL that is told of the start and the end")]
    _artifacts_mounts: Annotated[
        dict[str, str] | None,
        msgspec.Meta(description=f"file names under {mounts.PATH}, each with the id of an upload or a URL"),
    ]


class RunSchema(RunOptionsSchema, total=False):
    """A run of a model, and how many seconds to wait for its end."""

    model: Required[Annotated[str, msgspec.Meta(min_length=1)]]
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)]


class JoinedSchema(TypedDict):
    """A run that waits in a queue."""

    prediction_id: str
    status: Status
    queue_position: Annotated[int, msgspec.Meta(ge=0)]
    status_url: str
    cancel_url: str
    events_url: str


class QuoteSchema(ListPriceSchema):
    """What a run would cost, and when it would be done."""

    price_usd: Annotated[str, msgspec.Meta(description="What a usual run costs, as decimal text")]
    hold_usd: Annotated[str, msgspec.Meta(description="What is held until it ends")]
    eta_seconds: Annotated[float, msgspec.Meta(ge=0)]
    cold: Annotated[bool, msgspec.Meta(description="Whether a worker has to start first")]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The body of a run, checked as far as this face goes. `mounts` are file names and what lies behind."""

    model: str
    inputs: dict[str, Any]
    wait_seconds: float = 0.0
    hardware: str | None = None
    variant: str | None = None
    webhook: Webhook | None = None
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])


def run_request(body: dict[str, Any], model: str | None = None) -> RunRequest:
    """A run's body, for a model that the path names or the body; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    body = {name: value for name, value in body.items() if value is not None}  # null: as if it were not there
    named, given, wait = model or body.get("model"), body.get("input", {}), body.get("wait", DEFAULT_WAIT)
    if not isinstance(named, str) or not named:
        problems.append(errors.Problem("model", "model is required", "missing"))
    if not isinstance(given, dict):
        problems.append(errors.Problem("input", "input must be an object", "dict_type"))
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_WAIT:
        problems.append(
            errors.Problem("wait", f"wait must be from 0 to {MAX_WAIT:g} seconds", "out_of_range")
        )
    for name in ("hardware", "variant", "webhook"):
        if not isinstance(body.get(name), str | None):
            problems.append(errors.Problem(name, f"{name} must be a string", "string_type"))
    if problems:
        raise errors.InvalidInput(problems)
    inputs = cast("dict[str, Any]", given)
    mounted = body.get(mounts.FIELD, inputs.get(mounts.FIELD))
    return RunRequest(
        model=str(named),
        inputs={name: value for name, value in inputs.items() if name != mounts.FIELD},
        wait_seconds=float(cast("float", wait)),
        hardware=body.get("hardware") or None,
        variant=body.get("variant") or None,
        webhook=webhook(body.get("webhook")),
        mounts=mounts.parse(mounted),
    )


def webhook(url: str | None, events: tuple[str, ...] = ("started", "completed")) -> Webhook | None:
    """Whom to tell, where somebody is named; raises `InvalidInput` for what is no URL of the web."""
    if not url:
        return None
    try:
        return Webhook(urls.parse(url).url, events)
    except errors.FetchRefused as error:
        raise errors.InvalidInput(
            [errors.Problem("webhook", f"webhook: {error.message}", error.code)]
        ) from error


def joined(record: Prediction, position: int) -> JoinedSchema:
    """What whoever joins a queue is told."""
    own = f"{predictions.PATH}/{record.id}"
    return {
        "prediction_id": record.id,
        "status": predictions.status(record),
        "queue_position": position,
        "status_url": own,
        "cancel_url": f"{own}/cancel",
        "events_url": f"{own}/events",
    }


def quote(quoted: PriceQuote, run_seconds: float, eta_seconds: float, *, cold: bool) -> QuoteSchema:
    """What a run would cost, what would be held for it, and when it would be done."""
    price, listed = quoted.price, quoted.price.list_micros
    expected = price.micros
    if price.meter == "time":
        usual = -(-price.rate * round(run_seconds * SECOND_US) // HOUR_US)
        expected, listed = min(expected, usual), None if listed is None else min(listed, usual)
    return {
        "price_usd": money.format_usd(expected),
        **list_price_field(listed),
        "hold_usd": money.format_usd(price.micros),
        "eta_seconds": eta_seconds,
        "cold": cold,
    }
