"""Budgets of members, teams and organizations: exact under concurrency, and fully released."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, keys, ledger, ledger_batches, ledger_queries
from sixfold.core.accounts.keys import Budget, Holder, KeyLimits, Principal
from sixfold.core.accounts.ledger import LedgerEntry
from sixfold.core.accounts.ledger_batches import Capture, DirectCharge, HoldRequest
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.organizations import members, organizations, teams
from sixfold.core.database import Database
from sixfold.store.postgres import connection as connections
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, databases

# The last schema version without budgets of the operator.
BEFORE = 73
OLD_BUDGETS = [
    "INSERT INTO account (id, kind, email, budget_day, budget_month, created_at) "  # noqa: S608 - of this file
    f"VALUES ('{name}', 'customer', '{name}@example.com', 5, NULL, 1)"
    for name in ("own", "limited")
] + [
    "INSERT INTO operator_action (id, actor_id, actor, action, target, before, after, created_at) "
    "VALUES ('act', 'root', 'root', 'account.budgets', 'limited', '', '', 1)"
]
COUNT = "SELECT COUNT(*) AS total FROM account WHERE budget_day = 5 AND budget_month IS NULL"
ENTRY = LedgerEntry("charge", "ra1")
CREDIT = 1_000_000


class Lab:
    """An organization with a member in a team, and a key of each."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.account_id = self.team_id = self.member_id = ""
        self.of_member: Any = None
        self.of_team: Any = None

    async def build(self, *, team: int | None = None, key: int | None = None) -> Lab:
        """Create the organization, with monthly budgets for the team and the member's key."""
        write = self.database.write
        account = await write(accounts.create("lab@example.com", credit=CREDIT))
        person = await write(accounts.create("ada@example.com"))
        self.account_id = account.id
        self.team_id = (await write(teams.create(account.id, "Vision", None, team))).id
        member = await write(members.add(account.id, person.id, "member", "operator", self.team_id))
        self.member_id = member.id
        own = keys.create(account.id, KeyLimits(budget_month=key), holder=Holder(member.id, self.team_id))
        shared = keys.create(account.id, holder=Holder(None, self.team_id))
        self.of_member, self.of_team = (await write(own)).api_key, (await write(shared)).api_key
        return self

    async def principal(self, key: str) -> Principal:
        return await self.database.read(keys.authenticate(key))

    async def payer(self, key: str) -> budgets.Payer:
        result = budgets.payer_of(await self.principal(key))
        assert result is not None
        return result

    async def spent(self) -> list[int]:
        """Return the spending of the member, the team and the organization this month."""
        ids = [self.member_id, self.team_id, self.account_id]
        row = await self.database.read(budgets.spent_now(ids))
        assert all(day == month for day, month in row.values())
        return [row[each][1] for each in ids]


@pytest.fixture(params=databases.BACKENDS)
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    async with databases.OPENERS[request.param](tmp_path, None) as database:
        yield Lab(database)


async def test_a_refund_returns_the_amount_to_every_budget_once(lab: Lab) -> None:
    await lab.build(team=100)
    write, payer = lab.database.write, await lab.payer(lab.of_member)
    for hold_id, amount in (("hold_kept", 20), ("hold_refunded", 50)):
        await write(ledger.hold(lab.account_id, hold_id, amount, payer))
        await write(ledger.capture(hold_id, amount, ENTRY))
    assert (await lab.spent())[:2] == [70, 70]
    amounts = [await write(ledger.refund("hold_refunded", LedgerEntry("refund", "ra1"))) for _ in range(2)]
    assert (amounts, (await lab.spent())[:2]) == ([50, 0], [20, 20])
    assert await lab.database.read(ledger_queries.verify()) == ()


