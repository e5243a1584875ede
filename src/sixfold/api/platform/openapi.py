"""The OpenAPI document of the shared endpoints."""

from __future__ import annotations

from typing import Literal

from sixfold.api.platform import (
    account_data,
    accounts,
    alerts,
    content_log,
    engines,
    guardrails,
    shares,
    uploads,
)
from sixfold.api.platform.operator import alerts as operator_alerts
from sixfold.api.platform.operator import backups, configuration_schemas, figures, installs, removals
from sixfold.api.platform.operator import schemas as operator
from sixfold.api.platform.operator import usage as operator_usage
from sixfold.api.platform.organization import openapi as organization
from sixfold.core.accounts.ledger_queries import LedgerEntrySchema
from sixfold.core.media.thumbnails import WIDTHS
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec
from sixfold.web.responses import ErrorSchema

_STATUS = openapi.shape("Status", status=Literal["ok"])
_CHECKOUT = openapi.shape("Checkout", checkout_url=str)
_WIDTH = openapi.query("w", {"type": "integer", "enum": list(WIDTHS)})
_RECEIVED = openapi.shape("WebhookReceipt", received=bool)


def document() -> OpenApiDocument:
    """Return the document: uploads, files, the account and health."""
    return OpenApiDocument(
        "Sixfold Platform",
        "1.0.0",
        "What all APIs share: uploads, media files, the account, health.",
        {
            **_files(),
            **shares.operations(),
            **_account(),
            **_policy(),
            **organization.operations(),
            **operator.operations(),
            **removals.operations(),
            **operator_usage.operations(),
            **configuration_schemas.operations(),
            **installs.operations(),
            **backups.operations(),
            **operator_alerts.operations(),
            **figures.operations(),
            **_server(),
        },
    )


def _files() -> dict[str, OperationSpec]:
    form: Node = {"type": "object", "required": ["file"], "properties": {"file": openapi.CONTENT}}
    return {
        "POST /api/uploads": OperationSpec(
            "Keep a file",
            {201: openapi.response("The stored file", uploads.UploadSchema)},
            (400, 409, 503),
            parameters=(openapi.IDEMPOTENCY,),
            bodies={"multipart/form-data": form, "application/octet-stream": openapi.CONTENT},
        ),
        "GET /media/{name}": _file(
            {
                307: {"description": "Redirect to the object store"},
                400: openapi.response("The width is not one of those listed", ErrorSchema),
            },
            (_WIDTH,),
        ),
        "GET /uploads/{path}": _file({}),
    }


def _file(more: dict[int, Node], parameters: tuple[Node, ...] = ()) -> OperationSpec:
    file_response: Node = {"description": "The file", "content": {"*/*": {"schema": openapi.FILE}}}
    responses: dict[int, Node] = {
        200: file_response,
        206: {**file_response, "description": "A part of it"},
        304: {"description": "Not modified"},
        416: {"description": openapi.TEXTS[416]},
        503: openapi.response("The store is not available, and no data was sent", ErrorSchema),
    }
    return OperationSpec("A stored file", {**responses, **more}, (404,), parameters=parameters)


def _account() -> dict[str, OperationSpec]:
    entries = openapi.page("Ledger", entries=LedgerEntrySchema)
    paging = (openapi.limit(accounts.MAX_PAGE, accounts.PAGE), openapi.text("cursor", 100))
    archive: Node = {
        "description": "A zip, as it is made",
        "content": {"application/zip": {"schema": openapi.FILE}},
    }
    pay = openapi.response("The page of the payment", _CHECKOUT)
    return {
        "GET /api/account": OperationSpec(
            "The account", {200: openapi.response("Balance and plan", accounts.AccountSchema)}
        ),
        "DELETE /api/account": OperationSpec(
            "Close the account; `confirm` is its e-mail address",
            {202: openapi.response("The time of the deletion", account_data.ClosedAccountSchema)},
            (400,),
            account_data.CONFIRMATION,
        ),
        "POST /api/account/webhook-secret": OperationSpec(
            "Replace the secret that signs webhooks, at once",
            {200: openapi.response("The new secret", accounts.AccountSecretSchema)},
        ),
        "GET /api/account/export": OperationSpec("All that belongs to the account", {200: archive}, (429,)),
        "GET /api/account/ledger": OperationSpec(
            "The ledger", {200: openapi.response("Newest first", entries)}, (400,), parameters=paging
        ),
        "GET /api/account/usage": OperationSpec(
            "Requests, tokens and amounts by day, kind, model, key, member and team",
            {200: accounts.usage_content(accounts.USAGE)},
            (400,),
            parameters=accounts.USAGE_PARAMETERS,
        ),
        "POST /api/account/checkout": OperationSpec(
            "Pay credit by card",
            {200: pay},
            (400, 409, 503),
            openapi.shape("TopUp", amount_usd=str | float),
            (openapi.IDEMPOTENCY,),
        ),
        "POST /api/account/plan": OperationSpec(
            "Pay a memory plan by card",
            {200: pay},
            (400, 409, 503),
            openapi.shape("PlanChoice", plan=Literal["monthly", "yearly"]),
            (openapi.IDEMPOTENCY,),
        ),
        "POST /api/account/deposits": OperationSpec(
            "The account's own address for tokens",
            {
                200: openapi.response(
                    "The address, and which tokens of which chains it takes", {"type": "object"}
                )
            },
            (400, 503),
        ),
        "POST /api/webhooks/stripe": OperationSpec(
            "Receive a message of the payment processor",
            {200: openapi.response("Received", _RECEIVED)},
            (400, 503),
            {"type": "object"},
        ),
    }


