"""A Replicate-compatible API over the same models; Replicate's client works with its base URL changed."""

from __future__ import annotations

from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.api.hosting import run_requests, streaming
from sixfold.api.hosting.public_names import PublicModel
from sixfold.api.hosting.replicate import schemas, texts, unsupported
from sixfold.api.hosting.replicate.files import ReplicateFiles
from sixfold.api.hosting.replicate.models import ReplicateModels
from sixfold.api.hosting.schemas import RunRequest
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog import trained_models
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.webhooks import Renderer
from sixfold.web import bodies, predictions, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

FACE = "replicate"
_PAGE = 100


class ReplicateRoutes(ServiceHandlers):
    """Predictions, trainings, account and hardware in Replicate's format."""

    def __init__(self, services: WebServices, models: ReplicateModels) -> None:
        super().__init__(services)
        self._base_url = services.settings.base_url
        self._models = models

    # -- predictions -------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Run a version, or the model named in the path or the version."""
        principal = await self._enter(request)
        raw = await request.body()
        idempotent_request = IdempotentRequest(principal.replays, raw, schemas.error)

        async def work(idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, raw)
            if "name" in request.scope["path_params"]:
                named_model = await self._models.named(request, principal)
            else:
                named_model = await self._models.by_version(body.get("version", body.get("model")), principal)
            run_request = schemas.request(body, named_model.model.name, request.headers.get("prefer", ""))
            prediction = await self._submit(
                request, principal, run_request, named_model.public, idempotency_id
            )
            if run_request.wait_seconds:
                prediction = await self._services.predictions.wait(prediction, run_request.wait_seconds)
            return self._answer(prediction, 201)

        return await self._services.idempotency.run(request, idempotent_request, work)

    async def _submit(
        self,
        request: Request,
        principal: Principal,
        run: RunRequest,
        public: PublicModel | None,
        idempotency_id: str | None,
    ) -> Prediction:
        """Accept a run; raises `InvalidInput` with the client's names of the inputs."""
        if public is not None:
            run = replace(run, inputs=public.translate(run.inputs))
        face = self._models.names.face(public)
        try:
            prediction_request = await run_requests.prediction_request(
                self._services, request, principal, run, face=face, idempotency_id=idempotency_id
            )
            return await self._services.predictions.submit(prediction_request)
        except errors.InvalidInput as error:
            raise error if public is None else public.client_error(error) from error

    async def page(self, request: Request) -> Response:
        """Return the account's predictions, newest first."""
        return await self._list(request, "predictions", PredictionFilter())

    async def trainings(self, request: Request) -> Response:
        """Return the account's trainings, newest first."""
        return await self._list(request, "trainings", PredictionFilter(model=trained_models.MODEL))

    async def _list(self, request: Request, path: str, filters: PredictionFilter) -> Response:
        principal = await self._enter(request)
        cursor = request.query_params.get("cursor") or None
        page, next_cursor = await self._services.predictions.page(principal.tenant, filters, _PAGE, cursor)
        more = f"{self._base_url}{schemas.BASE}/{path}?{urlencode({'cursor': next_cursor})}"
        rows = await responses.encode_each(self._serialize(prediction) for prediction in page)
        return responses.json({"next": more if next_cursor else None, "previous": None, "results": rows})

    async def show(self, request: Request) -> Response:
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        return self._answer(await self._services.predictions.get(prediction_id, principal.tenant))

    async def stream(self, request: Request) -> Response:
        """Stream the output of a text model."""
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.get(prediction_id, principal.tenant)
        if prediction.output_kind != "text":
            raise errors.BadRequest("Only text models can stream their output: read urls.get instead")
        self._services.admission.event_stream(request, prediction.account_id)
        frames = texts.frames(self._services.predictions, prediction)
        return StreamingResponse(frames, 200, streaming.HEADERS, "text/event-stream")

    async def cancel(self, request: Request) -> Response:
        """Cancel a prediction that has not ended."""
        principal = await self._enter(request)
        prediction_id = requests.path_value(request, "prediction_id")
        service = self._services.predictions
        return self._answer(await predictions.cancel(service, prediction_id, principal.tenant))

    async def training(self, request: Request) -> Response:
        return self._answer(await self._training(request))

    async def cancel_training(self, request: Request) -> Response:
        """Cancel a training that has not ended."""
        await self._training(request)
        return await self.cancel(request)

    async def _training(self, request: Request) -> Prediction:
        """Return the training of the path; raises `NotFound`, also for a prediction of another model."""
        principal = await self._enter(request)
        training_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.get(training_id, principal.tenant)
        if prediction.model != trained_models.MODEL:
            raise errors.NotFound(f"Training {training_id[:60]} not found")
        return prediction

    def webhook_payload(
        self, prediction: Prediction, _event: str, _moment: int
    ) -> schemas.ReplicatePredictionSchema:
        """Return the payload of a webhook: the prediction."""
        return self._serialize(prediction)

    def _answer(self, prediction: Prediction, status: int = 200) -> Response:
        headers = responses.result_headers(prediction) | {"Cache-Control": "no-store"}
        return responses.json(self._serialize(prediction), status, headers)

    def _serialize(self, prediction: Prediction) -> schemas.ReplicatePredictionSchema:
        public = self._models.names.of_face(prediction.face)
        version = self._models.current(prediction.model, public)
        return schemas.prediction(prediction, version, self._base_url, self._services.media_url, public)

    # -- account and hardware ---------------------------------------------------------------------

    async def account(self, request: Request) -> Response:
        principal = await self._enter(request)
        name = principal.email.partition("@")[0]
        body = {"type": "user", "username": name, "name": principal.email, "github_url": None}
        return responses.json(body)

    async def hardware(self, request: Request) -> Response:
        await self._enter(request)
        kinds = self._services.templates.hardware.kinds()
        rows: list[schemas.SkuSchema] = [{"sku": kind.id, "name": kind.label} for kind in kinds]
        return responses.json(rows)

    async def webhook_secret(self, request: Request) -> Response:
        """Return the secret that signs the account's webhooks."""
        principal = await self._enter(request)
        secret: schemas.WebhookSecretSchema = {
            "key": await self._services.webhook_secrets.of(principal.account_id)
        }
        return responses.json(secret, headers={"Cache-Control": "no-store"})

    async def deployments(self, request: Request) -> Response:
        """Return an empty list, because every model starts and stops on demand."""
        await self._enter(request)
        return responses.json({"next": None, "previous": None, "results": []})

    async def deployment(self, request: Request) -> Response:
        """Raise `NotFound`, because deployments are not supported."""
        await self._enter(request)
        raise errors.NotFound(unsupported.DEPLOYMENTS)

    async def refuse_deployment(self, request: Request) -> Response:
        """Raise `BadRequest`, because deployments are not supported."""
        await self._enter(request)
        raise errors.BadRequest(unsupported.DEPLOYMENTS)

    async def refuse_training(self, request: Request) -> Response:
        """Raise `BadRequest`, because another API starts trainings."""
        await self._enter(request)
        raise errors.BadRequest(
            "Trainings cannot be created here: use POST /api/training, with a list of images"
        )

    async def refuse_model(self, request: Request) -> Response:
        """Raise `BadRequest`, because another API adds models."""
        await self._enter(request)
        raise errors.BadRequest(
            "Models cannot be added here: use POST /api/containers/templates or `sixfold model add`"
        )