async def test_fifty_calls_at_once_stay_within_the_teams_budget(lab: Lab) -> None:
    await lab.build(team=100)
    payers = [await lab.payer(lab.of_member), await lab.payer(lab.of_team)]

    async def call(number: int) -> str:
        try:
            payer = payers[number % 2]
            await lab.database.write(ledger.hold(lab.account_id, f"hold_{number}", 7, payer))
        except errors.BudgetExceeded as error:
            return error.message
        return ""

    answers = await asyncio.gather(*(call(number) for number in range(50)))
    results = [not answer for answer in answers]
    assert sum(results) == 14, "14 times 7 fit into 100"
    refusals = {answer for answer in answers if answer}
    assert all("The team's budget of 0.0001 USD per month" in answer for answer in refusals)
    hold_total = (await lab.database.read(accounts.by_id(lab.account_id))).held
    assert (hold_total, (await lab.spent())[1]) == (98, 98)
    for number, accepted in enumerate(results):
        if accepted:
            await lab.database.write(ledger.capture(f"hold_{number}", 3, ENTRY))
    assert (await lab.spent())[1] == 14 * 3
    assert await lab.database.read(ledger_queries.verify()) == ()


async def test_a_batch_counts_every_level_and_returns_the_rest(lab: Lab) -> None:
    await lab.build(team=100, key=60)
    await lab.database.write(organizations.set_budgets(lab.account_id, None, 90))
    member, team = await lab.payer(lab.of_member), await lab.payer(lab.of_team)
    assert len(member.counted.split()) == 4
    write = lab.database.write
    held_at = await write(
        ledger_batches.book(
            holds=[
                HoldRequest(lab.account_id, "h1", 30, member),
                HoldRequest(lab.account_id, "h2", 20, team),
            ],
            charges=[DirectCharge(lab.account_id, "c1", 10, 5, ENTRY, member)],
        )
    )
    assert await lab.spent() == [35, 55, 55]
    for payer, amount, owner in ((member, 26, "This key's"), (team, 36, "This account's")):
        with pytest.raises(errors.BudgetExceeded, match=owner):
            await write(ledger_batches.book(holds=[HoldRequest(lab.account_id, "h3", amount, payer)]))
    assert await lab.spent() == [35, 55, 55]
    captures = [
        Capture(lab.account_id, "h1", 30, 10, ENTRY, member.counted, held_at),
        Capture(lab.account_id, "h2", 20, 0, ENTRY, team.counted, held_at),
    ]
    await write(ledger_batches.capture_all(captures))
    assert await lab.spent() == [15, 15, 15]
    assert await lab.database.read(budgets.unspent(member)) == 45
    assert await lab.database.read(ledger_queries.verify()) == ()


async def test_a_budget_outlives_moves_and_removals_of_holders(lab: Lab) -> None:
    await lab.build(team=100)
    write, payer = lab.database.write, await lab.payer(lab.of_member)
    await write(ledger.hold(lab.account_id, "h1", 30, payer))
    await write(ledger.hold(lab.account_id, "h2", 30, payer))
    other = await write(teams.create(lab.account_id, "Sound"))
    await write(members.change(lab.account_id, lab.member_id, team_id=other.id))
    assert (await lab.principal(lab.of_member)).team_id == other.id
    await write(ledger.capture("h1", 10, ENTRY))
    assert await lab.spent() == [40, 40, 0]
    await write(members.remove(lab.account_id, lab.member_id))
    await write(teams.remove(lab.account_id, lab.team_id))
    await write(ledger.release("h2"))
    assert await lab.spent() == [10, 10, 0]
    with pytest.raises(errors.Unauthenticated):
        await lab.principal(lab.of_team)


