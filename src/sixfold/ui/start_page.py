"""The start page: its form generates an image and shows the receipt."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import receipt
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs
from sixfold.ui.catalog.example_outputs import ExampleOutput
from sixfold.ui.templating import PageTemplates, duration
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_APIS = (
    ("media", "Media API", "Images and videos with a key in the body"),
    ("gateway", "Gateway", "One endpoint, one key, many models"),
    ("imagekit", "Image utility", "Images by query string, style transfer"),
    ("memory", "Memory", "Pages shared by agents and people"),
    ("hosting", "Hosting", "Models as predictions with a queue"),
    ("workflows", "Workflows", "Node graphs as typed APIs"),
)
_MODELS = {"ra1": "Painterly", "anime": "Anime", "ra2": "Any size"}
# One example of each kind, with the color of their card.
_EXAMPLES = {
    "anime": "media",
    "video-c": "gateway",
    "piano": "imagekit",
    "text-to-3d": "hosting",
    "style-transfer": "media",
    "world-model": "media",
    "tts-b": "imagekit",
    "space:stylized-text-to-image": "workflows",
}
_FREE = "free"
_FORM_BYTES = 16_384
_WAIT_SECONDS = 120.0


class StartPage:
    """The start page and the endpoint of its form."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages

    async def show(self, request: Request) -> Response:
        session = await self._services.sessions.admitted(request)
        enabled = self._services.settings.enabled_apis
        models = [
            (name, title, self._price(name))
            for name, title in _MODELS.items()
            if name in self._services.catalog
        ]
        return self._pages.render(
            "start.html",
            session,
            api_cards=[(*api, api[0] in enabled) for api in _APIS],
            engines=_engines(self._services),
            examples=_examples(self._services),
            operator=session is not None and session.account.is_operator,
            models=models,
            free=all(price == _FREE for _name, _title, price in models),
            base_url=self._services.settings.base_url,
        )

    def _price(self, name: str) -> str:
        terms, catalog = self._services.predictions.terms, self._services.catalog
        model = catalog[name]
        return _FREE if model.is_waived(catalog.prices, terms) else catalog.price_text(model)

    async def generate(self, request: Request, user: PageUser) -> Response:
        """Generate an image for the signed-in user and return the result as JSON."""
        body = bodies.parse_object(await request.body())
        model = body.get("model")
        if not isinstance(model, str) or model not in _MODELS:
            raise errors.BadRequest(f"model must be one of {', '.join(_MODELS)}")
        prediction_request = PredictionRequest(
            principal=user.principal,
            model=model,
            inputs={"prompt": body.get("prompt")},
            face="pages",
            request_id=requests.request_id(request),
        )
        prediction = await self._services.predictions.submit(prediction_request)
        prediction = await self._services.predictions.wait(prediction, _WAIT_SECONDS)
        return responses.json(_result(prediction))


def _result(prediction: Prediction) -> dict[str, Any]:
    files = prediction.output.files if prediction.output is not None else ()
    return {
        "id": prediction.id,
        "status": str(prediction.state),
        "images": [f"{MEDIA_PATH}{file.name}" for file in files],
        "error": prediction.error,
        "engine": engine_name(prediction.engine),
        "quality": prediction.quality,
        "receipt": [{**step.to_json(), "took": duration(step.took)} for step in receipt.steps(prediction)],
    }


def _examples(services: WebServices) -> list[tuple[str, str, str, ExampleOutput]]:
    """Return name, title, color and example output of the models on the start page."""
    examples, catalog = example_outputs.by_model(), services.catalog
    return [
        (name, catalog[name].title, hue, examples[name])
        for name, hue in _EXAMPLES.items()
        if name in examples and name in catalog
    ]


def _engines(services: WebServices) -> list[tuple[EngineSpec, EngineStatus]]:
    """Return all engines with their status, ready ones first."""
    status_of = services.predictions.terms.status_of
    engines = [(engine, status_of(engine.name)) for engine in services.catalog.engines().values()]
    return sorted(engines, key=lambda each: not each[1].ready)


def script_routes(start_page: StartPage, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the route of the form's script."""
    generate = auth.script(start_page.generate)
    return (RouteEntry("/pages/make", {"POST": generate}, _FORM_BYTES, access=rights.RUN),)
