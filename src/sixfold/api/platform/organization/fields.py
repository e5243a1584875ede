"""The fields of requests about organizations, checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.organizations.organizations import MAX_BUDGET
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Value
from sixfold.web import bodies

_MAX_CHARS, _MAX_NAMES, _MAX_RATE = 256, 50, 10**9
_BUDGETS = (("budget_day_usd", "budget_day"), ("budget_month_usd", "budget_month"))
BUDGETS = tuple(field for field, _ in _BUDGETS)
KEY = ("name", "team_id", "rights", "services", "collections", *BUDGETS, "rpm", "tpm")


async def of_request(request: Request, *names: str) -> dict[str, Any]:
    """Return the fields of a request; raises `InvalidInput` for others than `names`."""
    body = bodies.parse_object(await request.body() or b"{}")
    check_names(body, names)
    return body


def check_names(fields: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise `InvalidInput` for an unknown field: a limit with a wrong name would not apply."""
    for name in fields:
        if name not in names:
            allowed = f"use {', '.join(names)}" if names else "the request has no fields"
            raise errors.InvalidInput.of(name[:40], f"Unknown field {name[:40]!r}: {allowed}")


def text(
    fields: Mapping[str, Any], name: str, default: str | None = None, *, max_chars: int = _MAX_CHARS
) -> str:
    """Return a string; raises `InvalidInput` for a longer one, and if a required one is missing."""
    value = default if fields.get(name) is None else fields[name]
    if value is None:
        raise errors.InvalidInput.of(name, f"{name} is required")
    if not isinstance(value, str) or len(value) > max_chars:
        raise errors.InvalidInput.of(name, f"{name} must be a string of at most {max_chars} characters")
    return value


def optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a string, or None if the field is null or missing; raises `InvalidInput`."""
    return None if fields.get(name) is None else text(fields, name)


def integer(fields: Mapping[str, Any], name: str, default: int) -> int:
    """Return an integer; raises `InvalidInput`."""
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MAX_RATE:
        raise errors.InvalidInput.of(name, f"{name} must be an integer from 1 to {_MAX_RATE}")
    return value


def changes(fields: Mapping[str, Any], *names: str) -> dict[str, Value]:
    """Return the fields `names` of a request, and its budgets in micro-dollars; null becomes None."""
    values: dict[str, Value] = {name: optional_text(fields, name) for name in names if name in fields}
    for field, name in _BUDGETS:
        if field in fields:
            values[name] = budget(fields, field)
    return values


def role(fields: Mapping[str, Any]) -> rights.Role:
    """Return the role in a request; raises `InvalidInput` unless it is admin or member."""
    value = fields.get("role", "member")
    if value not in ("admin", "member"):
        raise errors.InvalidInput.of("role", "role must be admin or member")
    return value


def budget(fields: Mapping[str, Any], name: str) -> int | None:
    """Parse USD, a string or a number, to micro-dollars; return None for null; raises `InvalidInput`."""
    value = fields.get(name)
    if value is None:
        return None
    try:
        is_amount = isinstance(value, str | int | float) and not isinstance(value, bool)
        micros = money.parse_usd(str(value)[:40]) if is_amount else -1
    except ValueError:
        micros = -1
    if not 0 <= micros <= MAX_BUDGET:
        raise errors.InvalidInput.of(name, f'{name} must be an amount in USD such as 5 or "0.50", or null')
    return micros


def scope(fields: Mapping[str, Any]) -> KeyLimits:
    """Return the limits of a new key; raises `InvalidInput`."""
    return KeyLimits(
        services=_names(fields, "services"),
        collections=_names(fields, "collections"),
        budget_day=budget(fields, "budget_day_usd"),
        budget_month=budget(fields, "budget_month_usd"),
        rpm=None if fields.get("rpm") is None else integer(fields, "rpm", 1),
        tpm=None if fields.get("tpm") is None else integer(fields, "tpm", 1),
    )


def granted(fields: Mapping[str, Any], limits: KeyLimits, grantable: Rights) -> Rights:
    """Return the rights of a new key, by default all that its limits allow, at most `grantable`.

    Raises `Forbidden` for other rights.
    """
    names = _names(fields, "rights")
    if not names:
        return limits.default_rights & grantable
    requested_rights = rights.of_names(names)
    if refused_rights := rights.names(requested_rights & ~grantable):
        raise errors.Forbidden(
            f"The key cannot have the rights {', '.join(refused_rights)}: its creator may not grant them"
        )
    return requested_rights


def _names(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of names, empty if the field is null or missing; an empty list would remove the limit."""
    if fields.get(name) is None:
        return ()
    try:
        values = msgspec.convert(fields[name], tuple[str, ...])
    except msgspec.ValidationError:
        values = ("",)
    if not 0 < len(values) <= _MAX_NAMES or not all(0 < len(value) <= _MAX_CHARS for value in values):
        raise errors.InvalidInput.of(
            name, f"{name} must be a list of 1 to {_MAX_NAMES} names of 1 to {_MAX_CHARS} characters, or null"
        )
    return values
