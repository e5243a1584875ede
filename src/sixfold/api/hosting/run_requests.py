"""A checked request becomes an order: on which hardware, in which variant, with which files mounted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from sixfold import errors
from sixfold.api.hosting.schemas import RunRequest
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.models import Model
from sixfold.core.media import mounts
from sixfold.core.predictions.requests import PredictionRequest, PriceQuote
from sixfold.web import requests
from sixfold.web.services import WebServices


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a request comes to: its model, its hardware (None where its price is its own), its variant."""

    model: Model
    hardware: str | None
    variant: str | None


async def terms(services: WebServices, principal: Principal, wanted: RunRequest) -> RunOptions:
    """What a run comes to; raises `NotFound` or `InvalidInput`."""
    model = await services.pipeline.find(wanted.model, principal.account_id)
    if wanted.model in services.templates:
        template = services.templates[wanted.model]
        hire = services.templates.hardware_rate(wanted.model, wanted.hardware)
        return RunOptions(model, hire.hardware, template.variant(wanted.variant))
    if wanted.variant is not None:
        raise errors.InvalidInput.of("variant", f"{wanted.model} has no variants", "extra_forbidden")
    if wanted.hardware is not None and wanted.model in services.catalog:
        raise errors.InvalidInput.of(
            "hardware", f"{wanted.model} has a price of its own and takes no hardware", "extra_forbidden"
        )
    return RunOptions(model, wanted.hardware, None)


def quote(services: WebServices, found: RunOptions, wanted: RunRequest) -> PriceQuote:
    """What it would cost; raises `InvalidInput` or `EngineUnavailable`."""
    stored = mounts.named(found.model, wanted.mounts, wanted.inputs)
    return services.pipeline.quote(found.model, wanted.inputs, hardware=found.hardware, stored=stored)


async def order(
    services: WebServices,
    request: Request,
    principal: Principal,
    wanted: RunRequest,
    *,
    face: str = "hosting",
    idempotency_id: str | None = None,
) -> PredictionRequest:
    """The order; raises what `terms` and `quote` raise."""
    services.outbox.validate(wanted.webhook)
    found = await terms(services, principal, wanted)
    if wanted.mounts:
        quote(services, found, wanted)  # before any file is fetched
    sources = await mounts.sources(
        services.media, principal.tenant, found.model, wanted.mounts, wanted.inputs
    )
    extras: dict[str, Any] = {} if found.variant is None else {"variant": found.variant}
    return PredictionRequest(
        principal=principal,
        model=wanted.model,
        inputs=wanted.inputs,
        face=face,
        request_id=requests.request_id(request),
        idempotency_id=idempotency_id,
        extras=extras,
        hardware=found.hardware,
        webhook=wanted.webhook,
        sources=sources,
    )
