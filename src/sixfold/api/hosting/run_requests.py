"""Turns a validated request into a prediction request: hardware, variant and mounted files."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.api.hosting.schemas import RunRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.models import Model
from sixfold.core.media import mounts
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote
from sixfold.web import requests
from sixfold.web.services import WebServices


class RunOptions(msgspec.Struct, frozen=True):
    """The model of a run, its hardware (None if the model has a fixed price) and its variant."""

    model: Model
    hardware: str | None
    variant: str | None


async def terms(services: WebServices, principal: Principal, run: RunRequest) -> RunOptions:
    """Return the options of a run; raises `NotFound` or `InvalidInput`."""
    model = await services.predictions.find(run.model, principal.account_id)
    if run.model in services.templates:
        template = services.templates[run.model]
        rate = services.templates.hardware_rate(run.model, run.hardware)
        return RunOptions(model, rate.hardware, template.variant(run.variant))
    if run.variant is not None:
        raise errors.InvalidInput.of("variant", f"{run.model} does not have variants", "extra_forbidden")
    if run.hardware is not None and run.model in services.catalog:
        raise errors.InvalidInput.of(
            "hardware", f"{run.model} has a fixed price and does not accept hardware", "extra_forbidden"
        )
    return RunOptions(model, run.hardware, None)


async def quote(services: WebServices, options: RunOptions, run: RunRequest) -> PriceQuote:
    """Return the price of a run; raises `InvalidInput` or `EngineUnavailable`."""
    stored = mounts.mounted_inputs(options.model, run.mounts, run.inputs)
    prepared = await services.predictions.prepare(options.model, run.inputs, charged=True)
    return services.predictions.quote(options.model, prepared, hardware=options.hardware, stored=stored)


async def prediction_request(
    services: WebServices,
    request: Request,
    principal: Principal,
    run: RunRequest,
    *,
    face: str = "hosting",
    idempotency_id: str | None = None,
) -> PredictionRequest:
    """Return the prediction request; raises `NotFound`, `InvalidInput` or `EngineUnavailable`."""
    services.outbox.validate(run.webhook)
    options = await terms(services, principal, run)
    if run.mounts:
        # Price the run before any file is downloaded.
        await quote(services, options, run)
    sources = await mounts.sources(services.media, principal.tenant, options.model, run.mounts, run.inputs)
    extras: dict[str, Any] = {} if options.variant is None else {"variant": options.variant}
    return PredictionRequest(
        principal=principal,
        model=run.model,
        inputs=run.inputs,
        face=face,
        request_id=requests.request_id(request),
        idempotency_id=idempotency_id,
        extras=extras,
        hardware=options.hardware,
        webhook=run.webhook,
        sources=sources,
    )
