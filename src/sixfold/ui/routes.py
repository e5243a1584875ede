"""The routes of all pages, the start page and static files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
from sixfold.ui import gallery, workflows
from sixfold.ui.account import data as account_data
from sixfold.ui.account import pages as account
from sixfold.ui.account import security
from sixfold.ui.admin import lab
from sixfold.ui.admin import pages as admin
from sixfold.ui.auth import PageAuth
from sixfold.ui.catalog import example_outputs, session_page
from sixfold.ui.catalog.example_outputs import ExampleOutput
from sixfold.ui.catalog.pages import CatalogPages
from sixfold.ui.docs import routes as docs
from sixfold.ui.login import oauth_consent, passkeys
from sixfold.ui.login import oidc as oidc_login
from sixfold.ui.login import pages as login_pages
from sixfold.ui.login.sessions import LoginService
from sixfold.ui.memory import routes as memory
from sixfold.ui.predictions import provenance, run_api
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.predictions.pages import PredictionPages
from sixfold.ui.templating import STATIC, PageTemplates, duration
from sixfold.ui.workflows import WorkflowCards, WorkflowPages
from sixfold.web import bodies, requests, responses
from sixfold.web.openapi import OpenApiDocument
from sixfold.web.routing import ApiGroup, Handler, RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER

_APIS = (
    ("media", "Media API", "Images and videos with a key in the body"),
    ("gateway", "Gateway", "One endpoint, one key, many models"),
    ("imagekit", "Image utility", "Images by query string, style transfer"),
    ("memory", "Memory", "Pages shared by agents and people"),
    ("hosting", "Hosting", "Models as predictions with a queue"),
    ("workflows", "Workflows", "Node graphs as typed APIs"),
)
_START_MODELS = ("ra1", "anime", "ra2")
# Examples on the start page, one of each kind, with the color of their card.
_START_EXAMPLES = {
    "anime": "media",
    "video-c": "gateway",
    "piano": "imagekit",
    "text-to-3d": "hosting",
    "style-transfer": "media",
    "world-model": "media",
    "tts-b": "imagekit",
    "space:stylized-text-to-image": "workflows",
}
_FORM_BYTES = 16_384
_WAIT_SECONDS = 120.0
_SUFFIXES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".webm": "video/webm",
    ".mp3": "audio/mpeg",
}


class UserInterface:
    """The start page and the templates of all pages."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self.apis = frozenset(services.settings.enabled_apis)
        self.pages = PageTemplates(self.apis)

    # -- start -----------------------------------------------------------------------------------

    async def start(self, request: Request) -> Response:
        """Show the start page."""
        session = await self._services.sessions.admitted(request)
        return self.pages.render(
            "start.html",
            session,
            api_cards=[(*api, api[0] in self.apis) for api in _APIS],
            engines=_engines(self._services),
            examples=_examples(self._services),
            operator=session is not None and session.account.is_operator,
            base_url=self._services.settings.base_url,
        )

    async def generate(self, request: Request) -> Response:
        """Generate an image for the signed-in user and return the result as JSON."""
        session = await self._services.sessions.of(request)
        self._services.sessions.check_csrf(request, session, request.headers.get(CSRF_HEADER))
        if session is None:
            raise errors.Unauthenticated("Sign in first")
        body = bodies.parse_object(await request.body())
        model = body.get("model")
        if model not in _START_MODELS:
            raise errors.BadRequest("Unknown model")
        prediction_request = PredictionRequest(
            principal=session.principal,
            model=str(model),
            inputs={"prompt": body.get("prompt")},
            face="pages",
            request_id=requests.request_id(request),
        )
        prediction = await self._services.predictions.submit(prediction_request)
        prediction = await self._services.predictions.wait(prediction, _WAIT_SECONDS)
        return responses.json(self._result(prediction))

    def _result(self, prediction: Prediction) -> dict[str, Any]:
        files = prediction.output.files if prediction.output is not None else ()
        return {
            "id": prediction.id,
            "status": str(prediction.state),
            "images": [f"{MEDIA_PATH}{file.name}" for file in files],
            "error": prediction.error,
            "engine": engine_name(prediction.engine),
            "quality": prediction.quality,
            "receipt": [
                {**step.to_json(), "took": duration(step.took)} for step in receipt.stations(prediction)
            ],
        }