def build_api(services: WebServices) -> ApiGroup:
    """Return the routes of the Replicate-compatible API, which has its own error format."""
    models, files = ReplicateModels(services), ReplicateFiles(services)
    replicate = ReplicateRoutes(services, models)
    render: Renderer = replicate.webhook_payload
    services.outbox.renderers[FACE] = render
    return ApiGroup(
        FACE,
        schemas.error,
        (
            *_model_routes(services, models, replicate),
            *_run_routes(services, replicate),
            *_other_routes(services, files, replicate),
        ),
        prefixes=("/replicate/",),
        missing=unsupported.missing,
        wrong_method=unsupported.wrong_method,
    )


def _model_routes(
    services: WebServices, models: ReplicateModels, replicate: ReplicateRoutes
) -> tuple[RouteEntry, ...]:
    large, small, run = services.settings.inline_body_bytes, services.settings.json_body_bytes, rights.RUN
    return (
        RouteEntry(
            "/replicate/v1/models",
            {"GET": models.page, "QUERY": models.search, "POST": replicate.refuse_model},
            small,
            access=run,
        ),
        RouteEntry("/replicate/v1/search", {"GET": models.search_all}, access=run),
        RouteEntry("/replicate/v1/models/{owner}/{name}", {"GET": models.model}, access=run),
        RouteEntry("/replicate/v1/models/{owner}/{name}/versions", {"GET": models.versions}, access=run),
        RouteEntry(
            "/replicate/v1/models/{owner}/{name}/versions/{version}", {"GET": models.version}, access=run
        ),
        RouteEntry(
            "/replicate/v1/models/{owner}/{name}/versions/{version}/trainings",
            {"POST": replicate.refuse_training},
            small,
            access=run,
        ),
        RouteEntry(
            "/replicate/v1/models/{owner}/{name}/predictions", {"POST": replicate.create}, large, access=run
        ),
        RouteEntry("/replicate/v1/collections", {"GET": models.collections}, access=run),
        RouteEntry("/replicate/v1/collections/{slug}", {"GET": models.collection}, access=run),
    )


