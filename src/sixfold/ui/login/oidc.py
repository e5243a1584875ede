"""Sign-in with an OpenID Connect provider, and linking its identities to accounts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import auth_challenges, login_sessions, oidc_identities
from sixfold.core.accounts.authentication.login_sessions import SINGLE_SIGN_ON, ProvenLogin
from sixfold.core.accounts.authentication.oidc_identities import Identity
from sixfold.core.accounts.organizations import group_roles
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Transaction
from sixfold.ui import forms
from sixfold.ui.login.sessions import LoginService
from sixfold.ui.templating import PageTemplates
from sixfold.web import sessions
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 16_384
_MAX_CHARS = 4096
_KIND = "openid"
_CALLBACK = "/signin/oidc/callback"
_PARAMETERS = ("state", "code", "error", "iss")
_SECURITY = "/account/security"


class OidcLoginPages:
    """Redirects to the provider and verifies its callback."""

    def __init__(self, services: WebServices, pages: PageTemplates, login: LoginService) -> None:
        self._services = services
        self._pages = pages
        self._login = login
        self._callback_url = f"{services.settings.base_url}{_CALLBACK}"
        self._signup = services.settings.oidc_signup == "allow"

    async def begin(self, request: Request) -> Response:
        self._services.trusted_hosts.admit(request)
        self._login.attempts.count_challenge(request)
        next_path = sessions.own_path(request.query_params.get("next", ""))
        url, ticket = await self._begin({"next": next_path}, reauthenticate="again" in request.query_params)
        response = RedirectResponse(url, 303, {"Cache-Control": "no-store"})
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def link(self, request: Request) -> Response:
        """Redirect to the provider to link an identity to the signed-in account."""
        session, _ = await forms.read_with_session(request, self._services.sessions)
        url, ticket = await self._begin({"account": session.account.id})
        response = self._pages.render(
            "redirect.html", session, url=url, title=f"Redirect to {self._services.oidc.name}"
        )
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def unlink(self, request: Request) -> Response:
        session, _ = await forms.read_with_session(request, self._services.sessions)
        transaction = oidc_identities.unlink(session.account.id, self._services.oidc.issuer, session.token)
        await self._services.database.write(transaction)
        return RedirectResponse(f"{_SECURITY}?done=unlinked", 303)

    async def callback(self, request: Request) -> Response:
        """Handle the callback, which is valid once and in the browser that started it."""
        if not self._services.trusted_hosts.trusts_host(request):
            raise errors.Forbidden("The Host header does not match this server")
        parameters = {
            name: request.query_params[name] for name in _PARAMETERS if name in request.query_params
        }
        if any(len(value) > _MAX_CHARS for value in parameters.values()):
            raise errors.BadRequest(f"Parameters must be at most {_MAX_CHARS} characters")
        ticket = self._services.sessions.ticket(request)
        challenge = await self._services.database.write(auth_challenges.consume(_KIND, ticket))
        identity = await self._services.oidc.end(self._callback_url, parameters, challenge)
        if account_id := challenge.get("account"):
            return await self._link(request, account_id, identity)
        at = None if identity.authenticated_at is None else identity.authenticated_at * SECOND_US
        return await self._login.open_session(
            request, self._signed_in(identity), SINGLE_SIGN_ON, challenge.get("next", ""), at
        )

    def _signed_in(self, identity: Identity) -> Transaction[ProvenLogin]:
        """Return the account of an identity, and the organization that a group names."""
        rules = self._services.oidc.group_rules
        signup = self._signup or group_roles.may_create(identity.groups, rules)
        account_id = yield from oidc_identities.account_of(identity, signup=signup)
        organization_id = yield from group_roles.synchronize(account_id, identity.groups, rules)
        return ProvenLogin(account_id, organization_id)

    async def _link(self, request: Request, account_id: str, identity: Identity) -> Response:
        session = await self._services.sessions.of(request)
        if session is None or session.account.id != account_id:
            raise errors.Forbidden("The account that started linking is no longer signed in: start again")
        # The route of the callback is public, and the account may have been transferred since the start.
        link = oidc_identities.link(account_id, identity)
        await self._services.database.write(
            login_sessions.while_active(session.token, link, rights.PERSON_READ)
        )
        return RedirectResponse(f"{_SECURITY}?done=linked", 303)

    async def _begin(self, context: dict[str, str], *, reauthenticate: bool = False) -> tuple[str, str]:
        """Return the provider's URL and the ticket for the browser's cookie."""
        authorization = await self._services.oidc.begin(self._callback_url, reauthenticate=reauthenticate)
        ticket = ids.secret("ticket")
        transaction = auth_challenges.create(_KIND, ticket, {**authorization.content, **context})
        await self._services.database.write(transaction, durable=False)
        return authorization.url, ticket


def routes(services: WebServices, pages: PageTemplates, login: LoginService) -> tuple[RouteEntry, ...]:
    """Return the routes, or an empty tuple if a provider is not configured."""
    if not services.oidc.name:
        return ()
    oidc = OidcLoginPages(services, pages, login)
    return (
        RouteEntry("/signin/oidc", {"GET": oidc.begin}, access=rights.PUBLIC),
        RouteEntry(_CALLBACK, {"GET": oidc.callback}, access=rights.PUBLIC),
        RouteEntry("/account/identities", {"POST": oidc.link}, _FORM_BYTES, access=rights.PERSON),
        RouteEntry("/account/identities/remove", {"POST": oidc.unlink}, _FORM_BYTES, access=rights.PERSON),
    )