async def test_new_budget_counts_earlier_charges(lab: Lab) -> None:
    await lab.build()
    write = lab.database.write
    plain = (await write(keys.create(lab.account_id))).api_key
    assert budgets.payer_of(await lab.principal(plain)) is None, "an account alone has nothing to count"
    for number, charged in enumerate((40, 25)):
        await write(ledger.hold(lab.account_id, f"h{number}", 50))
        await write(ledger.capture(f"h{number}", charged, ENTRY))
    assert await write(ledger.refund("h1", LedgerEntry("refund", "ra1"))) == 25
    await write(ledger.hold(lab.account_id, "before", 30))
    await write(organizations.set_budgets(lab.account_id, 100, 100))
    assert (await lab.spent())[2] == 40
    await write(ledger.capture("before", 30, ENTRY))
    payer = budgets.payer_of(await lab.principal(plain))
    assert payer is not None
    with pytest.raises(errors.BudgetExceeded, match=r"This account's budget of 0\.0001 USD per day has"):
        await write(ledger.hold(lab.account_id, "after", 61, payer))
    await write(ledger.hold(lab.account_id, "after", 60, payer))
    owner = (await lab.database.read(accounts.by_id(lab.account_id))).owner
    assert budgets.payer_of(owner) == budgets.Payer("", shared=owner.budgets)
    # A budget that is removed and set again counts what its own holds reserve.
    await write(organizations.set_budgets(lab.account_id, None, None))
    await write(organizations.set_budgets(lab.account_id, 100, None))
    await write(ledger.release("after"))
    assert (await lab.spent())[2] == 40 + 30


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_refund_of_last_month_adds_nothing_to_a_new_budget(backend: str, tmp_path: Path) -> None:
    last_day = 1_793_404_800 * 1_000_000  # 31 October 2026
    clock = {"now": last_day}
    async with databases.OPENERS[backend](tmp_path, lambda: clock["now"]) as database:
        lab = await Lab(database).build()
        await database.write(ledger.hold(lab.account_id, "october", 80))
        await database.write(ledger.capture("october", 80, ENTRY))
        clock["now"] += 2 * 86_400 * 1_000_000
        await database.write(ledger.hold(lab.account_id, "november", 30))
        await database.write(ledger.capture("november", 30, ENTRY))
        await database.write(ledger.refund("october", LedgerEntry("refund", "ra1")))
        await database.write(organizations.set_budgets(lab.account_id, 100, 100))
        assert (await lab.spent())[2] == 30


async def test_returning_member_has_the_budget_from_before_removal(lab: Lab) -> None:
    """For example, a group of the sign-in provider adds a former member again."""
    await lab.build()
    write, account_id = lab.database.write, lab.account_id
    await write(members.change(account_id, lab.member_id, budget_day=100))
    await write(ledger.hold(account_id, "held", 90, await lab.payer(lab.of_member)))
    before = await lab.database.read(members.find(account_id, lab.member_id))
    await write(members.remove(account_id, lab.member_id))
    second_member = await write(members.add(account_id, before.person_id, "member", "groups"))
    assert (second_member.id, second_member.budget_day, second_member.budget_month) == (before.id, 100, None)
    assert second_member.key_id != before.key_id
    api_key = (await write(keys.create(account_id, holder=Holder(second_member.id, None)))).api_key
    with pytest.raises(errors.BudgetExceeded):
        await write(ledger.hold(account_id, "more", 11, await lab.payer(api_key)))
    await write(ledger.release("held"))
    await write(ledger.hold(account_id, "more", 100, await lab.payer(api_key)))
    assert await lab.database.read(ledger_queries.verify()) == ()


async def upgrade(folder: Path, backend: str) -> None:
    """Create a migrated database with budgets of the previous version."""
    url = backends.database_url(folder, backend)
    if backend == "sqlite":
        connection = sqlite3.connect(folder / databases.FILE, isolation_level=None)
        sqlite.migrate(connection, BEFORE)
        for statement in OLD_BUDGETS:
            connection.execute(statement)
        sqlite.migrate(connection)
        sqlite.migrate(connection, BEFORE)
        assert connection.execute(COUNT).fetchone() == (2,)
        sqlite.migrate(connection)
        connection.close()
        return
    served = await connections.connect(url)
    try:
        await connections.migrate(served, BEFORE)
        for statement in OLD_BUDGETS:
            await served.execute(statement)
        await connections.migrate(served)
        await connections.migrate(served, BEFORE)
        (row,) = await served.fetch(COUNT)
        assert row["total"] == 2
        await connections.migrate(served)
    finally:
        await connections.close(served)


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_upgrade_keeps_budgets_set_by_the_operator(tmp_path: Path, backend: str) -> None:
    await upgrade(tmp_path, backend)
    async with databases.running_database(backend, tmp_path) as database:
        for name, budgets in (("own", (5, None)), ("limited", (None, 5))):
            account = await database.read(accounts.by_id(name))
            assert (account.budget_day, account.operator_day) == budgets
            assert account.budgets == (Budget(name, 5, None),)
