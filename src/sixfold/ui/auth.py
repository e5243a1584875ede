"""Authentication of page requests by session cookie."""

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
    """The signed-in user of a page."""

    principal: Principal
    session: SessionCookie

    @property
    def account_id(self) -> str:
        """Return the ID of the user's account."""
        return self.principal.account_id

    @property
    def tenant(self) -> Tenant:
        """Return the tenant whose predictions the user may see."""
        return self.principal.tenant


class PageAuth:
    """Decorators that authenticate the handlers of pages and scripts."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def of(self, request: Request) -> PageUser | None:
        """Return the user of a request, or None; raises `Forbidden` for an untrusted Host header."""
        session = await self._services.sessions.admitted(request)
        return None if session is None else PageUser(session.principal, session)

    def page(self, work: Work) -> Handler:
        """Decorate a page handler; redirects anonymous users to the sign-in page."""

        async def handle(request: Request) -> Response:
            guest = await self.of(request)
            return to_sign_in(request) if guest is None else await work(request, guest)

        return handle

    def operators(self, work: Work) -> Handler:
        """Decorate a handler of the operator's pages; forms must have the CSRF token."""

        async def handle(request: Request, guest: PageUser) -> Response:
            if request.method not in ("GET", "HEAD"):
                token = (await forms.read(request)).get("csrf")
                self._services.sessions.check_csrf(request, guest.session, token)
            return await work(request, guest)

        return self.page(handle)

    def part(self, work: Work) -> Handler:
        """Decorate a handler for scripts; all methods but GET must have the CSRF token."""

        async def handle(request: Request) -> Response:
            guest = await self.of(request)
            if guest is None:
                raise errors.Unauthenticated("Sign in first")
            if request.method != "GET":
                token = request.headers.get(CSRF_HEADER)
                self._services.sessions.check_csrf(request, guest.session, token)
            return await work(request, guest)

        return handle


def to_sign_in(request: Request) -> Response:
    """Return a redirect to the sign-in page that leads back to the requested page."""
    path = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/signin?next={quote(path, safe='')}", 303)
