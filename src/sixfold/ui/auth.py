"""Authentication of page requests by session cookie, and on the memory's pages also by API key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import connections
from sixfold.core.accounts.connections import Credential
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.memory.models import Caller
from sixfold.core.memory.sharing import folders
from sixfold.ui import forms
from sixfold.web import requests
from sixfold.web.auth import bearer_token
from sixfold.web.routing import Handler
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

SessionHandler = Callable[[Request, SessionCookie], Awaitable[Response]]
PageHandler = Callable[[Request, "PageUser"], Awaitable[Response]]


class PageUser(msgspec.Struct, frozen=True):
    """The user of a page; requests with an API key do not have a session and do not need a CSRF token."""

    principal: Principal
    session: SessionCookie | None

    @property
    def account_id(self) -> str:
        return self.principal.account_id

    @property
    def tenant(self) -> Tenant:
        """The tenant whose predictions the user may see."""
        return self.principal.tenant

    @property
    def caller(self) -> Caller:
        """The user as a caller of the memory; raises `Forbidden` if the user has no right to it."""
        return Caller.of(self.principal)

    @property
    def memory_path(self) -> str:
        """The path of the memory's pages: those of the account, or of a shared folder."""
        shared = self.principal.memory
        return "/memory" if shared is None else f"/memory/~shared/{shared.id}"

    @property
    def csrf(self) -> str:
        """The CSRF token for forms."""
        return "" if self.session is None else self.session.csrf


class PageAuth:
    """Decorators that authenticate the handlers of pages, forms and scripts."""

    def __init__(self, services: WebServices, *, api_keys: bool = False) -> None:
        """Create the decorators; with `api_keys`, a key in the Authorization header is accepted too."""
        self._services = services
        self._api_keys = api_keys

    async def user(self, request: Request) -> PageUser | None:
        """Return the user of a request, or None; raises `Forbidden` for an untrusted Host header."""
        if self._api_keys and bearer_token(request) is not None:
            return PageUser(await self._services.authenticator.bearer(request), None)
        session = await self._services.sessions.admitted(request)
        return None if session is None else PageUser(session.principal, session)

    def page(self, handler: PageHandler) -> Handler:
        """Decorate a page handler; redirects anonymous users to the sign-in page."""

        async def handle(request: Request) -> Response:
            user = await self.user(request)
            return redirect_to_sign_in(request) if user is None else await handler(request, user)

        return handle

    def signed_in(self, handler: PageHandler) -> Handler:
        """Decorate a handler that reads its form with `read_form`; anonymous users receive a 401."""

        async def handle(request: Request) -> Response:
            user = await self.user(request)
            if user is None:
                raise errors.Unauthenticated("Sign in first")
            return await handler(request, user)

        return handle

    def script(self, handler: PageHandler) -> Handler:
        """Decorate a handler for scripts; all methods but GET require the CSRF token in a header.

        Neither browsers nor proxies store the response, unless its handler allows it.
        """

        async def handle(request: Request, user: PageUser) -> Response:
            if request.method != "GET":
                self.check_csrf(request, user, request.headers.get(CSRF_HEADER))
            response = await handler(request, user)
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return self.signed_in(handle)

    def operator(self, handler: PageHandler) -> Handler:
        """Decorate a handler of the operator's pages; forms require the CSRF token."""

        async def handle(request: Request, user: PageUser) -> Response:
            if request.method not in ("GET", "HEAD"):
                await self.read_form(request, user)
            return await handler(request, user)

        return self.page(handle)

    async def read_form(self, request: Request, user: PageUser) -> dict[str, str]:
        """Return the fields of a form after the CSRF check; raises `Forbidden`."""
        form = await forms.read(request)
        self.check_csrf(request, user, form.get("csrf", request.headers.get(CSRF_HEADER)))
        return form

    def check_csrf(self, request: Request, user: PageUser, token: str | None) -> None:
        """Raise `Forbidden` unless the request has an API key or the CSRF token of its session."""
        if user.session is not None:
            self._services.sessions.check_csrf(request, user.session, token)


class SharedFolderAuth(PageAuth):
    """Authenticates users for a shared folder of another account's memory, which the path names."""

    async def user(self, request: Request) -> PageUser | None:
        """Return the user with access to the folder; raises `NotFound` if it is not shared with them."""
        user = await super().user(request)
        if user is None:
            return None
        access = folders.access(user.principal, requests.path_value(request, "folder_id"))
        shared = await self._services.database.read(access, snapshot=False)
        connections.shared_folder.set(Credential("folder", shared.id))
        return replace(user, principal=replace(user.principal, memory=shared))


def session_page(services: WebServices, handler: SessionHandler) -> Handler:
    """Decorate the handler of a page of an account; redirects anonymous users to the sign-in page."""

    async def handle(request: Request) -> Response:
        session = await services.sessions.admitted(request)
        return redirect_to_sign_in(request) if session is None else await handler(request, session)

    return handle


def redirect_to_sign_in(request: Request) -> Response:
    """Return a redirect to the sign-in page that leads back to the requested page."""
    path = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/signin?next={quote(path, safe='')}", 303)
