"""`/admin/engines`: tasks that this server can perform, ways to unlock more, and weights to install."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog import availability, tasks
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec, Model
from sixfold.core.configuration.ports import InstallView
from sixfold.ui.admin.entry_forms import form_route
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices

PATH = "/admin/engines"
_OTHER = "other"
# The page that also contains these forms if no chat model is available.
_CHAT = "/chat"
# Families of weights that the gateway runs, which are not part of an engine in the catalog.
_FAMILY_TASKS: Mapping[str, str] = {"chat": "chat and text", "embeddings": "embeddings"}
# Ways to unlock engines other than weights, by kind of engine, in the order of the page.
_WAYS: Mapping[str, tuple[str, str]] = {
    "provider": ("/admin/providers", "a provider's key"),
    "comfyui": ("/docs/howto/gpu-box", "ComfyUI"),
    "relay": ("/admin/models", "a model server"),
}
Change = Callable[[Principal, str, str], Awaitable[None]]


class TaskModel(msgspec.Struct, frozen=True):
    """A model with the engine that serves it now; `quality` is empty if the model is not served."""

    name: str
    title: str
    engine: str
    quality: str


class TaskGroup(msgspec.Struct, frozen=True):
    """A task with its models, their engines, and how to unlock more."""

    title: str
    models: tuple[TaskModel, ...]
    engines: tuple[tuple[EngineSpec, EngineStatus], ...]
    weights: tuple[InstallView, ...]
    ways: tuple[tuple[str, str, int], ...]

    @property
    def shown(self) -> tuple[InstallView, ...]:
        """The weights that are installed, being installed, or suggested."""
        return tuple(view for view in self.weights if view.state != "absent" or view.is_suggested)

    @property
    def others(self) -> tuple[InstallView, ...]:
        """The other weights, which the page shows in a collapsed list."""
        return tuple(view for view in self.weights if view not in self.shown)

    @property
    def full(self) -> int:
        """The number of models that are served in full quality."""
        return sum(model.quality == "full" for model in self.models)

    @property
    def ready(self) -> int:
        """The number of models that can be used."""
        return sum(bool(model.quality) for model in self.models)


class EnginesPage:
    """The page of engines, and the forms that install and remove weights."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth

    async def show(self, _request: Request, user: PageUser) -> Response:
        """Show the tasks with their models, engines and weights."""
        return await self._render(user)

    def handler(self, change: Change) -> Handler:
        """Return the handler of a form about weights."""

        async def handle(request: Request, user: PageUser) -> Response:
            form = await self._auth.read_form(request, user)
            family, name = (requests.path_value(request, part) for part in ("family", "name"))
            try:
                await change(user.principal, family, name)
            except errors.Conflict as error:
                return await self._render(user, error.message)
            return RedirectResponse(_CHAT if form.get("back") == _CHAT else f"{PATH}#{family}.{name}", 303)

        return self._auth.page(handle)

    async def _render(self, user: PageUser, problem: str = "") -> Response:
        weights = await self._services.installs.view()
        groups = tuple(self._groups(weights))
        engines = self._services.catalog.engines()
        status_of = self._services.predictions.terms.status_of
        return self._pages.render(
            "admin/engines.html",
            user.session,
            status=409 if problem else 200,
            problem=problem,
            groups=groups,
            models=sum(len(group.models) for group in groups),
            full=sum(group.full for group in groups),
            running=[view for view in weights if view.state == "running"],
            ready=sum(status_of(name).ready for name in engines),
            total=len(engines),
            faults=sorted(self._services.model_faults.items()),
            gpus=self._services.gpu.reports(),
            workers=self._services.scheduler.snapshot(),
        )

    def _groups(self, weights: Sequence[InstallView]) -> Iterator[TaskGroup]:
        models = {**tasks.by_task(self._services.catalog.models()), _OTHER: []}
        unassigned, unused = dict(self._services.catalog.engines()), list(weights)
        for title, members in models.items():
            engines = {engine.name: engine for model in members for engine in model.engines}
            if title == _OTHER:
                engines |= unassigned
            families = {engine.family for engine in engines.values() if engine.family}
            views = [
                view
                for view in unused
                if title == _OTHER or _FAMILY_TASKS.get(view.family, "") == title or view.family in families
            ]
            unused = [view for view in unused if view not in views]
            for name in engines:
                unassigned.pop(name, None)
            if members or engines or views:
                yield self._group(title, members, engines, views)

    def _group(
        self, title: str, models: list[Model], engines: Mapping[str, EngineSpec], weights: list[InstallView]
    ) -> TaskGroup:
        status_of = self._services.predictions.terms.status_of
        states = [(spec, status_of(name)) for name, spec in engines.items()]
        missing = [spec for spec, status in states if not status.ready]
        ways = [
            (path, text, len({model.name for model in models for each in model.engines if each in lacking}))
            for kind, (path, text) in _WAYS.items()
            if (lacking := [spec for spec in missing if spec.kind == kind])
        ]
        return TaskGroup(
            title[:1].upper() + title[1:],
            tuple(self._served(model) for model in models),
            tuple(sorted(states, key=lambda state: not state[1].ready)),
            tuple(sorted(weights, key=lambda view: (view.state == "absent", not view.is_suggested))),
            tuple(ways),
        )

    def _served(self, model: Model) -> TaskModel:
        try:
            engine, quality = availability.serving(
                self._services.catalog, model, self._services.predictions.terms
            )
        except errors.EngineUnavailable:
            return TaskModel(model.name, model.title, "", "")
        return TaskModel(model.name, model.title, engine.name, quality)


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    page = EnginesPage(services, pages, auth)
    installs = services.installs
    changes = {"install": installs.start, "stop": installs.stop, "remove": installs.remove}
    return (
        RouteEntry(PATH, {"GET": auth.page(page.show)}, access=rights.OPERATE),
        *(
            form_route(f"{PATH}/{{family}}/{{name}}/{verb}", page.handler(change))
            for verb, change in changes.items()
        ),
    )
