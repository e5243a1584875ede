"""The start page: a form that generates an image, and an overview of the server."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import FRESH_MINUTES
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.predictions import pricing
from sixfold.ui.catalog import example_outputs
from sixfold.ui.catalog.example_outputs import ExampleOutput
from sixfold.ui.login import passwords
from sixfold.ui.templating import PageHandlers
from sixfold.web import requests
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
_PROMPTS = (
    "A lighthouse above a stormy sea at dusk",
    "A red fox under birch trees in the snow",
    "A steam train in autumn hills",
    "A castle by a lake at night",
)
_PROMPT_CHARS = 1000


class StartPage(PageHandlers):
    """The start page."""

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
            fresh_minutes=FRESH_MINUTES,
            needs_password=await passwords.is_first_needed(self._services, session),
            prompt=requests.query_text(request, "prompt", _PROMPT_CHARS) or _PROMPTS[0],
            prompts=_PROMPTS[1:],
            picture=_picture(models[0][0]) if models else "",
            needs_credit=session is not None and _needs_credit(session.account),
            free=all(price == _FREE for _name, _title, price in models),
            base_url=self._services.settings.base_url,
        )

    def _price(self, name: str) -> str:
        terms, catalog = self._services.predictions.terms, self._services.catalog
        model = catalog[name]
        return _FREE if pricing.is_waived(catalog, terms, model) else catalog.price_text(model)


def _needs_credit(account: Account) -> bool:
    return not account.is_never_refused and account.posted <= account.held


def _picture(model: str) -> str:
    """Return the static file with the large example of a model, or ""."""
    example = example_outputs.by_model().get(model)
    return "" if example is None else example.large or example.still


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
