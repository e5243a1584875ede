"""A Replicate-compatible API over the same models; Replicate's client works with its base URL changed."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting import run_requests
from sixfold.api.hosting.replicate import schemas
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.models import Model
from sixfold.core.clock import rfc3339, steady_clock
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.webhooks import Renderer
from sixfold.web import bodies, requests, responses, uploads
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload

FACE = "replicate"
_PAGE = 100
# The form field that contains the file.
_PART = b"content"


class ReplicateRoutes:
    """Models, predictions, files, account and hardware in Replicate's format."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._base_url = services.settings.base_url
        self._since = rfc3339(steady_clock()()) or ""
        self._versions = {schemas.version_of(model): model.name for model in services.catalog.models()}
        self._current = {name: version for version, name in self._versions.items()}

    # -- models ------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        """Return every model, custom models after the built-in ones, a page at a time."""
        principal = await self._enter(request)
        custom_models, next_cursor = await requests.own_models(
            self._services.predictions.custom_models, request, principal.account_id
        )
        built_in = () if requests.cursor(request) else self._services.catalog.models()
        models = (*built_in, *(own.model for own in custom_models))
        rows = await responses.encode_each(self._model(model) for model in models)
        more = f"{self._base_url}{schemas.BASE}/models?{urlencode({'cursor': next_cursor})}"
        return responses.json({"next": more if next_cursor else None, "previous": None, "results": rows})

    async def model(self, request: Request) -> Response:
        return responses.json(self._model(await self._named(request, await self._enter(request))))

    async def versions(self, request: Request) -> Response:
        """Return the versions of a model, which is only the current one."""
        model = await self._named(request, await self._enter(request))
        rows = [schemas.version(model, self._since)]
        return responses.json({"next": None, "previous": None, "results": rows})

    async def version(self, request: Request) -> Response:
        model = await self._named(request, await self._enter(request))
        version = schemas.version(model, self._since)
        if requests.path_value(request, "version") != version["id"]:
            raise errors.NotFound("The model does not have this version")
        return responses.json(version)

    async def _named(self, request: Request, principal: Principal) -> Model:
        owner, name = requests.path_value(request, "owner"), requests.path_value(request, "name")
        return await self._find(owner, name, principal)

    async def _find(self, owner: str, name: str, principal: Principal) -> Model:
        if owner != schemas.OWNER:
            raise errors.NotFound(
                f"Model {owner}/{name} not found: the owner of models here is {schemas.OWNER}"
            )
        return await self._services.predictions.find(name, principal.account_id)

    def _model(self, model: Model) -> schemas.ReplicateModelSchema:
        own = model.name not in self._services.catalog
        return schemas.model(model, self._base_url, self._since, own=own)

    # -- predictions -------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Run a version, or the model named in the path or the version."""
        principal = await self._enter(request)
        raw = await request.body()
        idempotent = IdempotentRequest(principal.replays, raw, schemas.error)

        async def work(idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, raw)
            if "name" in request.scope["path_params"]:
                model = await self._named(request, principal)
            else:
                model = await self._by_version(body.get("version"), principal)
            run_request = schemas.request(body, model.name, request.headers.get("prefer", ""))
            order = await run_requests.order(
                self._services, request, principal, run_request, face=FACE, idempotency_id=idempotency_id
            )
            prediction = await self._services.predictions.submit(order)
            if run_request.wait_seconds:
                prediction = await self._services.predictions.wait(prediction, run_request.wait_seconds)
            return self._answer(prediction, 201)

        return await self._services.idempotency.run(request, idempotent, work)

    async def _by_version(self, identifier: Any, principal: Principal) -> Model:
        """Return the model for a version id, for `owner/name`, or for `owner/name:id`."""
        if not isinstance(identifier, str) or not identifier:
            raise errors.InvalidInput([errors.Problem("version", "version is required", "missing")])
        if identifier in self._versions:
            return self._services.catalog[self._versions[identifier]]
        reference, _, version = identifier.partition(":")
        owner, slash, name = reference.partition("/")
        if slash:
            model = await self._find(owner, name, principal)
            if version in ("", schemas.version_of(model)):
                return model
        async for own in self._services.predictions.custom_models.each(principal.account_id):
            if schemas.version_of(own.model) == identifier:
                return own.model
        message = "version is not found"
        raise errors.InvalidInput([errors.Problem("version", message, "value_error")])

    async def page(self, request: Request) -> Response:
        """Return the account's predictions, newest first."""
        principal = await self._enter(request)
        cursor = request.query_params.get("cursor") or None
        page, next_cursor = await self._services.predictions.page(
            principal.tenant, PredictionFilter(), _PAGE, cursor
        )
        more = f"{self._base_url}{schemas.BASE}/predictions?{urlencode({'cursor': next_cursor})}"
        rows = await responses.encode_each(self._serialize(prediction) for prediction in page)
        return responses.json({"next": more if next_cursor else None, "previous": None, "results": rows})

    async def show(self, request: Request) -> Response:
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        return self._answer(await self._services.predictions.get(prediction_id, principal.tenant))

    async def cancel(self, request: Request) -> Response:
        """Cancel a prediction that has not ended."""
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        return self._answer(await self._services.predictions.cancel(prediction_id, principal.tenant))

    def tell(self, prediction: Prediction, _event: str, _moment: int) -> schemas.ReplicatePredictionSchema:
        """Return the payload of a webhook: the prediction."""
        return self._serialize(prediction)

    def _answer(self, prediction: Prediction, status: int = 200) -> Response:
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        return responses.json(self._serialize(prediction), status, headers)

    def _serialize(self, prediction: Prediction) -> schemas.ReplicatePredictionSchema:
        version = self._current.get(prediction.model, "")
        return schemas.prediction(prediction, version, self._base_url, self._services.media_url)

    # -- files, account, hardware -------------------------------------------------------------------

    async def upload(self, request: Request) -> Response:
        """Store a file; its URL can be used as an input."""
        principal = await self._enter(request)
        path = self._services.settings.data_dir / "tmp" / f"file-{secrets.token_hex(16)}"
        await asyncio.to_thread(path.parent.mkdir, 0o700, parents=True, exist_ok=True)
        try:
            received = await uploads.receive(request, path, _PART)
            return await self._store(principal, received)
        except OSError as error:
            raise errors.StoreFailed from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _store(self, principal: Principal, received: ReceivedUpload) -> Response:
        stored = await self._services.media.upload(principal.tenant, received.path, received.content_type)
        moment = steady_clock()()
        life_us = self._services.settings.upload_life_days * 86_400_000_000
        body: schemas.ReplicateFileSchema = {
            "id": stored.id,
            "name": stored.name,
            "content_type": stored.content_type,
            "size": stored.size,
            "etag": stored.sha256,
            "checksums": {"sha256": stored.sha256},
            "metadata": {},
            "created_at": rfc3339(moment),
            "expires_at": rfc3339(moment + life_us),
            "urls": {"get": f"{self._base_url}{MEDIA_PATH}{stored.name}"},
        }
        return responses.json(body, 201)

    async def account(self, request: Request) -> Response:
        """Return the account of the key."""
        principal = await self._enter(request)
        name = principal.email.partition("@")[0]
        body = {"type": "user", "username": name, "name": principal.email, "github_url": None}
        return responses.json(body)

    async def hardware(self, request: Request) -> Response:
        """Return the available hardware."""
        await self._enter(request)
        kinds = self._services.templates.hardware.kinds()
        rows: list[schemas.SkuSchema] = [{"sku": kind.id, "name": kind.label} for kind in kinds]
        return responses.json(rows)

    async def _enter(self, request: Request) -> Principal:
        return await self._services.authenticator.bearer(request)


