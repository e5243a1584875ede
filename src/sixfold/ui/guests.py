"""Who uses the pages: somebody signed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.ui import forms
from sixfold.web.routing import Handler
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

Work = Callable[[Request, "PageUser"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageUser:
    """Whose predictions these are."""

    principal: Principal
    session: SessionCookie

    @property
    def account_id(self) -> str:
        """The account."""
        return self.principal.account_id

    @property
    def tenant(self) -> Tenant:
        """Whose work the guest sees."""
        return self.principal.tenant


class PageAuth:
    """Lets guests in: to read, or to change something."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def of(self, request: Request) -> PageUser | None:
        """The guest of a request, None for a stranger; raises `Forbidden` for a Host that is not ours."""
        session = await self._services.sessions.admitted(request)
        return None if session is None else PageUser(session.principal, session)

    def page(self, work: Work) -> Handler:
        """A handler for people: whoever is nobody yet is sent to sign in."""

        async def handle(request: Request) -> Response:
            guest = await self.of(request)
            return to_sign_in(request) if guest is None else await work(request, guest)

        return handle

    def operators(self, work: Work) -> Handler:
        """A page or a form about all accounts; a form must carry the page's token."""

        async def handle(request: Request, guest: PageUser) -> Response:
            if request.method not in ("GET", "HEAD"):
                token = (await forms.read(request)).get("csrf")
                self._services.sessions.guard(request, guest.session, token)
            return await work(request, guest)

        return self.page(handle)

    def part(self, work: Work) -> Handler:
        """A handler for the pages' scripts; all but a GET must carry the page's token."""

        async def handle(request: Request) -> Response:
            guest = await self.of(request)
            if guest is None:
                raise errors.Unauthenticated("Sign in first")
            if request.method != "GET":
                token = request.headers.get(CSRF_HEADER)
                self._services.sessions.guard(request, guest.session, token)
            return await work(request, guest)

        return handle


def to_sign_in(request: Request) -> Response:
    """The way to sign in, and from there back to the page that was asked for."""
    path = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/signin?next={quote(path, safe='')}", 303)