def _run_routes(services: WebServices, replicate: ReplicateRoutes) -> tuple[RouteEntry, ...]:
    large, small, run = services.settings.inline_body_bytes, services.settings.json_body_bytes, rights.RUN
    return (
        RouteEntry(
            "/replicate/v1/predictions", {"GET": replicate.page, "POST": replicate.create}, large, access=run
        ),
        RouteEntry("/replicate/v1/predictions/{prediction_id}", {"GET": replicate.show}, access=run),
        RouteEntry("/replicate/v1/predictions/{prediction_id}/stream", {"GET": replicate.stream}, access=run),
        RouteEntry(
            "/replicate/v1/predictions/{prediction_id}/cancel", {"POST": replicate.cancel}, small, access=run
        ),
        RouteEntry("/replicate/v1/trainings", {"GET": replicate.trainings}, access=run),
        RouteEntry("/replicate/v1/trainings/{prediction_id}", {"GET": replicate.training}, access=run),
        RouteEntry(
            "/replicate/v1/trainings/{prediction_id}/cancel",
            {"POST": replicate.cancel_training},
            small,
            access=run,
        ),
    )


def _other_routes(
    services: WebServices, files: ReplicateFiles, replicate: ReplicateRoutes
) -> tuple[RouteEntry, ...]:
    small, run = services.settings.json_body_bytes, rights.RUN
    return (
        RouteEntry(
            "/replicate/v1/files",
            {"GET": files.page, "POST": files.upload},
            services.settings.upload_body_bytes,
            access=run,
        ),
        RouteEntry("/replicate/v1/files/{file_id}", {"GET": files.show, "DELETE": files.delete}, access=run),
        RouteEntry(
            "/replicate/v1/deployments",
            {"GET": replicate.deployments, "POST": replicate.refuse_deployment},
            small,
            access=run,
        ),
        RouteEntry("/replicate/v1/deployments/{owner}/{name}", {"GET": replicate.deployment}, access=run),
        RouteEntry(
            "/replicate/v1/webhooks/default/secret",
            {"GET": replicate.webhook_secret},
            access=rights.ACCOUNT_MANAGE,
        ),
        RouteEntry("/replicate/v1/account", {"GET": replicate.account}, access=rights.ACCOUNT_READ),
        RouteEntry("/replicate/v1/hardware", {"GET": replicate.hardware}, access=run),
    )
