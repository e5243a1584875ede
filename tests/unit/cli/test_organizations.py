"""Commands for organizations, members and teams."""

from __future__ import annotations

from tests.unit.cli.conftest import Commands


def test_an_organization_is_built_and_shown(sixfold: Commands) -> None:
    for email in ("ada@example.com", "ben@example.com", "cleo@example.com"):
        sixfold.ok("account", "create", email)
    sixfold.ok("organization", "create", "acme", "--owner", "ada@example.com")
    assert "not valid" in sixfold.error_of("organization", "create", "Acme!", "--owner", "ada@example.com")
    assert "taken" in sixfold.error_of("organization", "create", "acme", "--owner", "ben@example.com")
    sixfold.ok("account", "credit", "acme", "50")
    assert "sign in with their own accounts" in sixfold.error_of("account", "link", "acme")
    sixfold.ok("team", "create", "acme", "Vision", "--budget-month", "100")
    sixfold.ok("member", "add", "acme", "ben@example.com", "--team", "Vision")
    assert "already" in sixfold.error_of("member", "add", "acme", "ben@example.com")
    assert "not found" in sixfold.error_of("member", "add", "acme", "cleo@example.com", "--team", "Sound")
    sixfold.ok("member", "change", "acme", "ben@example.com", "--role", "admin", "--budget-day", "2.5")
    assert "is not a valid budget" in sixfold.error_of("team", "budget", "acme", "Vision", "--budget-day=-1")
    assert "Specify --budget-day" in sixfold.error_of("team", "budget", "acme", "Vision")
    assert "Specify --budget-day" in sixfold.error_of("organization", "budget", "acme")
    sixfold.ok("team", "budget", "acme", "Vision", "--budget-month", "none", "--budget-day", "5")
    sixfold.ok("organization", "budget", "acme", "--budget-month", "500")
    assert "/invitation?token=invite_" in sixfold.ok("member", "invite", "acme", "cleo@example.com")["url"]
    assert sixfold.ok("team", "key", "acme", "Vision", "--budget-day", "1")["api_key"].startswith("sf_")
    result = sixfold.ok("organization", "show", "acme")
    assert (result["balance_usd"], result["budget_month_usd"]) == ("50.00", "500.00")
    assert [(each["email"], each["role"], each["team"]) for each in result["members"]] == [
        ("ada@example.com", "owner", None),
        ("ben@example.com", "admin", "Vision"),
    ]
    assert (result["teams"][0]["budget_day_usd"], result["teams"][0]["budget_month_usd"]) == ("5.00", None)
    ada, ben = sixfold("member", "list", "acme").out.splitlines()[1:]
    assert "0.00 of 2.50 USD this day" in ben
    # Nothing was spent, and nothing is limited.
    assert "0.00" not in ada


def test_an_organization_changes_hands_and_loses_members(sixfold: Commands) -> None:
    for email in ("ada@example.com", "ben@example.com"):
        sixfold.ok("account", "create", email)
    sixfold.ok("organization", "create", "acme", "--owner", "ada@example.com")
    assert "not a member" in sixfold.error_of("organization", "transfer", "acme", "ben@example.com")
    sixfold.ok("member", "add", "acme", "ben@example.com")
    assert "transfer" in sixfold.error_of("member", "remove", "acme", "ada@example.com")
    sixfold.ok("organization", "transfer", "acme", "ben@example.com")
    sixfold.ok("member", "remove", "acme", "ada@example.com")
    assert [each["email"] for each in sixfold.ok("member", "list", "acme")["members"]] == ["ben@example.com"]
    assert "own the organization acme" in sixfold.error_of("account", "delete", "ben@example.com", "--yes")
    sixfold.ok("team", "create", "acme", "Vision")
    sixfold.ok("team", "remove", "acme", "Vision")
    assert sixfold.ok("organization", "show", "acme")["teams"] == []


def test_an_unknown_organization_names_its_command(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "ada@example.com")
    error = sixfold.error_of("team", "create", "nope", "Vision")
    assert "create it with `sixfold organization create nope --owner EMAIL`" in error
    assert "`sixfold account create a@example.com`" in sixfold.error_of("member", "list", "a@example.com")
