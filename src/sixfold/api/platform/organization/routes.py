"""`/api/organization`, the organization of the key, and `/api/organizations`, those of the user."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.platform.organization import fields, schemas
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.authentication import key_changes
from sixfold.core.accounts.keys import Holder, Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.organizations import group_roles, invitations, members, organizations, teams
from sixfold.core.accounts.organizations.invitations import Inviter
from sixfold.core.database import Transaction
from sixfold.web import idempotency, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_BODY_BYTES = 16_384


class OrganizationRoutes(ServiceHandlers):
    """Handlers for the organization, its members and teams."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._read = services.database.read

    async def _fields(self, request: Request, *names: str) -> tuple[Principal, dict[str, Any]]:
        return await self._enter(request), await fields.of_request(request, *names)

    # -- the organization --------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """Return the organization, with its budget for the owner and admins."""
        principal = await self._enter(request)
        return responses.unstored_json(await self._read(_organization(principal)))

    async def change(self, request: Request) -> Response:
        """Set the budgets of the whole organization."""
        principal, body = await self._fields(request, *fields.BUDGETS)
        changed = fields.changes(body)
        account = await self._read(accounts.by_id(principal.account_id))
        day, month = (changed.get(name, getattr(account, name)) for name in ("budget_day", "budget_month"))
        set_budgets = organizations.set_budgets(principal.account_id, _micros(day), _micros(month))
        await self._write(principal, set_budgets)
        return responses.unstored_json(await self._read(_organization(principal)))

    async def transfer(self, request: Request) -> Response:
        """Make a member the owner."""
        principal, body = await self._fields(request, "member_id", "handle")
        principal.require_grantable(rights.OF_ROLE["owner"])
        member_id, handle = fields.text(body, "member_id"), fields.text(body, "handle", "")
        group_roles.require_unassigned(principal, handle, self._services.oidc.group_rules)
        owner = await self._write(principal, organizations.transfer(principal.account_id, member_id, handle))
        return responses.json(schemas.member(owner, None))

    async def list_own(self, request: Request) -> Response:
        """Return the organizations for which the user of the key may act."""
        principal = await self._enter(request)
        rows = await self._read(organizations.of_person(principal.account_id))
        choices: list[schemas.OrganizationChoiceSchema] = [_choice(dict(row)) for row in rows]
        return responses.unstored_json({"organizations": choices})

    async def create(self, request: Request, principal: Principal) -> Response:
        """Create an organization without credit, owned by the user of the key."""
        body = await fields.of_request(request, "name")
        handle = fields.text(body, "name")
        group_roles.require_unassigned(principal, handle, self._services.oidc.group_rules)
        account = await self._write(principal, organizations.create(principal.account_id, handle))
        member = await self._read(members.of_person(account.id, principal.account_id))
        row = {"account_id": account.id, "name": account.email, "role": "owner"}
        return responses.json(_choice({**row, "member_id": None if member is None else member.id}), 201)

    # -- members -----------------------------------------------------------------------------------

    async def list_members(self, request: Request) -> Response:
        principal = await self._enter(request)
        return responses.unstored_json({"members": await self._read(_members(principal))})

    async def change_member(self, request: Request) -> Response:
        """Change the role, team or budgets of a member."""
        principal, body = await self._fields(request, "role", "team_id", *fields.BUDGETS)
        changed = fields.changes(body, "team_id")
        if "role" in body:
            changed["role"] = fields.role(body)
            principal.require_grantable(rights.OF_ROLE[fields.role(body)])
        member_id = requests.path_value(request, "member_id")
        member = await self._write(principal, members.change(principal.account_id, member_id, **changed))
        spending = await self._read(budgets.spent_now([member.id]))
        return responses.json(schemas.member(member, spending[member.id]))

    async def remove_member(self, request: Request) -> Response:
        """End a membership with its sessions, OAuth grants and keys."""
        principal = await self._enter(request)
        member_id = requests.path_value(request, "member_id")
        await self._write(principal, members.remove(principal.account_id, member_id))
        return Response(status_code=204)

    # -- invitations -------------------------------------------------------------------------------

    async def list_invitations(self, request: Request) -> Response:
        principal = await self._enter(request)
        rows = await self._read(invitations.of_account(principal.account_id))
        return responses.unstored_json({"invitations": [schemas.invitation(row) for row in rows]})

    async def invite(self, request: Request) -> Response:
        principal, body = await self._fields(request, "email", "role", "team_id", "days")
        role = fields.role(body)
        principal.require_grantable(rights.OF_ROLE[role])
        new = await self._write(
            principal,
            invitations.create(
                principal.account_id,
                Inviter(principal.email, principal.member_id, principal.key_id),
                role,
                fields.text(body, "email", ""),
                fields.optional_text(body, "team_id"),
                fields.integer(body, "days", invitations.DAYS),
            ),
        )
        url = f"{self._services.settings.base_url}/invitation?token={quote(new.token)}"
        result: schemas.NewInvitationSchema = {
            **schemas.invitation(new.invitation),
            "token": new.token,
            "url": url,
        }
        return responses.unstored_json(result, 201)

    async def withdraw(self, request: Request) -> Response:
        principal = await self._enter(request)
        invitation_id = requests.path_value(request, "invitation_id")
        await self._write(principal, invitations.withdraw(principal.account_id, invitation_id))
        return Response(status_code=204)

    async def accept(self, request: Request, principal: Principal) -> Response:
        """Accept an invitation as the user of the key."""
        body = await fields.of_request(request, "token")
        token = fields.text(body, "token")
        member = await self._write(principal, invitations.accept(token, principal.account_id))
        account = await self._read(accounts.by_id(member.account_id))
        row = {"account_id": account.id, "name": account.email, "role": member.role, "member_id": member.id}
        return responses.json(_choice(row), 201)

    # -- teams -------------------------------------------------------------------------------------

    async def list_teams(self, request: Request) -> Response:
        principal = await self._enter(request)
        return responses.unstored_json({"teams": await self._read(_teams(principal.account_id))})

    async def create_team(self, request: Request, principal: Principal) -> Response:
        body = await fields.of_request(request, "name", *fields.BUDGETS)
        name, budgets = fields.text(body, "name"), fields.changes(body)
        day, month = _micros(budgets.get("budget_day")), _micros(budgets.get("budget_month"))
        team = await self._write(principal, teams.create(principal.account_id, name, day, month))
        return responses.json(schemas.team(team, (0, 0)), 201)

    async def change_team(self, request: Request) -> Response:
        """Change the name or budgets of a team."""
        principal, body = await self._fields(request, "name", *fields.BUDGETS)
        changed = fields.changes(body)
        if "name" in body:
            changed["name"] = fields.text(body, "name")
        team_id = requests.path_value(request, "team_id")
        team = await self._write(principal, teams.change(principal.account_id, team_id, **changed))
        return responses.json(schemas.team(team, (await self._read(budgets.spent_now([team.id])))[team.id]))

    async def remove_team(self, request: Request) -> Response:
        """Remove a team and revoke its keys."""
        principal = await self._enter(request)
        team_id = requests.path_value(request, "team_id")
        await self._write(principal, teams.remove(principal.account_id, team_id))
        return Response(status_code=204)

    # -- keys --------------------------------------------------------------------------------------

    async def list_keys(self, request: Request) -> Response:
        principal = await self._enter(request)
        rows = await self._read(keys.of_account(principal.account_id))
        return responses.unstored_json({"keys": [schemas.key(row) for row in rows]})

    async def create_key(self, request: Request) -> Response:
        """Create a key of a team, or else of the caller."""
        principal, body = await self._fields(request, *fields.KEY)
        team_id, scope = fields.optional_text(body, "team_id"), fields.scope(body)
        holder, grantable = Holder(principal.member_id, principal.team_id), principal.rights
        if team_id is not None:
            await self._read(teams.find(principal.account_id, team_id))
            holder, grantable = Holder(None, team_id), grantable & rights.OF_ROLE["member"]
        key_rights = fields.granted(body, scope, grantable & ~rights.Rights.OPERATE)
        holder = holder._replace(name=fields.text(body, "name", ""))
        key = await self._write(principal, key_changes.create_with(principal, scope, key_rights, holder))
        result: schemas.NewOrganizationKeySchema = {"id": key.id, "api_key": key.api_key}
        return responses.unstored_json(result, 201)

    async def revoke_key(self, request: Request) -> Response:
        principal = await self._enter(request)
        key_id = requests.path_value(request, "key_id")
        await self._read(keys.find(principal.account_id, key_id))
        await self._write(principal, keys.revoke(key_id))
        return Response(status_code=204)


