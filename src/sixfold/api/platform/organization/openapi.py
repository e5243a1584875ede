"""The operations of organizations in the platform's OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from sixfold.api.platform.organization import schemas
from sixfold.web import openapi
from sixfold.web.openapi import OperationSpec

_Amount = str | float | None
_GONE = {204: {"description": "Done"}}


def _changes(title: str, /, **fields: Any) -> type[msgspec.Struct]:
    """Return a type for an object with any of `fields`."""
    return msgspec.defstruct(f"{title}Schema", [(field, kind, None) for field, kind in fields.items()])


_BUDGETS: dict[str, Any] = {"budget_day_usd": _Amount, "budget_month_usd": _Amount}
_NEW = msgspec.defstruct("NewOrganizationSchema", [("name", str)])
_BUDGET = _changes("OrganizationChanges", **_BUDGETS)
_MEMBER = _changes("MemberChanges", role=str, team_id=str | None, **_BUDGETS)
_TEAM = _changes("TeamChanges", name=str, **_BUDGETS)
_INVITATION = _changes("InvitationRequest", email=str, role=str, team_id=str | None, days=int)
_KEY = _changes(
    "OrganizationKeyRequest",
    name=str,
    team_id=str | None,
    rights=list[str],
    services=list[str],
    collections=list[str],
    rpm=int | None,
    tpm=int | None,
    **_BUDGETS,
)


def operations() -> dict[str, OperationSpec]:
    choice = openapi.response("The organization", schemas.OrganizationChoiceSchema)
    organization = openapi.response("The organization", schemas.OrganizationSchema)
    return {
        "GET /api/organization": OperationSpec("The organization of the key", {200: organization}),
        "PATCH /api/organization": OperationSpec(
            "Set the budgets of the whole organization", {200: organization}, (400,), _BUDGET
        ),
        "GET /api/organizations": OperationSpec(
            "The organizations that a person may act for",
            {200: _list("organizations", schemas.OrganizationChoiceSchema)},
        ),
        "POST /api/organizations": OperationSpec(
            "Create an organization without credit", {201: choice}, (400, 409), _NEW, (openapi.IDEMPOTENCY,)
        ),
        "POST /api/organization/accept": OperationSpec(
            "Accept an invitation",
            {201: choice},
            (400, 404, 409),
            openapi.shape("InvitationToken", token=str),
            (openapi.IDEMPOTENCY,),
        ),
        "POST /api/organization/transfer": OperationSpec(
            "Make a member the owner; an account with an e-mail address needs a `handle`, its new name",
            {200: openapi.response("The new owner", schemas.MemberSchema)},
            (400, 404, 409),
            _changes("Transfer", member_id=str, handle=str),
        ),
        **_members(),
        **_teams(),
    }


def _members() -> dict[str, OperationSpec]:
    root = "/api/organization"
    return {
        f"GET {root}/members": OperationSpec(
            "The owner and the members", {200: _list("members", schemas.MemberSchema)}
        ),
        f"PATCH {root}/members/{{member_id}}": OperationSpec(
            "Change the role, team or budgets of a member",
            {200: openapi.response("The member", schemas.MemberSchema)},
            (400, 404),
            _MEMBER,
        ),
        f"DELETE {root}/members/{{member_id}}": OperationSpec(
            "End a membership with its sessions, programs and keys", _GONE, (404,)
        ),
        f"GET {root}/invitations": OperationSpec(
            "The open invitations", {200: _list("invitations", schemas.InvitationSchema)}
        ),
        f"POST {root}/invitations": OperationSpec(
            "Invite a person by a link that is valid once",
            {201: openapi.response("The invitation with its link", schemas.NewInvitationSchema)},
            (400, 404, 409),
            _INVITATION,
        ),
        f"DELETE {root}/invitations/{{invitation_id}}": OperationSpec(
            "Withdraw an invitation", _GONE, (404,)
        ),
    }


def _teams() -> dict[str, OperationSpec]:
    root = "/api/organization"
    team = openapi.response("The team", schemas.TeamSchema)
    return {
        f"GET {root}/teams": OperationSpec("The teams", {200: _list("teams", schemas.TeamSchema)}),
        f"POST {root}/teams": OperationSpec(
            "Create a team", {201: team}, (400, 409), _TEAM, (openapi.IDEMPOTENCY,)
        ),
        f"PATCH {root}/teams/{{team_id}}": OperationSpec(
            "Change the name or budgets of a team", {200: team}, (400, 404, 409), _TEAM
        ),
        f"DELETE {root}/teams/{{team_id}}": OperationSpec(
            "Remove a team and revoke its own keys", _GONE, (404,)
        ),
        f"GET {root}/keys": OperationSpec(
            "All keys of the organization", {200: _list("keys", schemas.OrganizationKeySchema)}
        ),
        f"POST {root}/keys": OperationSpec(
            "Create a key of a team, or else of the caller",
            {201: openapi.response("The key", schemas.NewOrganizationKeySchema)},
            (400, 404),
            _KEY,
        ),
        f"DELETE {root}/keys/{{key_id}}": OperationSpec("Revoke a key", _GONE, (404,)),
    }


def _list(name: str, row: type) -> openapi.Node:
    kinds: dict[str, Any] = {name: list[row]}
    return openapi.response("A list", openapi.shape(f"Organization{name.capitalize()}", **kinds))
