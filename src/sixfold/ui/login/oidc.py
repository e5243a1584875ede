"""Sign-in with an OpenID Connect provider, and linking its identities to accounts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import auth_challenges, oidc_identities
from sixfold.core.accounts.authentication.oidc_identities import Identity
from sixfold.core.clock import SECOND_US
from sixfold.ui import forms
from sixfold.ui.login.sessions import LoginSessions
from sixfold.ui.templating import PageTemplates
from sixfold.web import sessions
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 16_384
_MAX_CHARS = 4096
_KIND = "openid"
_BACK = "/signin/oidc/callback"
_ANSWER = ("state", "code", "error", "iss")
_SECURITY = "/account/security"


class OidcLoginPages:
    """Redirects to the provider and verifies its callback."""

    def __init__(self, services: WebServices, pages: PageTemplates, entrance: LoginSessions) -> None:
        self._services = services
        self._pages = pages
        self._entrance = entrance
        self._back = f"{services.settings.base_url}{_BACK}"
        self._signup = services.settings.oidc_signup == "allow"

    async def begin(self, request: Request) -> Response:
        """Redirect to the provider to sign in."""
        self._services.trusted_hosts.admit(request)
        self._entrance.attempts.ask(request)
        following = sessions.own_path(request.query_params.get("next", ""))
        url, ticket = await self._begin({"next": following}, again="again" in request.query_params)
        response = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def link(self, request: Request) -> Response:
        """Redirect to the provider to link an identity to the signed-in account."""
        session, _ = await forms.signed(request, self._services.sessions)
        url, ticket = await self._begin({"account": session.account.id})
        response = self._pages.render("away.html", session, url=url, there=self._services.provider.name)
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def unlink(self, request: Request) -> Response:
        """Unlink the identity from the account."""
        session, _ = await forms.signed(request, self._services.sessions)
        work = oidc_identities.unlink(session.account.id, self._services.provider.issuer)
        await self._services.database.write(work)
        return RedirectResponse(f"{_SECURITY}?done=unlinked", 303)

    async def back(self, request: Request) -> Response:
        """Handle the callback, which is valid once and in the browser that started it."""
        if not self._services.trusted_hosts.trusts_host(request):
            raise errors.Forbidden("The Host header does not match this server")
        answer = {name: request.query_params[name] for name in _ANSWER if name in request.query_params}
        if any(len(value) > _MAX_CHARS for value in answer.values()):
            raise errors.BadRequest(f"Parameters must be at most {_MAX_CHARS} characters")
        ticket = self._services.sessions.ticket(request)
        kept = await self._services.database.write(auth_challenges.consume(_KIND, ticket))
        who = await self._services.provider.end(self._back, answer, kept)
        if owner := kept.get("account"):
            return await self._linked(request, owner, who)
        work = oidc_identities.account_of(who, signup=self._signup)
        account_id = await self._services.database.write(work)
        at = None if who.authenticated_at is None else who.authenticated_at * SECOND_US
        return await self._entrance.enter(request, account_id, "single sign-on", kept.get("next", ""), at)

    async def _linked(self, request: Request, owner: str, who: Identity) -> Response:
        session = await self._services.sessions.of(request)
        if session is None or session.account.id != owner:
            raise errors.Forbidden("The account that started linking is no longer signed in: start again")
        await self._services.database.write(oidc_identities.link(owner, who))
        return RedirectResponse(f"{_SECURITY}?done=linked", 303)

    async def _begin(self, about: dict[str, str], *, again: bool = False) -> tuple[str, str]:
        """Return the provider's URL and the ticket for the browser's cookie."""
        begun = await self._services.provider.begin(self._back, again=again)
        ticket = ids.secret("ticket")
        work = auth_challenges.create(_KIND, ticket, {**begun.content, **about})
        await self._services.database.write(work, durable=False)
        return begun.url, ticket


def routes(services: WebServices, pages: PageTemplates, entrance: LoginSessions) -> tuple[RouteEntry, ...]:
    """Return the routes, or none if no provider is configured."""
    if not services.provider.name:
        return ()
    door = OidcLoginPages(services, pages, entrance)
    return (
        RouteEntry("/signin/oidc", {"GET": door.begin}, access=rights.PUBLIC),
        RouteEntry(_BACK, {"GET": door.back}, access=rights.PUBLIC),
        RouteEntry("/account/identities", {"POST": door.link}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE),
        RouteEntry(
            "/account/identities/remove", {"POST": door.unlink}, _FORM_BYTES, access=rights.ACCOUNT_MANAGE
        ),
    )
