"""Authentication of the memory's pages by session cookie or API key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.memory.models import Caller
from sixfold.ui import forms
from sixfold.ui.auth import to_sign_in
from sixfold.web import auth
from sixfold.web.routing import Handler
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

Work = Callable[[Request, "MemoryUser"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """A caller of the memory with its session; API keys have no session and need no CSRF token."""

    caller: Caller
    session: SessionCookie | None

    @property
    def csrf(self) -> str:
        """Return the CSRF token for forms."""
        return self.session.csrf if self.session is not None else ""


class MemoryAuth:
    """Decorators that authenticate handlers, and CSRF checks of forms."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    def page(self, work: Work) -> Handler:
        """Decorate a page handler; redirects anonymous users to the sign-in page."""

        async def handle(request: Request) -> Response:
            visitor = await self._visitor(request)
            return to_sign_in(request) if visitor is None else await work(request, visitor)

        return handle

    def part(self, work: Work) -> Handler:
        """Decorate a handler for scripts and forms; raises `Unauthenticated` for anonymous users."""

        async def handle(request: Request) -> Response:
            visitor = await self._visitor(request)
            if visitor is None:
                raise errors.Unauthenticated("Sign in first")
            return await work(request, visitor)

        return handle

    async def form(self, request: Request, visitor: MemoryUser) -> dict[str, str]:
        """Return the fields of a form after the CSRF check; raises `Forbidden`."""
        form = await forms.read(request)
        self.guard(request, visitor, form.get("csrf"))
        return form

    def guard(self, request: Request, visitor: MemoryUser, csrf: str | None) -> None:
        """Raise `Forbidden` unless the request has an API key or the CSRF token of its session."""
        if visitor.session is not None:
            token = csrf if csrf is not None else request.headers.get(CSRF_HEADER)
            self._services.sessions.check_csrf(request, visitor.session, token)

    async def _visitor(self, request: Request) -> MemoryUser | None:
        if auth.bearer_token(request) is not None:
            return MemoryUser(Caller.of(await self._services.authenticator.bearer(request)), None)
        session = await self._services.sessions.admitted(request)
        if session is None:
            return None
        return MemoryUser(Caller.of(session.principal), session)