def build_api(services: WebServices) -> ApiGroup:
    """Return the routes of the Replicate-compatible API, which has its own error format."""
    replicate = ReplicateRoutes(services)
    tell: Renderer = replicate.tell
    services.outbox.renderers[FACE] = tell
    large, small = services.settings.inline_body_bytes, services.settings.json_body_bytes
    return ApiGroup(
        FACE,
        schemas.error,
        (
            RouteEntry("/replicate/v1/models", {"GET": replicate.models}, access=rights.RUN),
            RouteEntry("/replicate/v1/models/{owner}/{name}", {"GET": replicate.model}, access=rights.RUN),
            RouteEntry(
                "/replicate/v1/models/{owner}/{name}/versions", {"GET": replicate.versions}, access=rights.RUN
            ),
            RouteEntry(
                "/replicate/v1/models/{owner}/{name}/versions/{version}",
                {"GET": replicate.version},
                access=rights.RUN,
            ),
            RouteEntry(
                "/replicate/v1/models/{owner}/{name}/predictions",
                {"POST": replicate.create},
                large,
                access=rights.RUN,
            ),
            RouteEntry(
                "/replicate/v1/predictions",
                {"GET": replicate.page, "POST": replicate.create},
                large,
                access=rights.RUN,
            ),
            RouteEntry(
                "/replicate/v1/predictions/{prediction_id}", {"GET": replicate.show}, access=rights.RUN
            ),
            RouteEntry(
                "/replicate/v1/predictions/{prediction_id}/cancel",
                {"POST": replicate.cancel},
                small,
                access=rights.RUN,
            ),
            RouteEntry(
                "/replicate/v1/files",
                {"POST": replicate.upload},
                services.settings.upload_body_bytes,
                access=rights.RUN,
            ),
            RouteEntry("/replicate/v1/account", {"GET": replicate.account}, access=rights.ACCOUNT_READ),
            RouteEntry("/replicate/v1/hardware", {"GET": replicate.hardware}, access=rights.RUN),
        ),
        prefixes=("/replicate/",),
    )
