"""Forms that set and remove entries of the configuration; a refused one is shown again with the problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.ui.auth import PageAuth, PageHandler, PageUser
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 32_768
_MAX_NAME = 200


class Parsed(NamedTuple):
    """The entry that a form describes."""

    section: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class FormState:
    """A submitted form: its kind, the entry that it changes (`""` for a new one), fields and the problem."""

    form: str = ""
    entry: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""
    at: str = ""

    def refused(self, error: errors.BadRequest, default: str) -> FormState:
        """Return the state with the problem at its field; `default` is the field of a whole value."""
        name = error.problems[0].input if isinstance(error, errors.InvalidInput) else default
        return replace(self, problem=error.message, at=default if name == "value" else name)

    def of(self, form: str, entry: str) -> FormState:
        """Return this state if it is that of a form, else an empty one."""
        return self if (self.form, self.entry) == (form, entry) else FormState()


class EntryForms:
    """The forms of one page, which `render` shows."""

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
        parse: Callable[[Mapping[str, str]], Parsed],
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
        return RouteEntry(
            f"{self._path}/{name}",
            {"POST": self._auth.page(handler)},
            _FORM_BYTES,
            access=rights.OPERATE_CHANGES,
        )

    def removal(self, name: str, section: str, kind: str) -> RouteEntry:
        """Return the route of the form that removes an entry of a section."""

        async def remove(request: Request, user: PageUser) -> Response:
            form = await self._auth.read_form(request, user)
            entry = form.get("name", "")[:_MAX_NAME]
            try:
                await self._configuration.remove(user.principal, section, entry)
            except errors.InvalidInput as error:
                return await self._render(user, FormState(kind, entry, form).refused(error, "name"))
            return RedirectResponse(self._path, 303)

        return self.route(f"{name}/remove", remove)
