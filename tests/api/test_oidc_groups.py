"""Groups of an OpenID provider: memberships that they create and end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.accounts.organizations import group_roles, members, organizations
from sixfold.settings import InvalidSetting
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_oidc import app_with_provider, login_redirect
from tests.api.test_pages import signed_in
from tests.fakes.oidc import provider

RULES: dict[str, Any] = {
    "claim": "realm_access.roles",
    "groups": {
        "media": {"organization": "acme", "team": "Media"},
        "admins": {"organization": "acme", "role": "admin"},
    },
}


async def join(app: AppFixture, account_id: str) -> list[tuple[str, str, str | None]]:
    row = await app.database.read(members.of_account(account_id))
    return [(each.email, each.role, each.team) for each in row if each.source == "groups"]


async def test_memberships_follow_the_groups_at_each_sign_in(tmp_path: Path) -> None:
    async with provider() as result, app_with_provider(tmp_path, result, tables={"sign_in": RULES}) as app:
        write = app.database.write
        account = await write(organizations.create(app.account.id, "acme"))
        result.claims = {"sub": "eve-1", "email": "eve@example.com", "email_verified": True}

        async def signed_in(*groups: str) -> str:
            result.claims["realm_access"] = {"roles": list(groups)}
            visitor = app.visitor()
            assert (await visitor.get(result.grant(await login_redirect(visitor)))).status_code == 303
            return (await visitor.get("/account/members")).text

        assert (await app.visitor().get(result.grant(await login_redirect(app.visitor())))).status_code != 303
        page = await signed_in("media", "others")
        assert "You act for this organization as its member" in page
        assert await join(app, account.id) == [("eve@example.com", "member", "Media")]
        assert "as its admin" in await signed_in("media", "admins")
        assert await join(app, account.id) == [("eve@example.com", "admin", None)]
        result.claims.pop("realm_access")
        visitor = app.visitor()
        await visitor.get(result.grant(await login_redirect(visitor)))
        assert await join(app, account.id) != [], "a provider that says nothing changes nothing"
        assert "You act for this account as its owner" in await signed_in("others")
        assert await join(app, account.id) == []
        eve = await app.database.read(accounts.by_email("eve@example.com"))
        await write(members.add(account.id, eve.id, "admin", "invitation"))
        await signed_in("media")
        invited = await app.database.read(members.of_person(account.id, eve.id))
        assert invited is not None
        assert (invited.role, invited.source) == ("admin", "invitation")


async def test_users_cannot_take_the_name_of_a_groups_organization(either: Path) -> None:
    """The users of the group would join it, and its owner would see their work."""
    async with provider() as result, app_with_provider(either, result, tables={"sign_in": RULES}) as app:
        path = "/api/organizations"
        csrf = await signed_in(app)
        for name, status in (("acme", 403), ("acme-friends", 201)):
            response = await app.client.post(path, json={"name": name}, headers=app.bearer)
            assert response.status_code == status, response.text
        page = await app.client.post("/account/organizations", data={"csrf": csrf, "name": "acme"})
        assert (page.status_code, "[sign_in.groups]" in page.text) == (403, True)
        headers = bearer(await app.operator_key())
        assert (await app.client.post(path, json={"name": "acme"}, headers=headers)).status_code == 201


async def test_two_spellings_of_a_name_are_one_organization(tmp_path: Path) -> None:
    rules = {
        "groups": {
            "media": {"organization": "acme", "team": "Media"},
            "admins": {"organization": "Acme", "role": "admin"},
        }
    }
    async with provider() as result, app_with_provider(tmp_path, result, tables={"sign_in": rules}) as app:
        account = await app.database.write(organizations.create(app.account.id, "acme"))
        result.claims = {"sub": "eve-1", "email": "eve@example.com", "email_verified": True}
        result.claims["groups"] = ["media"]
        visitor = app.visitor()
        assert (await visitor.get(result.grant(await login_redirect(visitor)))).status_code == 303
        assert await join(app, account.id) == [("eve@example.com", "member", "Media")]


async def test_full_organization_does_not_prevent_a_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MAX_MEMBERS", 1)
    async with provider() as result, app_with_provider(tmp_path, result, tables={"sign_in": RULES}) as app:
        await app.database.write(organizations.create(app.account.id, "acme"))
        result.claims = {"sub": "eve-1", "email": "eve@example.com", "email_verified": True}
        result.claims["realm_access"] = {"roles": ["media"]}
        visitor = app.visitor()
        assert (await visitor.get(result.grant(await login_redirect(visitor)))).status_code == 303
        page = await visitor.get("/account/members")
        assert "You act for this account as its owner" in page.text


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({"groups": ["a", "b"]}, "groups", ("a", "b")),
        ({"hd": "example.com"}, "hd", ("example.com",)),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ("a",)),
        ({"realm_access": "roles"}, "realm_access.roles", None),
        ({"groups": [1]}, "groups", None),
        ({"_claim_names": {"groups": "src1"}}, "groups", None),
    ],
)
def test_groups_are_read_from_the_claims_of_providers(
    claims: dict[str, Any], claim: str, groups: tuple[str, ...] | None
) -> None:
    assert group_roles.groups_of(claims, claim) == groups


async def test_invalid_sign_in_table_prevents_startup(tmp_path: Path) -> None:
    wrong = {"groups": {"media": {"organization": "acme", "role": "owner"}}}
    async with provider() as result:
        with pytest.raises(InvalidSetting, match=r"\[sign_in\] is not valid.*owner"):
            async with app_with_provider(tmp_path, result, tables={"sign_in": wrong}):
                pass
