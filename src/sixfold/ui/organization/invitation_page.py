"""`/invitation`: shows an invitation with its sender, organization and role, and accepts it."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.organizations import invitations
from sixfold.core.database import Transaction
from sixfold.ui import forms
from sixfold.ui.organization.members_page import PATH as MEMBERS
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

PATH = "/invitation"
_FORM_BYTES = 4096
_MAX_TOKEN = 100


class InvitationPage(PageHandlers):
    """The page of an invitation, and its form."""

    async def show(self, request: Request) -> Response:
        """Show the invitation of a link; a visitor signs in first and returns."""
        token = request.query_params.get("token", "")[:_MAX_TOKEN]
        session = await self._services.sessions.admitted(request)
        if session is None:
            back = f"{PATH}?token={quote(token, safe='')}"
            return RedirectResponse(f"/signin?next={quote(back, safe='')}", 303)
        return await self._render(session, token)

    async def accept(self, request: Request) -> Response:
        """Accept the invitation; the browser then acts for the organization."""
        self._services.trusted_hosts.admit(request)
        session, form = await forms.read_with_session(request, self._services.sessions)
        token = form.get("token", "")[:_MAX_TOKEN]

        def accepted() -> Transaction[str]:
            member = yield from invitations.accept(token, session.person_id)
            return (yield from login_sessions.act_for(session.token, member.account_id))

        try:
            joining = login_sessions.while_active(session.token, accepted())
            new_token = await self._services.database.write(joining)
        except (errors.Forbidden, errors.Conflict, errors.BadRequest) as error:
            return await self._render(session, token, error.message)
        except errors.NotFound:
            return self._expired(session)
        response = RedirectResponse(f"{MEMBERS}?done=joined", 303)
        self._services.sessions.set(response, new_token)
        return response

    async def _render(self, session: SessionCookie, token: str, problem: str = "") -> Response:
        read = self._services.database.read
        try:
            invitation = await read(invitations.find(token))
        except errors.NotFound:
            return self._expired(session)
        person = await read(accounts.by_id(session.person_id))
        values = {"invitation": invitation, "person": person, "token": token, "problem": problem}
        return self._pages.render(
            "account/invitation.html", session, status=400 if problem else 200, **values
        )

    def _expired(self, session: SessionCookie) -> Response:
        return self._pages.render("account/invitation_expired.html", session, status=404)


def routes(services: WebServices, pages: PageTemplates) -> tuple[RouteEntry, ...]:
    page = InvitationPage(services, pages)
    return (
        RouteEntry(
            PATH,
            {"GET": page.show, "POST": page.accept},
            _FORM_BYTES,
            access={"GET": rights.ACCOUNT_READ, "POST": rights.MEMBER_GRANT},
        ),
    )
