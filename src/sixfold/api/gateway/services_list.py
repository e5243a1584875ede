"""`GET /api/services`: the services that `/api/service` can run, and whether they are available."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.rights import Rights
from sixfold.core.catalog import availability
from sixfold.core.catalog.engines import Quality
from sixfold.core.catalog.models import Model
from sixfold.core.predictions import pricing
from sixfold.web import auth, requests, responses
from sixfold.web.responses import InputSchema, input_schema
from sixfold.web.services import ServiceHandlers, WebServices

DEFAULT = "ra2"


class ServiceSchema(TypedDict):
    """A service with its inputs, its price and its availability."""

    service: str
    description: str
    inputs: list[InputSchema]
    output_kind: str
    price: str
    list_price: NotRequired[str]
    engine: str | None
    quality: Quality | None
    available: bool
    unlock: NotRequired[str]


class ServicesSchema(TypedDict):
    """The services; `next_cursor` is the cursor of the next page of the account's models."""

    services: list[ServiceSchema]
    next_cursor: NotRequired[str | None]


class ServiceList(ServiceHandlers):
    """Lists all services."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)

    def knows(self, name: str) -> bool:
        catalog = self._services.catalog
        return name in catalog and _is_service(catalog[name])

    def names(self) -> list[str]:
        """Return the names of all services but those of accounts."""
        return [model.name for model in self._built_in()]

    async def page(self, request: Request) -> Response:
        """Return all services, and for a request with a key a page of the account's models."""
        built_in = () if requests.cursor(request) else self._built_in()
        document: dict[str, Any] = {}
        if auth.bearer_token(request) is None:
            document["services"] = [self._row(model, model.name) for model in built_in]
        else:
            principal = await self._enter(request)
            permitted = (model for model in built_in if principal.allows(model.name))
            document["services"] = [self._row(model, model.name) for model in permitted]
            if principal.has(Rights.RUN):
                own_models, next_cursor = await requests.own_models(
                    self._services.predictions.custom_models, request, principal.account_id
                )
                rows = (
                    self._row(own_model.model, _service_name(own_model.kind, own_model.name))
                    for own_model in own_models
                    if principal.allows(own_model.name)
                )
                document["services"] += await responses.encode_each(rows)
                document["next_cursor"] = next_cursor
        headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
        return responses.json(document, headers=headers)

    def _built_in(self) -> list[Model]:
        """Return the default, the other models, the templates, then workflows and discovered models."""
        return sorted(filter(_is_service, self._services.catalog.models()), key=self._group)

    def _group(self, model: Model) -> int:
        if model.name.startswith("space:") or model.name in self._services.catalog.discovered:
            return 3
        return 2 if model.name in self._services.templates else int(model.name != DEFAULT)

    def _row(self, model: Model, name: str) -> ServiceSchema:
        terms = self._services.predictions.terms
        price, list_price = pricing.in_words(self._services.catalog, terms, model)
        row: ServiceSchema = {
            "service": name,
            "description": model.description,
            "inputs": [input_schema(descriptor) for descriptor in model.inputs],
            "output_kind": model.output_kind,
            "price": price,
            "engine": None,
            "quality": None,
            "available": False,
        }
        if list_price is not None:
            row["list_price"] = list_price
        try:
            engine, quality = availability.serving(self._services.catalog, model, terms)
        except errors.EngineUnavailable as error:
            row["unlock"] = error.message
            return row
        row["engine"], row["quality"], row["available"] = engine.name, quality, True
        unlock_hint = model.unlock(terms)
        if unlock_hint and quality == "preview":
            row["unlock"] = unlock_hint
        return row


def _is_service(model: Model) -> bool:
    return model.service and not model.internal


def _service_name(kind: str, name: str) -> str:
    """Return the service name of a model of an account."""
    return f"space:{name}" if kind == "workflow" and not name.startswith("space:") else name
