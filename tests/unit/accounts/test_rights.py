"""Rights: those of new and older keys, and how long a login counts as recent."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.authentication import login_sessions, oauth
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.clock import MINUTE_US
from sixfold.core.database import one
from sixfold.store.postgres import connection as connections
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, databases

BEGAN = 1_764_500_000_000_000
# The last schema version without rights.
BEFORE = 28
SECRET = "whsec_" + "A" * 32

_GRANT = (
    "id, client_id, account_id, scopes, redirect_uri, challenge, code_hash, key_id, expires_at, created_at"
)

# Keys of the previous version by name: account, limits as stored, and the rights that they have now.
OLD_KEYS = {
    "owner": ("operator", "{}", rights.ALL),
    "owner-day": ("operator", '{"budget_day":5}', rights.LIMITED),
    "owner-service": ("operator", '{"services":["ra1"]}', Rights.RUN),
    "owner-reads": ("operator", '{"read_only":true}', Rights.MEMORY_READ),
    "owner-rate": ("operator", '{"rpm":5}', rights.STANDARD),
    "whole": ("customer", "{}", rights.STANDARD),
    "day": ("customer", '{"budget_day":0}', rights.LIMITED),
    "month": ("customer", '{"budget_month":5,"rpm":3}', rights.LIMITED),
    "service": ("customer", '{"services":["ra1"],"budget_day":5}', Rights.RUN),
    "memory": ("customer", '{"memory":true}', rights.MEMORY),
    "collection": ("customer", '{"collections":["a"]}', rights.MEMORY),
    "reader": ("customer", '{"read_only":true,"collections":["a"]}', Rights.MEMORY_READ),
    "nothing": ("customer", '{"read_only":true,"services":["ra1"]}', rights.NONE),
    "program-models": ("operator", "{}", Rights.RUN | rights.MEMORY),
    "program-memory": ("customer", '{"memory":true}', rights.MEMORY),
    "program-memory.read": ("customer", '{"read_only":true}', Rights.MEMORY_READ),
}


def old_rows(prefix: str, blob: Callable[[bytes], str]) -> list[str]:
    """Return statements of the previous version that insert the keys above and OAuth grants."""
    results: list[str] = []
    for name, (whose, scope, _) in OLD_KEYS.items():
        named = prefix + name
        results.append(
            f"INSERT INTO api_key (id, account_id, hash, hint, scope, created_at) "  # noqa: S608 - of this file
            f"VALUES ('{named}', '{whose}', {blob(keys.hash_of(named))}, 'hint', '{scope}', 1)"
        )
        if name.startswith("program-"):
            scopes = name.removeprefix("program-")
            code = blob(keys.hash_of(f"code {named}"))
            values = f"'{named}', 'client', '{whose}', '{scopes}', 'u', 'c', {code}, '{named}', {2**60}, 1"
            results.append(f"INSERT INTO oauth_grant ({_GRANT}) VALUES ({values})")  # noqa: S608 - of this file
    return results


PEOPLE = [
    f"INSERT INTO account (id, kind, email, webhook_secret, created_at) "  # noqa: S608 - of this file
    f"VALUES ('{kind}', '{kind}', '{kind}@example.com', '{SECRET}', 1)"
    for kind in ("operator", "customer")
] + ["INSERT INTO oauth_client (id, name, redirect_uris, created_at) VALUES ('client', 'n', '[]', 1)"]


async def upgrade(folder: Path, backend: str) -> None:
    """A migrated database with keys of the previous version, which then inserts more of them."""
    if backend == "sqlite":
        backends.database_url(folder, backend)
        connection = sqlite3.connect(folder / databases.FILE, isolation_level=None)
        sqlite.migrate(connection, BEFORE)
        for statement in [*PEOPLE, *old_rows("old-", _sqlite_blob)]:
            connection.execute(statement)
        sqlite.migrate(connection)
        for statement in old_rows("new-", _sqlite_blob):
            connection.execute(statement)
        connection.close()
        return
    served = await connections.connect(backends.database_url(folder, backend))
    try:
        await connections.migrate(served, BEFORE)
        for statement in [*PEOPLE, *old_rows("old-", _postgres_blob)]:
            await served.execute(statement)
        await connections.migrate(served)
        for statement in old_rows("new-", _postgres_blob):
            await served.execute(statement)
    finally:
        await connections.close(served)


def _sqlite_blob(data: bytes) -> str:
    return f"X'{data.hex()}'"


def _postgres_blob(data: bytes) -> str:
    return f"'\\x{data.hex()}'::bytea"


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_upgrade_gives_older_keys_no_further_rights(tmp_path: Path, backend: str) -> None:
    await upgrade(tmp_path, backend)
    async with databases.running_database(backend, tmp_path) as database:
        for prefix in ("old-", "new-"):
            for name, (_, _, expected) in OLD_KEYS.items():
                result = await database.read(keys.authenticate(prefix + name))
                assert (prefix + name, result.rights) == (prefix + name, expected)
                assert result.authentication == ("oauth" if name.startswith("program-") else "key")
        rights_by_key = {
            row["id"]: keys.rights_of(row) for row in await database.read(keys.of_account("customer"))
        }
        assert rights_by_key["old-service"] == rights_by_key["new-service"] == Rights.RUN
        assert rights_by_key["new-program-memory.read"] == Rights.MEMORY_READ


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_upgrade_encrypts_webhook_secrets_without_changing_them(tmp_path: Path, backend: str) -> None:
    await upgrade(tmp_path, backend)
    async with databases.running_database(backend, tmp_path) as database:
        secrets = WebhookSecrets(database, b"m" * 32)
        assert await secrets.of("customer") == SECRET
        assert await secrets.encrypt_all() == 2
        assert await secrets.encrypt_all() == 0
        assert await secrets.of("customer") == await secrets.of("operator") == SECRET
        result = (await database.write(accounts.create("new@example.com"))).id
        first = await secrets.of(result)
        assert first.startswith("whsec_")
        assert await secrets.of(result) == first != SECRET
        with pytest.raises(errors.NotConfigured, match=r"a different server\.key"):
            await WebhookSecrets(database, b"o" * 32).of("customer")
        for account_id in ("customer", "operator", result):
            row = await database.read(one("account_by_id", id=account_id))
            assert row is not None
            assert row["webhook_secret"] is None
            assert "whsec" not in row["webhook_sealed"]


async def test_limits_bound_the_rights_of_a_key(tmp_path: Path) -> None:
    async with databases.running_database(None, tmp_path) as database:
        ada = (await database.write(accounts.create("ada@example.com"))).id
        refused_limits = [
            (KeyLimits(services=("ra1",)), Rights.ACCOUNT_MANAGE, "account.manage"),
            (KeyLimits(budget_day=1), rights.STANDARD, "account.manage"),
            (KeyLimits(budget_month=1), Rights.OPERATE, "operate"),
            (KeyLimits(read_only=True), rights.MEMORY, "memory.write"),
            (KeyLimits(collections=("a",)), Rights.RUN, "run"),
            (None, rights.ALL, "operate"),
            (None, rights.NONE, "must have at least one of the rights"),
        ]
        for scope, granted, named in refused_limits:
            with pytest.raises(errors.BadRequest, match=named):
                await database.write(keys.create(ada, scope, granted=granted))
        assert await database.read(keys.of_account(ada)) == ()
        result = await database.write(keys.create(ada, granted=Rights.MEMORY_READ))
        row = await database.read(keys.authenticate(result.api_key))
        assert row.rights == Rights.MEMORY_READ
        assert row.scope.read_only, "a server of the version before narrows it too"


def test_encoded_rights_decode_to_the_same_rights() -> None:
    assert rights.decode(rights.encode(rights.ALL)) == rights.ALL
    assert rights.decode("run fly memory.read") == Rights.RUN | Rights.MEMORY_READ
    with pytest.raises(errors.BadRequest, match="Unknown right 'fly': the rights are run, "):
        rights.of_names(["run", "fly"])


def test_oauth_scopes_grant_exactly_the_consent_page() -> None:
    granted = {scope: rights.names(keys.rights_of_scopes([scope])) for scope in oauth.SCOPES}
    assert granted == {
        "memory": ("memory.read", "memory.write"),
        "memory.read": ("memory.read",),
        "models": ("run", "memory.read", "memory.write"),
    }
    assert keys.rights_of_scopes(["everything"]) == rights.NONE


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_login_is_fresh_for_ten_minutes(tmp_path: Path, backend: str) -> None:
    moment = BEGAN
    async with databases.running_database(backend, tmp_path, lambda: moment) as database:
        ada = (await database.write(accounts.create("ada@example.com"))).id
        token = await database.write(login_sessions.new_session(ada, BEGAN, LoginDetails("password")))
        for age, fresh in ((0, True), (10 * MINUTE_US - 1, True), (10 * MINUTE_US, False)):
            moment = BEGAN + age
            row = await database.read(login_sessions.session(token))
            assert row is not None
            assert (row.principal.is_fresh, row.principal.signed_in_at) == (fresh, BEGAN)
            row.principal.require(rights.ACCOUNT_READ)
            if not fresh:
                with pytest.raises(errors.SignInAgain):
                    row.principal.require(rights.ACCOUNT_MANAGE)
            with pytest.raises(errors.Forbidden, match="requires the right operate, which this account"):
                row.principal.require(rights.OPERATE)


async def test_limited_keys_share_no_stored_responses(tmp_path: Path) -> None:
    """Keys that see all work of the account share responses; a key with a limit gets its own."""
    scopes = (KeyLimits(), KeyLimits(rpm=5), KeyLimits(services=("ra1",)), KeyLimits(collections=("a",)))
    async with databases.running_database(None, tmp_path) as database:
        account = await database.write(accounts.create("ada@example.com"))
        owners: list[str] = []
        for scope in scopes:
            key = await database.write(keys.create(account.id, scope))
            owners.append((await database.read(keys.authenticate(key.api_key))).replays)
        reader = await database.write(keys.create(account.id, granted=Rights.RUN | Rights.ACCOUNT_READ))
        owners.append((await database.read(keys.authenticate(reader.api_key))).replays)
    assert owners[0] == owners[1]
    assert len(set(owners)) == len(scopes)
