"""Request and response schemas of the Hosting API."""

from __future__ import annotations

from collections.abc import Mapping
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
from sixfold.web.responses import IgnoredInputsSchema, ignored_inputs_field

RUN = "/api/containers/run"
JOIN = "/api/containers/{model_id}/queue/join"
DEFAULT_WAIT, MAX_WAIT = 60.0, 600.0


class RunOptionsSchema(TypedDict, total=False):
    """The inputs of a run and its options."""

    input: dict[str, Any]
    hardware: Annotated[str | None, msgspec.Meta(description="hardware other than the template's default")]
    variant: Annotated[str | None, msgspec.Meta(description="one of the template's `modelVariants`")]
    webhook: Annotated[str | None, msgspec.Meta(description="a URL that is called at the start and the end")]
    _artifacts_mounts: Annotated[
        dict[str, str] | None,
        msgspec.Meta(description=f"file names under {mounts.PATH}, each with the id of an upload or a URL"),
    ]


class RunSchema(RunOptionsSchema, total=False):
    """A run of a model, and how many seconds to wait for its end."""

    model: Required[Annotated[str, msgspec.Meta(min_length=1)]]
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)]


class QueueEntrySchema(IgnoredInputsSchema):
    """A run that waits in a queue."""

    prediction_id: str
    status: Status
    queue_position: Annotated[int, msgspec.Meta(ge=0)]
    status_url: str
    cancel_url: str
    events_url: str


class QuoteSchema(ListPriceSchema, IgnoredInputsSchema):
    """The price of a run and its expected time."""

    price_usd: Annotated[str, msgspec.Meta(description="The expected cost, as decimal text")]
    hold_usd: Annotated[str, msgspec.Meta(description="The amount held until the run ends")]
    eta_seconds: Annotated[float, msgspec.Meta(ge=0)]
    cold: Annotated[bool, msgspec.Meta(description="Whether a worker has to start first")]


class RunRequest(msgspec.Struct, frozen=True):
    """The body of a run request, validated. `mounts` maps file names to upload ids or URLs."""

    model: str
    inputs: dict[str, Any]
    wait_seconds: float = 0.0
    hardware: str | None = None
    variant: str | None = None
    webhook: Webhook | None = None
    mounts: Mapping[str, str] = {}


_FIELDS = ("model", "input", "wait", "hardware", "variant", "webhook")


def run_request(body: dict[str, Any], model: str | None = None) -> RunRequest:
    """Parse a request body for the model in the path or body; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    # Treat null like an omitted field. A body may have a hundred thousand others, which are not copied.
    body = {name: body[name] for name in (*_FIELDS, mounts.FIELD) if body.get(name) is not None}
    model_name, inputs, wait = (
        model or body.get("model"),
        body.get("input", {}),
        body.get("wait", DEFAULT_WAIT),
    )
    if not model_name:
        problems.append(errors.Problem("model", "model is required", "missing"))
    elif not isinstance(model_name, str):
        problems.append(errors.Problem("model", "model must be a string", "string_type"))
    if not isinstance(inputs, dict):
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
    run_inputs = cast("dict[str, Any]", inputs)
    mount_value = body.get(mounts.FIELD, run_inputs.pop(mounts.FIELD, None))
    return RunRequest(
        model=str(model_name),
        inputs=run_inputs,
        wait_seconds=float(cast("float", wait)),
        hardware=body.get("hardware") or None,
        variant=body.get("variant") or None,
        webhook=webhook(body.get("webhook")),
        mounts=mounts.parse(mount_value),
    )


def webhook(url: str | None, events: tuple[str, ...] = ("started", "completed")) -> Webhook | None:
    """Return the webhook, or None without a URL; raises `InvalidInput` for an invalid URL."""
    if not url:
        return None
    try:
        return Webhook(urls.parse(url).url, events)
    except errors.FetchRefused as error:
        raise errors.InvalidInput(
            [errors.Problem("webhook", f"webhook: {error.message}", error.code)]
        ) from error


def queue_entry(record: Prediction, position: int) -> QueueEntrySchema:
    path = f"{predictions.PATH}/{record.id}"
    return {
        "prediction_id": record.id,
        "status": predictions.status(record),
        "queue_position": position,
        "status_url": path,
        "cancel_url": f"{path}/cancel",
        "events_url": f"{path}/events",
        **ignored_inputs_field(record.model, record.ignored_inputs),
    }


def quote(price_quote: PriceQuote, run_seconds: float, eta_seconds: float, *, cold: bool) -> QuoteSchema:
    """Return a price with the time of an average run and the time until the end of this one."""
    price, list_price = price_quote.price, price_quote.price.list_micros
    expected = price.micros
    if price.meter == "time":
        usual = -(-price.rate * round(run_seconds * SECOND_US) // HOUR_US)
        expected, list_price = (min(expected, usual), None if list_price is None else min(list_price, usual))
    return {
        "price_usd": money.format_usd(expected),
        **list_price_field(list_price),
        "hold_usd": money.format_usd(price.micros),
        "eta_seconds": eta_seconds,
        "cold": cold,
    }