def _policy() -> dict[str, OperationSpec]:
    page = openapi.shape("Guardrails", guardrails=list[guardrails.GuardrailSchema])
    setting = openapi.response("The setting", content_log.ContentLoggingSchema)
    calls = openapi.page("LoggedCalls", calls=content_log.LoggedCallSchema)
    paging = (openapi.limit(accounts.MAX_PAGE, accounts.PAGE), openapi.text("cursor", 100))
    own_alerts = openapi.shape("Alerts", alerts=list[alerts.AlertSchema])
    return {
        "GET /api/account/alerts": OperationSpec(
            "The cost alerts", {200: openapi.response("Oldest first", own_alerts)}
        ),
        "POST /api/account/alerts": OperationSpec(
            "Create a cost alert",
            {201: openapi.response("The alert", alerts.AlertSchema)},
            (400, 404, 409),
            alerts.NewAlertSchema,
            (openapi.IDEMPOTENCY,),
        ),
        "DELETE /api/account/alerts/{alert_id}": OperationSpec(
            "Delete a cost alert", {204: {"description": "Deleted"}}, (404,)
        ),
        "GET /api/account/logging": OperationSpec("Whether contents of calls are logged", {200: setting}),
        "PUT /api/account/logging": OperationSpec(
            "Log contents of calls for some days; 0 switches it off",
            {200: setting},
            (400,),
            openapi.shape("LoggingDays", days=int),
        ),
        "GET /api/account/logging/calls": OperationSpec(
            "The logged calls", {200: openapi.response("Newest first", calls)}, (400,), parameters=paging
        ),
        "DELETE /api/account/logging/calls": OperationSpec(
            "Delete all logged calls", {204: {"description": "Deleted"}}
        ),
        "GET /api/account/logging/calls/{request_id}": OperationSpec(
            "The contents of a call",
            {200: openapi.response("Its request and response", content_log.LoggedContentSchema)},
            (404, 503),
        ),
        "GET /api/account/guardrails": OperationSpec(
            "The guardrails of the account and its keys",
            {200: openapi.response("The account's own first", page)},
        ),
        "PUT /api/account/guardrails": OperationSpec(
            "Set the guardrail of the account or of a key",
            {200: openapi.response("The guardrail", guardrails.GuardrailSchema)},
            (400, 404),
            guardrails.GuardrailFieldsSchema,
        ),
        "DELETE /api/account/guardrails": OperationSpec(
            "Remove the guardrail of the account, or of the key in `key`",
            {204: {"description": "Removed"}},
            (400, 404),
            parameters=(openapi.text("key", 100),),
        ),
    }


def _server() -> dict[str, OperationSpec]:
    status = openapi.response("The server is healthy", _STATUS)
    refresh = openapi.query("refresh", {"type": "boolean", "default": False})
    return {
        "GET /livez": OperationSpec("The process answers", {200: status}),
        "GET /readyz": OperationSpec("The server can work", {200: status}, (503,)),
        "GET /api/engines": OperationSpec(
            "What engines run on, and which serves each model",
            {200: openapi.response("The engines in use", engines.EnginesSchema)},
            (400,),
            parameters=(refresh,),
        ),
        "GET /metrics": OperationSpec(
            "Figures for Prometheus",
            {200: openapi.response("Prometheus' text format", {"type": "string"}, "text/plain")},
        ),
        "GET /openapi/{area}": OperationSpec(
            "The OpenAPI document of an API, such as `media.json`",
            {200: openapi.response("The document", {"type": "object"}), 304: {"description": "Not modified"}},
            (404,),
        ),
    }