def _micros(value: Any) -> int | None:
    return None if value is None else int(value)


def _choice(row: dict[str, Any]) -> schemas.OrganizationChoiceSchema:
    return {
        "organization_id": row["account_id"],
        "name": row["name"],
        "role": row["role"],
        "member_id": row["member_id"],
    }


def _is_admin(principal: Principal) -> bool:
    return principal.role != "member"


def _organization(principal: Principal) -> Transaction[schemas.OrganizationSchema]:
    account = yield from accounts.by_id(principal.account_id)
    member_rows = yield from members.of_account(account.id)
    spending = (yield from budgets.spent_now([account.id]))[account.id]
    own_budget = schemas.budget(account.budget_day, account.budget_month, spending)
    return {
        "organization_id": account.id,
        "name": account.email,
        "role": schemas.role_name(principal.role),
        "member_id": principal.member_id,
        "members": len(member_rows) + account.has_sign_in,
        "budget": own_budget if _is_admin(principal) else None,
    }


def _members(principal: Principal) -> Transaction[list[schemas.MemberSchema]]:
    account = yield from accounts.by_id(principal.account_id)
    member_rows = yield from members.of_account(account.id)
    spending = yield from budgets.spent_now([member_row.id for member_row in member_rows])
    return [
        *([schemas.owner(account)] if account.has_sign_in else []),
        *(
            schemas.member(
                member_row,
                spending[member_row.id]
                if _is_admin(principal) or member_row.id == principal.member_id
                else None,
            )
            for member_row in member_rows
        ),
    ]