def _examples(services: WebServices) -> list[tuple[str, str, str, ExampleOutput]]:
    """Return name, title, color and example output of the models on the start page."""
    examples, catalog = example_outputs.by_model(), services.catalog
    return [
        (name, catalog[name].title, hue, examples[name])
        for name, hue in _START_EXAMPLES.items()
        if name in examples and name in catalog
    ]


def _engines(services: WebServices) -> list[tuple[EngineSpec, EngineStatus]]:
    """Return all engines with their status, ready ones first."""
    status = services.predictions.terms.status_of
    engines = [(engine, status(engine.name)) for engine in services.catalog.engines().values()]
    return sorted(engines, key=lambda each: not each[1].ready)


class StaticFiles:
    """The files of one folder, read once at the start: scripts and style sheets, fonts or examples."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.name: (path.read_bytes(), _SUFFIXES[path.suffix])
            for path in folder.iterdir()
            if path.suffix in _SUFFIXES
        }

    async def show(self, request: Request) -> Response:
        """Return a file; raises `NotFound`."""
        file = self._files.get(requests.path_value(request, "name"))
        if file is None:
            raise errors.NotFound
        return Response(file[0], 200, {"Cache-Control": "public, max-age=31536000, immutable"}, file[1])


def build_apis(
    services: WebServices,
    documents: Mapping[str, OpenApiDocument],
    workflow_list: WorkflowCards | None = None,
) -> tuple[tuple[ApiGroup, ...], Handler]:
    """Return the groups of page and script routes, and the start page's handler."""
    site, static, examples = UserInterface(services), StaticFiles(STATIC), StaticFiles(example_outputs.FOLDER)
    fonts = StaticFiles(STATIC / "fonts")
    auth, output_view, login = PageAuth(services), OutputView(site.pages), LoginService(services)
    catalog = CatalogPages(services, site.pages, auth)
    predictions = PredictionPages(services, site.pages, output_view)
    workflow_pages = (
        None if workflow_list is None else WorkflowPages(services, site.pages, auth, workflow_list)
    )
    pages = ApiGroup(
        "ui",
        site.pages.error_page,
        (
            *login_pages.routes(services, site.pages, login),
            *oidc_login.routes(services, site.pages, login),
            *security.routes(services, site.pages, login),
            *account_data.routes(services, site.pages),
            *account.routes(services, site.pages),
            *admin.routes(services, site.pages, auth),
            *lab.routes(services, site.pages, auth),
            *gallery.routes(services, site.pages),
            *session_page.routes(services, site.pages, auth),
            *workflows.page_routes(workflow_pages),
            RouteEntry("/catalog", {"GET": catalog.show_list}, access=rights.PUBLIC),
            RouteEntry("/catalog/{name}", {"GET": catalog.show_model}, access=rights.PUBLIC),
            RouteEntry("/predictions", {"GET": auth.page(predictions.show_list)}, access=rights.RUN),
            RouteEntry(
                "/predictions/{prediction_id}",
                {"GET": auth.page(predictions.show_prediction)},
                access=rights.RUN,
            ),
            *provenance.page_routes(services, auth),
            *docs.routes(services, site.pages, documents),
            *oauth_consent.routes(services, site.pages),
            RouteEntry("/static/{name}", {"GET": static.show, "HEAD": static.show}, access=rights.PUBLIC),
            RouteEntry("/static/fonts/{name}", {"GET": fonts.show, "HEAD": fonts.show}, access=rights.PUBLIC),
            RouteEntry(
                "/static/specimens/{name}",
                {"GET": examples.show, "HEAD": examples.show},
                access=rights.PUBLIC,
            ),
        ),
    )
    generate = RouteEntry("/pages/make", {"POST": site.generate}, _FORM_BYTES, access=rights.RUN)
    script = ApiGroup(
        "ui",
        responses.error_response,
        (
            generate,
            *passkeys.routes(services, login),
            *run_api.routes(services, output_view, auth),
            *provenance.script_routes(services, auth),
            *workflows.script_routes(workflow_pages),
        ),
    )
    if "memory" in site.apis:
        return (pages, script, memory.build_api(services, site.apis)), site.start
    return (pages, script), site.start


def build_start_page(start_page: Handler) -> ApiGroup:
    """Return a group with the start page, for servers without the Image utility API, which has `/`."""
    route = RouteEntry("/", {"GET": start_page}, access=rights.PUBLIC)
    return ApiGroup("ui", responses.error_response, (route,))
