"""The OAuth consent page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import login_sessions, oauth, redirects
from sixfold.core.accounts.authentication.oauth import AuthorizationRequest
from sixfold.ui import forms
from sixfold.ui.templating import POLICY, PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

PATH = "/oauth/authorize"
_FORM_BYTES = 16_384
# Maximum length of one parameter.
_MAX_CHARS = 2000
_PARAMETERS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "resource",
    "code_challenge",
    "code_challenge_method",
)


class ConsentPages:
    """Shows the consent page and redirects back to the client with the decision."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        base = services.settings.base_url
        self._issuer = base
        self._resources = (base, f"{base}/mcp")

    async def show(self, request: Request) -> Response:
        """Show the consent page; redirect anonymous users to the sign-in page."""
        self._services.trusted_hosts.admit(request)
        parameters = {name: value for name, value in request.query_params.items() if name in _PARAMETERS}
        session = await self._services.sessions.of(request)
        authorization = await self._parse(parameters, redirect_errors=session is not None)
        if isinstance(authorization, Response):
            return authorization
        if session is None:
            query = urlencode({"next": f"{PATH}?{urlencode(parameters)}"})
            return RedirectResponse(f"/signin?{query}", 303)
        page = self._pages.render(
            "login/oauth_consent.html",
            session,
            program=authorization.client.name,
            target=_target_name(authorization.redirect_uri),
            scopes=[oauth.SCOPES[scope] for scope in authorization.scopes],
            parameters=parameters,
        )
        # The form's response redirects to the client's address, which the policy must allow.
        page.headers["Content-Security-Policy"] = POLICY.replace(
            "form-action 'self'",
            f"form-action 'self' {redirects.parse(authorization.redirect_uri).policy_source}",
        )
        return page

    async def decide(self, request: Request) -> Response:
        """Redirect to the client with a code, or with `access_denied`."""
        session, form = await forms.read_with_session(request, self._services.sessions)
        authorization = await self._parse(form, redirect_errors=True)
        if isinstance(authorization, Response):
            return authorization
        if form.get("decision") != "allow":
            return self._redirect(authorization.redirect_uri, authorization.state, error="access_denied")
        code = await self._services.database.write(
            login_sessions.while_active(
                session.token,
                oauth.grant(
                    session.account.id, authorization, session.principal.member_id, session.login_id or None
                ),
            )
        )
        return self._redirect(authorization.redirect_uri, authorization.state, code=code)

    async def _parse(
        self, parameters: Mapping[str, str], *, redirect_errors: bool
    ) -> AuthorizationRequest | Response:
        """Return the authorization request, or an error redirect to the client.

        No redirect is made until the address is known to belong to the client. Without `redirect_errors`,
        errors are raised as `BadRequest`: anyone can register a client, so a link to this page would
        redirect anonymous visitors to any site (RFC 9700, 4.11.2).
        """
        if any(len(value) > _MAX_CHARS for value in parameters.values()):
            raise errors.BadRequest(f"Parameters must have at most {_MAX_CHARS} characters")
        try:
            client = await self._services.database.read(oauth.client(parameters.get("client_id", "")))
        except oauth.OAuthError as error:
            raise errors.BadRequest(str(error)) from error
        uri = parameters.get("redirect_uri") or (
            client.redirect_uris[0] if len(client.redirect_uris) == 1 else ""
        )
        if not oauth.allows_redirect(client, uri):
            raise errors.BadRequest("redirect_uri is not registered for this client")
        try:
            return oauth.parse_authorization_request(client, uri, parameters, self._resources)
        except oauth.OAuthError as error:
            if not redirect_errors:
                raise errors.BadRequest(f"{error.code}: {error}") from error
            state = parameters.get("state")
            return self._redirect(uri, state, error=error.code, error_description=str(error))

    def _redirect(self, uri: str, state: str | None, **values: str) -> Response:
        response = {**values, "iss": self._issuer, **({"state": state} if state is not None else {})}
        separator = "&" if urlsplit(uri).query else "?"
        return RedirectResponse(f"{uri}{separator}{urlencode(response)}", 303, {"Cache-Control": "no-store"})


def _target_name(uri: str) -> str:
    """Return the redirect target in the form that the page shows."""
    parts = urlsplit(uri)
    return parts.hostname or f"the program that opens {parts.scheme}: links"


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    consent = ConsentPages(services, pages)
    return (
        RouteEntry(PATH, {"GET": consent.show, "POST": consent.decide}, _FORM_BYTES, access=rights.GRANT),
    )
