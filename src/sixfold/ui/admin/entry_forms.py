"""Forms that set and remove configuration entries; a rejected form is shown again with the problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.configuration.ports import ConfigurationView
from sixfold.ui.auth import PageAuth, PageHandler, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 32_768
_MAX_NAME, _MAX_DIGITS = 200, 12


class ParsedEntry(NamedTuple):
    """The configuration entry in a form: section, name and value."""

    section: str
    name: str
    value: Any


class FormState(msgspec.Struct, frozen=True):
    """A submitted form: its kind, the entry that it changes (`""` for a new one), fields and the problem."""

    form: str = ""
    entry: str = ""
    values: Mapping[str, str] = {}
    problem: str = ""
    at: str = ""

    def refused(self, error: errors.BadRequest, default: str) -> FormState:
        """Return the state with an error at its field; errors of the whole value are at `default`."""
        name = error.problems[0].input if isinstance(error, errors.InvalidInput) else default
        return replace(self, problem=error.message, at=default if name == "value" else name)

    def of(self, form: str, entry: str) -> FormState:
        """Return this state if it belongs to the form for `entry`, or else an empty state."""
        return self if (self.form, self.entry) == (form, entry) else FormState()


class EntryPage(ABC):
    """A page of configuration entries with their forms."""

    template: str

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages

    async def show(self, _request: Request, user: PageUser) -> Response:
        return await self.render(user)

    async def render(self, user: PageUser, state: FormState | None = None, **values: Any) -> Response:
        """Show the page; `state` is a submitted form, `values` are further values of the template."""
        view = await self._services.configuration.view()
        return self._pages.render(
            self.template,
            user.session,
            status=400 if state is not None and state.problem else 200,
            view=view,
            state=state or FormState(),
            **{**await self.values(view), **values},
        )

    @abstractmethod
    async def values(self, view: ConfigurationView) -> dict[str, Any]:
        """Return the values of the template besides `view` and `state`."""


def whole_number(text: str, highest: int) -> int | None:
    """Return the number of a field, or None if it is not a whole number from 0 to `highest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    return number if (number := int(text)) <= highest else None


def form_route(path: str, handler: Handler) -> RouteEntry:
    """Return the route of a form that changes the configuration."""
    return RouteEntry(path, {"POST": handler}, _FORM_BYTES, access=rights.OPERATE_CHANGES)


class EntryForms:
    """The form handlers of one page; `render` shows the page with a rejected form."""

    def __init__(
        self,
        services: WebServices,
        auth: PageAuth,
        path: str,
        render: Callable[[PageUser, FormState], Awaitable[Response]],
    ) -> None:
        self._configuration = services.configuration
        self._auth = auth
        self._path = path
        self._render = render

    async def save(
        self,
        user: PageUser,
        form: Mapping[str, str],
        kind: str,
        parse: Callable[[Mapping[str, str]], ParsedEntry],
        default: str,
    ) -> Response:
        """Set the entry of a form; `default` is the field at which a problem of the value is shown."""
        state = FormState(kind, form.get("original", ""), form)
        try:
            parsed = parse(form)
            await self._configuration.put(user.principal, *parsed)
        except errors.BadRequest as error:
            return await self._render(user, state.refused(error, default))
        return RedirectResponse(self._path, 303)

    def route(self, name: str, handler: PageHandler) -> RouteEntry:
        return form_route(f"{self._path}/{name}", self._auth.page(handler))

    def removal(self, name: str, section: str, kind: str) -> RouteEntry:
        async def remove(request: Request, user: PageUser) -> Response:
            form = await self._auth.read_form(request, user)
            entry = form.get("name", "")[:_MAX_NAME]
            try:
                await self._configuration.remove(user.principal, section, entry)
            except errors.InvalidInput as error:
                return await self._render(user, FormState(kind, entry, form).refused(error, "name"))
            return RedirectResponse(self._path, 303)

        return self.route(f"{name}/remove", remove)
