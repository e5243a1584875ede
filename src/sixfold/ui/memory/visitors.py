"""Who may use the memory's pages: somebody signed in, or the holder of a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.memory.models import Caller
from sixfold.ui import forms
from sixfold.ui.guests import to_sign_in
from sixfold.web import auth
from sixfold.web.routing import Handler
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

Work = Callable[[Request, "MemoryUser"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """A caller of the memory, and the session of a browser; a key has none and needs no token in forms."""

    caller: Caller
    session: SessionCookie | None

    @property
    def csrf(self) -> str:
        """What every form carries."""
        return self.session.csrf if self.session is not None else ""


class MemoryAuth:
    """Lets visitors in, and takes forms from them."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    def page(self, work: Work) -> Handler:
        """A handler for people: whoever is nobody yet is sent to sign in."""

        async def handle(request: Request) -> Response:
            visitor = await self._visitor(request)
            return to_sign_in(request) if visitor is None else await work(request, visitor)

        return handle

    def part(self, work: Work) -> Handler:
        """A handler for the pages' script, and for forms: raises `Unauthenticated` for nobody."""

        async def handle(request: Request) -> Response:
            visitor = await self._visitor(request)
            if visitor is None:
                raise errors.Unauthenticated("Sign in first")
            return await work(request, visitor)

        return handle

    async def form(self, request: Request, visitor: MemoryUser) -> dict[str, str]:
        """The texts of a form that a page of ours has sent; raises `Forbidden` for any other."""
        form = await forms.read(request)
        self.guard(request, visitor, form.get("csrf"))
        return form

    def guard(self, request: Request, visitor: MemoryUser, csrf: str | None) -> None:
        """Raise `Forbidden` unless a change comes from a page of this visitor's session, or with a key."""
        if visitor.session is not None:
            token = csrf if csrf is not None else request.headers.get(CSRF_HEADER)
            self._services.sessions.guard(request, visitor.session, token)

    async def _visitor(self, request: Request) -> MemoryUser | None:
        if auth.bearer_token(request) is not None:
            return MemoryUser(Caller.of(await self._services.doors.bearer(request)), None)
        session = await self._services.sessions.admitted(request)
        if session is None:
            return None
        return MemoryUser(Caller.of(session.principal), session)
