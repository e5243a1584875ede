"""The forms of the members page; each makes one change and redirects to the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import Holder
from sixfold.core.accounts.organizations import group_roles, invitations, members, organizations, teams
from sixfold.core.accounts.organizations.invitations import Inviter
from sixfold.core.accounts.rights import Access
from sixfold.core.database import T, Transaction, Value
from sixfold.ui.auth import session_page
from sixfold.ui.organization import members_page
from sixfold.ui.organization.members_page import PATH, MembersPage
from sixfold.web import requests
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

_FORM_BYTES = 16_384
Work = Callable[[Request, SessionCookie, dict[str, str]], Awaitable[Response]]


class MembersForms:
    """Handlers of the forms on the members page."""

    def __init__(self, services: WebServices, page: MembersPage) -> None:
        self._services = services
        self._page = page

    def handler(self, work: Work) -> Handler:
        """Return a handler that shows the page with the error if the form is refused."""

        async def handle(request: Request) -> Response:
            session, form = await self._page.read_form(request)
            try:
                return await work(request, session, form)
            except (errors.BadRequest, errors.Conflict) as error:
                return await self._page.render(session, problem=error.message)

        return handle

    async def _write(
        self, session: SessionCookie, transaction: Transaction[T], access: Access | None = None
    ) -> T:
        active = login_sessions.while_active(session.token, transaction, access)
        return await self._services.database.write(active)

    async def _done(self, session: SessionCookie, transaction: Transaction[object], done: str) -> Response:
        await self._write(session, transaction)
        return RedirectResponse(f"{PATH}?done={done}", 303)

    async def invite(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        """Invite a user and show the link once."""
        invitation = await self._write(
            session,
            invitations.create(
                session.account.id,
                Inviter(session.principal.email, session.principal.member_id),
                _role(form),
                form.get("email", ""),
                form.get("team_id") or None,
            ),
        )
        return await self._page.render(session, invitation=invitation)

    async def withdraw(self, request: Request, session: SessionCookie, _form: dict[str, str]) -> Response:
        invitation_id = requests.path_value(request, "invitation_id")
        return await self._done(session, invitations.withdraw(session.account.id, invitation_id), "changed")

    async def change(self, request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        """Change the role, team and budgets of a member."""
        member_id = requests.path_value(request, "member_id")
        changes: dict[str, Value] = {
            "team_id": form.get("team_id") or None,
            **members_page.budget_fields(form),
        }
        if "role" in form:
            changes["role"] = _role(form)
        return await self._done(session, members.change(session.account.id, member_id, **changes), "changed")

    async def remove(self, request: Request, session: SessionCookie, _form: dict[str, str]) -> Response:
        """End the membership of another user."""
        member_id = requests.path_value(request, "member_id")
        if member_id == session.principal.member_id:
            raise errors.BadRequest("Use Leave to end your own membership")
        return await self._done(session, members.remove(session.account.id, member_id), "removed")

    async def leave(self, _request: Request, session: SessionCookie, _form: dict[str, str]) -> Response:
        """End the user's membership; the browser then acts for the user's personal account."""
        member_id = session.principal.member_id
        if member_id is None:
            raise errors.BadRequest("You cannot leave your own account")
        moved = login_sessions.act_for(session.token, session.person_id)

        def ended() -> Transaction[str]:
            token = yield from moved
            yield from members.remove(session.account.id, member_id)
            return token

        token = await self._write(session, ended())
        return self._with_token(token, f"{PATH}?done=left")

    async def switch(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        """Switch this browser to another account of the user."""
        account_id = form.get("account_id", "")[:100]
        token = await self._write(session, login_sessions.act_for(session.token, account_id))
        return self._with_token(token, PATH)

    async def create(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        name = form.get("name", "").strip()
        group_roles.require_unassigned(session.principal, name, self._services.oidc.group_rules)

        def created() -> Transaction[str]:
            account = yield from organizations.create(session.person_id, name)
            return (yield from login_sessions.act_for(session.token, account.id))

        return self._with_token(await self._write(session, created()), PATH)

    async def transfer(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        member_id, handle = form.get("member_id", "")[:100], form.get("handle", "").strip()
        group_roles.require_unassigned(session.principal, handle, self._services.oidc.group_rules)
        transfer = organizations.transfer(session.account.id, member_id, handle)
        return await self._done(session, transfer, "transferred")

    async def budget(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        """Set the budgets of the whole organization."""
        day, month = (members_page.amount(form.get(name, "")) for name in ("budget_day", "budget_month"))
        return await self._done(session, organizations.set_budgets(session.account.id, day, month), "changed")

    async def create_team(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        day, month = (members_page.amount(form.get(name, "")) for name in ("budget_day", "budget_month"))
        team = teams.create(session.account.id, form.get("name", ""), day, month)
        return await self._done(session, team, "changed")

    async def change_team(self, request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        team_id = requests.path_value(request, "team_id")
        changes = {"name": form.get("name", ""), **members_page.budget_fields(form)}
        return await self._done(session, teams.change(session.account.id, team_id, **changes), "changed")

    async def remove_team(self, request: Request, session: SessionCookie, _form: dict[str, str]) -> Response:
        team_id = requests.path_value(request, "team_id")
        return await self._done(session, teams.remove(session.account.id, team_id), "changed")

    async def create_key(self, _request: Request, session: SessionCookie, form: dict[str, str]) -> Response:
        """Create a key for the user, or for a team if the user is an admin, and show it once."""
        principal, scope = session.principal, members_page.key_scope(form)
        _require_fresh(session)
        team_id = form.get("team_id") or None
        holder = Holder(principal.member_id, principal.team_id)
        grantable = principal.rights & scope.default_rights & ~rights.Rights.OPERATE
        access = rights.MEMBER_GRANT
        if team_id is not None:
            access = rights.ADMIN_GRANT
            principal.require(access)
            await self._services.database.read(teams.find(session.account.id, team_id))
            holder = Holder(None, team_id, creator_member_id=principal.member_id)
            grantable &= rights.OF_ROLE["member"]
        create = keys.create(session.account.id, scope, granted=grantable, holder=holder)
        key = await self._write(session, create, access)
        return await self._page.render(session, new_key=key)

    async def revoke_key(self, request: Request, session: SessionCookie, _form: dict[str, str]) -> Response:
        """Revoke a key of the user, or of any member or team if the user is an admin."""
        key_id = requests.path_value(request, "key_id")
        row = await self._services.database.read(keys.find(session.account.id, key_id))
        is_own = row["member_id"] == session.principal.member_id
        if session.principal.role == "member" and not is_own:
            raise errors.NotFound(f"Key {key_id[:60]} not found")
        return await self._done(session, keys.revoke(key_id), "revoked")

    def _with_token(self, token: str, path: str) -> Response:
        response = RedirectResponse(path, 303)
        self._services.sessions.set(response, token)
        return response


def _role(form: dict[str, str]) -> rights.Role:
    return "admin" if form.get("role") == "admin" else "member"


def _require_fresh(session: SessionCookie) -> None:
    """Raise `SignInAgain` unless the sign-in is recent, as for actions that require `account.manage`."""
    if not session.principal.is_fresh:
        raise errors.SignInAgain(PATH)


def routes(services: WebServices, page: MembersPage) -> tuple[RouteEntry, ...]:
    own = MembersForms(services, page)
    posts = (
        ("/account/switch", own.switch, rights.ACCOUNT_READ),
        (f"{PATH}/leave", own.leave, rights.ACCOUNT_READ),
        (f"{PATH}/keys", own.create_key, rights.MEMBER_GRANT),
        (f"{PATH}/keys/{{key_id}}/revoke", own.revoke_key, rights.ACCOUNT_READ),
        (f"{PATH}/invite", own.invite, rights.ADMIN_GRANT),
        (f"{PATH}/invitations/{{invitation_id}}/withdraw", own.withdraw, rights.ADMIN),
        (f"{PATH}/budget", own.budget, rights.ADMIN),
        (f"{PATH}/{{member_id}}", own.change, rights.ADMIN_GRANT),
        (f"{PATH}/{{member_id}}/remove", own.remove, rights.ADMIN),
        ("/account/teams", own.create_team, rights.ADMIN),
        ("/account/teams/{team_id}", own.change_team, rights.ADMIN),
        ("/account/teams/{team_id}/remove", own.remove_team, rights.ADMIN),
        (f"{PATH}/transfer", own.transfer, rights.OWNER_GRANT),
        ("/account/organizations", own.create, rights.PERSON_GRANT),
    )
    return (
        RouteEntry(PATH, {"GET": session_page(services, page.show)}, access=rights.ACCOUNT_READ),
        *(
            RouteEntry(path, {"POST": own.handler(work)}, _FORM_BYTES, access=access)
            for path, work, access in posts
        ),
    )
