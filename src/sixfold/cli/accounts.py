"""`account`, `key` and `open`: manage accounts and API keys, also while the server runs."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sixfold import errors
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core import clock, money
from sixfold.core.accounts import accounts, credentials, keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Row, Transaction, many, now
from sixfold.settings import Settings

_MIN_PASSWORD = 8
_MAX_PASSWORD = 1024


# -- account -------------------------------------------------------------------------------------


def create(arguments: argparse.Namespace) -> None:
    """Run `account create`: create an account and its first key in one transaction."""
    credit_micros = _usd(arguments.credit, "--credit")
    if credit_micros < 0:
        raise CommandError("--credit must not be negative")
    server_settings = database_access.settings_of(arguments)
    account, key = database_access.write(
        server_settings, _create(arguments.email, credit_micros, operator=arguments.operator), make=True
    )
    if arguments.json:
        put_json({"account_id": account.id, "api_key": key.api_key})
        return
    paint = TerminalStyle()
    paint.rows(
        [
            ("account", f"{paint.bold(account.email)}  {paint.dim(account.id)}"),
            ("balance", _balance(account)),
            ("key", f"{paint.accent(key.api_key)}  {paint.dim('shown this once')}"),
        ]
    )


def _create(email: str, credit_micros: int, *, operator: bool) -> Transaction[tuple[Account, NewKey]]:
    existing = (yield from accounts.operator()) if operator else None
    if existing is not None:
        raise errors.Conflict(f"The operator's account is {existing.email}; a server can have only one")
    account = yield from accounts.create(email, credit=credit_micros, operator=operator)
    key = yield from keys.create(account.id, granted=rights.ALL if operator else None)
    return account, key


def credit(arguments: argparse.Namespace) -> None:
    """Run `account credit`: add to a balance, or subtract from its available part."""
    amount = _usd(arguments.usd, "USD")
    server_settings = database_access.settings_of(arguments)
    _print_account(
        arguments, database_access.write(server_settings, accounts.credit(arguments.email, amount))
    )


def show(arguments: argparse.Namespace) -> None:
    """Run `account show`: print the balance of an account and the amount held."""
    server_settings = database_access.settings_of(arguments)
    _print_account(arguments, database_access.read(server_settings, accounts.by_email(arguments.email)))


def _print_account(arguments: argparse.Namespace, account: Account) -> None:
    if arguments.json:
        put_json(
            {
                "account_id": account.id,
                "email": account.email,
                "balance_usd": money.format_usd(account.posted),
                "held_usd": money.format_usd(account.held),
            }
        )
        return
    paint = TerminalStyle()
    paint.rows(
        [
            ("account", f"{paint.bold(account.email)}  {paint.dim(account.id)}"),
            ("balance", _balance(account)),
            ("held", f"{money.format_usd(account.held)} USD"),
        ]
    )


def _balance(account: Account) -> str:
    balance = f"{money.format_usd(account.posted)} USD"
    return (
        f"{balance}, requests are never refused for lack of credit" if account.is_never_refused else balance
    )


def password(arguments: argparse.Namespace) -> None:
    """Run `account password`: set a password that is prompted for twice or read from standard input."""
    from pwdlib import PasswordHash

    server_settings = database_access.settings_of(arguments)
    account = database_access.read(server_settings, _person(arguments.email))
    secret = sys.stdin.readline().rstrip("\r\n") if arguments.stdin else _prompt_password(account.email)
    if not _MIN_PASSWORD <= len(secret) <= _MAX_PASSWORD:
        raise CommandError(f"The password must have {_MIN_PASSWORD} to {_MAX_PASSWORD} characters")
    password_hash = PasswordHash.recommended().hash(secret)
    database_access.write(server_settings, credentials.change_password(account.id, password_hash))
    if arguments.json:
        put_json({"account_id": account.id, "email": account.email})
    else:
        TerminalStyle().line(
            f"  The password of {account.email} is changed; its sessions and OAuth grants are ended"
        )


def _prompt_password(email: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError("Pass --stdin to read the password from standard input without a terminal")
    first = getpass.getpass(f"New password of {email}: ")
    if getpass.getpass("Repeat the password: ") != first:
        raise CommandError("The two passwords differ: nothing was changed")
    return first


def link(arguments: argparse.Namespace) -> None:
    """Run `account link`: print a one-time sign-in link for the server of this data folder."""
    server_settings = database_access.settings_of(arguments)
    token = database_access.write(server_settings, _link(arguments.email))
    url = f"{server_lock.link_origin(server_settings)}/signin?token={token}"
    if arguments.json:
        put_json({"url": url, "expires_in_seconds": login_sessions.LINK_LIFE_US // clock.SECOND_US})
    else:
        paint = TerminalStyle()
        paint.line(f"  {paint.accent(url)}")
        paint.line(paint.dim("  Valid once, within one hour."))


def open_pages(arguments: argparse.Namespace) -> None:
    """Run `open`: sign in the browser of this machine as the operator."""
    import webbrowser

    server_settings = database_access.settings_of(arguments)
    running = server_lock.running(server_settings.data_dir)
    if running is None or not running.url:
        raise CommandError(
            f"No server is running for the data folder {server_settings.data_dir}: start one with "
            "`sixfold serve`"
        )
    account = database_access.read(server_settings, accounts.operator())
    if account is None:
        raise CommandError(
            "This server has no operator yet: create one with `sixfold account create EMAIL --operator`"
        )
    token = database_access.write(server_settings, _link(account.email))
    url = f"{server_settings.public_url or running.url}/signin?token={token}"
    if arguments.json:
        put_json({"url": url, "email": account.email})
        return
    paint = TerminalStyle()
    if not arguments.print and paint.is_terminal and webbrowser.open(url):
        paint.line(f"  Signed in as {account.email} in the browser")
        return
    paint.line(f"  {paint.accent(url)}")
    paint.line(paint.dim("  Valid once, within one hour."))


def _person(email: str) -> Transaction[Account]:
    account = yield from accounts.by_email(email)
    if not account.has_sign_in:
        raise errors.BadRequest(f"{email} is an organization: its members sign in with their own accounts")
    return account


def _link(email: str) -> Transaction[str]:
    account = yield from _person(email)
    return (yield from login_sessions.new_link(account.id, (yield from now())))


# -- key -----------------------------------------------------------------------------------------


def create_key(arguments: argparse.Namespace) -> None:
    """Run `key create`: create a key with the requested rights and limits."""
    scope = KeyLimits(
        read_only=arguments.read_only,
        collections=_names(arguments.collections, "--collections"),
        services=_names(arguments.services, "--services"),
        budget_day=_budget(arguments.budget_day, "--budget-day"),
        budget_month=_budget(arguments.budget_month, "--budget-month"),
        rpm=_rate(arguments.rpm, "--rpm"),
        tpm=_rate(arguments.tpm, "--tpm"),
    )
    expires_at = None if arguments.expires is None else _moment(arguments.expires)
    right_names = _names(arguments.rights, "--rights")
    key_rights = rights.of_names(right_names) if right_names else None
    server_settings = database_access.settings_of(arguments)
    key = database_access.write(
        server_settings, _create_key(arguments.email, scope, expires_at, key_rights, arguments.name or "")
    )
    if expires_at is not None and expires_at <= datetime.now(UTC).timestamp() * clock.SECOND_US:
        sys.stderr.write(f"sixfold: the key has expired: --expires {arguments.expires} is in the past\n")
    if scope.services and (missing := _missing_services(server_settings, arguments.email, scope.services)):
        sys.stderr.write(f"sixfold: --services: {missing}: the key can use it only when it exists\n")
    if arguments.json:
        put_json({"id": key.id, "api_key": key.api_key})
        return
    paint = TerminalStyle()
    paint.rows([("id", key.id), ("key", f"{paint.accent(key.api_key)}  {paint.dim('shown this once')}")])


def _missing_services(server_settings: Settings, email: str, names: tuple[str, ...]) -> str:
    """Return a clause about the names that are neither models nor services here, or an empty string."""
    # Other commands for accounts do not need the catalog, whose import takes a second.
    from sixfold.app import catalog as app_catalog
    from sixfold.app.gateway import runtime as app_gateway
    from sixfold.core.gateway import policy as policies
    from sixfold.core.gateway import service_names
    from sixfold.core.gateway.routing import DEFAULT

    try:
        policy = policies.parse(server_settings.tables.get("gateway", {}))
    except ValueError:
        # The start of the server and `doctor` report the error.
        return ""
    known = {*app_catalog.models_document()["models"], *policy.aliases, *DEFAULT}
    for row in policy.servers:
        known.update((*row.models, *(f"{row.name}/{model}" for model in row.models)))
    servers = {*policies.CHAT_KINDS, *(row.name for row in policy.servers), *app_catalog.MODEL_PREFIXES}

    def unknown() -> list[str]:
        return [name for name in names if not service_names.is_known(name, known, servers)]

    if unknown():
        known.update(database_access.read(server_settings, _own_models(email)))
    if unknown():
        _, statuses = asyncio.run(app_gateway.look(server_settings))
        known.update(name for status in statuses for name in status.models)
    return service_names.not_found(unknown(), known)


def _own_models(email: str) -> Transaction[list[str]]:
    account = yield from accounts.by_email(email)
    rows = yield from many("custom_model_names", account_id=account.id, kind="")
    return [str(row["name"]) for row in rows]


def _create_key(
    email: str, scope: KeyLimits, expires_at: int | None, key_rights: Rights | None, name: str
) -> Transaction[NewKey]:
    account = yield from accounts.by_email(email)
    yield from accounts.accept_invitation(account.id)
    return (
        yield from keys.create(account.id, scope, expires_at, granted=key_rights, holder=Holder(name=name))
    )


def list_keys(arguments: argparse.Namespace) -> None:
    """Run `key list`: print the keys, newest first, each with the last four characters of its secret."""
    server_settings = database_access.settings_of(arguments)
    records = [_key_record(row) for row in database_access.read(server_settings, _keys_of(arguments.email))]
    if arguments.json:
        put_json({"keys": records})
        return
    paint = TerminalStyle()
    if not records:
        paint.line(f"  {arguments.email} has no key: `sixfold key create {arguments.email}` makes one")
        return
    rows = [
        (
            key["id"],
            key["name"],
            f"…{key['hint']}",
            key["created_at"][:10],
            (key["used_at"] or "never")[:10],
            _state(key),
            ", ".join(key["rights"]),
            _limits(key),
        )
        for key in records
    ]
    paint.table(("id", "name", "ends in", "created", "used", "state", "rights", "limits"), rows)


def _keys_of(email: str) -> Transaction[tuple[Row, ...]]:
    account = yield from accounts.by_email(email)
    return (yield from keys.of_account(account.id))


def _key_record(row: Row) -> dict[str, Any]:
    scope = keys.scope_of(row)
    record: dict[str, Any] = {
        "id": row["id"],
        "name": row["name"],
        "created_at": clock.rfc3339(row["created_at"]),
        "used_at": clock.rfc3339(row["used_at"]),
        "expires_at": clock.rfc3339(row["expires_at"]),
        "revoked_at": clock.rfc3339(row["revoked_at"]),
        "hint": row["hint"],
        "rights": list(rights.names(keys.rights_of(row))),
        "read_only": scope.read_only,
        "collections": list(scope.collections),
        "services": list(scope.services),
        "rpm": scope.rpm,
        "tpm": scope.tpm,
    }
    for name, micros in (("budget_day_usd", scope.budget_day), ("budget_month_usd", scope.budget_month)):
        record[name] = None if micros is None else money.format_usd(micros)
    return record


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"]:
        return "revoked"
    if key["expires_at"]:
        end = datetime.fromisoformat(key["expires_at"])
        # A key that ends at midnight is valid until the day before, as `--expires DATE` states it.
        return "expired" if end <= datetime.now(UTC) else f"until {end - timedelta(microseconds=1):%Y-%m-%d}"
    return "live"


def _limits(key: dict[str, Any]) -> str:
    words = ["read only"] if key["read_only"] else []
    words += [f"{kind} {', '.join(key[kind])}" for kind in ("collections", "services") if key[kind]]
    for name, unit in (("budget_day_usd", "USD a day"), ("budget_month_usd", "USD a month")):
        words += [f"{key[name]} {unit}"] if key[name] is not None else []
    words += [f"{key[name]} {name}" for name in ("rpm", "tpm") if key[name] is not None]
    return "; ".join(words)


def revoke_key(arguments: argparse.Namespace) -> None:
    """Run `key revoke`: revoke a key with immediate effect, or end all access."""
    if (arguments.id is None) != arguments.all:
        raise CommandError("Specify the ID of one key, or --all")
    server_settings = database_access.settings_of(arguments)
    if arguments.all:
        counts = database_access.write(server_settings, credentials.end_everything())
        if arguments.json:
            put_json(dict(counts))
        else:
            ended = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items())
            TerminalStyle().line(f"  ended: {ended}")
        return
    database_access.write(server_settings, keys.revoke(arguments.id))
    if arguments.json:
        put_json({"id": arguments.id, "revoked": True})
    else:
        TerminalStyle().line(f"  {arguments.id} is revoked")


# -- options -------------------------------------------------------------------------------------


def _usd(text: str, option: str) -> int:
    try:
        micros = money.parse_usd(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None
    if abs(micros) > 10**15:
        raise CommandError(f"{option}: {text} USD exceeds the limit of 1,000,000,000 USD")
    return micros


def _budget(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    micros = _usd(text, option)
    if micros < 0:
        raise CommandError(f"{option} must not be negative")
    return micros


def _rate(number: int | None, option: str) -> int | None:
    if number is not None and number < 1:
        raise CommandError(f"{option} must be at least 1")
    return number


def _names(text: str | None, option: str) -> tuple[str, ...]:
    """Parse a comma-separated list; raises `CommandError` if it is empty, which would remove the limit."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise CommandError(f"{option} is empty: omit it for a key without that limit")
    return names


def _moment(text: str) -> int:
    """Parse a time, or a date as the end of its day (UTC by default); return epoch µs."""
    try:
        if len(text) == len("2027-01-31"):
            moment = datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(moment.timestamp()) * clock.SECOND_US
    except (ValueError, OverflowError):
        raise CommandError(f"--expires must be a date such as 2027-01-31 (got {text!r})") from None