def _teams(account_id: str) -> Transaction[list[schemas.TeamSchema]]:
    team_rows = yield from teams.of_account(account_id)
    spending = yield from budgets.spent_now([team_row.id for team_row in team_rows])
    return [schemas.team(team_row, spending[team_row.id]) for team_row in team_rows]


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, size, root = OrganizationRoutes(services), _BODY_BYTES, "/api/organization"
    once = partial(services.idempotency.once, services.authenticator.bearer)
    shown_once = partial(idempotency.refused, services.authenticator.bearer)
    read_and_write = {"GET": rights.ADMIN_READ, "POST": rights.ADMIN}
    read_and_grant = {"GET": rights.ADMIN_READ, "POST": rights.ADMIN_GRANT}
    return (
        RouteEntry(
            root,
            {"GET": handlers.show, "PATCH": handlers.change},
            size,
            access={"GET": rights.ACCOUNT_READ, "PATCH": rights.ADMIN},
        ),
        RouteEntry(
            "/api/organizations",
            {"GET": handlers.list_own, "POST": once(handlers.create)},
            size,
            access={"GET": rights.PERSON_READ, "POST": rights.PERSON_GRANT},
        ),
        RouteEntry(f"{root}/accept", {"POST": once(handlers.accept)}, size, access=rights.PERSON_GRANT),
        RouteEntry(f"{root}/transfer", {"POST": handlers.transfer}, size, access=rights.OWNER_GRANT),
        RouteEntry(f"{root}/members", {"GET": handlers.list_members}, access=rights.ACCOUNT_READ),
        RouteEntry(
            f"{root}/members/{{member_id}}",
            {"PATCH": handlers.change_member, "DELETE": handlers.remove_member},
            size,
            access={"PATCH": rights.ADMIN_GRANT, "DELETE": rights.ADMIN},
        ),
        RouteEntry(
            f"{root}/invitations",
            {"GET": handlers.list_invitations, "POST": shown_once(handlers.invite)},
            size,
            access=read_and_grant,
        ),
        RouteEntry(
            f"{root}/invitations/{{invitation_id}}", {"DELETE": handlers.withdraw}, access=rights.ADMIN
        ),
        RouteEntry(
            f"{root}/teams",
            {"GET": handlers.list_teams, "POST": once(handlers.create_team)},
            size,
            access=read_and_write,
        ),
        RouteEntry(
            f"{root}/teams/{{team_id}}",
            {"PATCH": handlers.change_team, "DELETE": handlers.remove_team},
            size,
            access=rights.ADMIN,
        ),
        RouteEntry(
            f"{root}/keys",
            {"GET": handlers.list_keys, "POST": shown_once(handlers.create_key)},
            size,
            access=read_and_grant,
        ),
        RouteEntry(f"{root}/keys/{{key_id}}", {"DELETE": handlers.revoke_key}, access=rights.ADMIN),
    )
