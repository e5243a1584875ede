"""Routes of the batch APIs of OpenAI and Anthropic."""

from __future__ import annotations

from functools import partial

from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.batches.anthropic_batches import AnthropicBatchRoutes
from sixfold.api.gateway.batches.openai_batches import OpenAIBatchRoutes
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.core.accounts import rights
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices


def build_apis(services: WebServices, auth: CachedKeyAuth) -> tuple[ApiGroup, ApiGroup]:
    """Return the routes of `/v1/batches` and `/v1/messages/batches`."""
    openai, anthropic = OpenAIBatchRoutes(services, auth), AnthropicBatchRoutes(services, auth)
    body = services.settings.inline_body_bytes
    run, once = rights.RUN, partial(services.idempotency.once, auth.enter)
    return (
        ApiGroup(
            "batches",
            openai_errors.dialect,
            (
                RouteEntry(
                    "/v1/batches",
                    {"GET": openai.page, "POST": once(openai.create, openai_errors.dialect)},
                    services.settings.json_body_bytes,
                    access=run,
                ),
                RouteEntry("/v1/batches/{batch_id}", {"GET": openai.show}, access=run),
                RouteEntry("/v1/batches/{batch_id}/cancel", {"POST": openai.cancel}, access=run),
            ),
            prefixes=("/v1/batches",),
        ),
        ApiGroup(
            "message-batches",
            anthropic_errors.dialect,
            (
                RouteEntry(
                    "/v1/messages/batches",
                    {"GET": anthropic.page, "POST": once(anthropic.create, anthropic_errors.dialect)},
                    body,
                    access=run,
                ),
                RouteEntry(
                    "/v1/messages/batches/{batch_id}",
                    {"GET": anthropic.show, "DELETE": anthropic.delete},
                    access=run,
                ),
                RouteEntry("/v1/messages/batches/{batch_id}/cancel", {"POST": anthropic.cancel}, access=run),
                RouteEntry("/v1/messages/batches/{batch_id}/results", {"GET": anthropic.results}, access=run),
            ),
            prefixes=("/v1/messages/batches",),
        ),
    )
