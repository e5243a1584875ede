"""Conversion of the virtual keys of a LiteLLM proxy to limits of new keys.

The input is the response of `GET /key/list?return_full_object=true`. It contains hashes of the keys, so each
of them gets a new secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any, cast

import msgspec

from sixfold.cli.imports.litellm import Omission, UnreadableConfig
from sixfold.core import clock, money
from sixfold.core.accounts.keys import KeyLimits

MAX_KEYS = 10_000
_MAX_USD = 10**9
# Names that denote all models.
_ALL_MODELS = frozenset({"all-proxy-models", "all-team-models", "*"})
_DURATION = re.compile(r"(\d{1,6})(s|m|h|d|w|mo)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "mo": 30 * 86400}
_DAY = 86400
_MAX_RATE = 10**9


class ConvertedKey(msgspec.Struct, frozen=True):
    """The limits of a key, under the name that LiteLLM shows for it."""

    name: str
    scope: KeyLimits
    expires_at: int | None


def convert(document: Any, models: Collection[str], now: int) -> tuple[list[ConvertedKey], list[Omission]]:
    """Return the keys that are valid at `now` (epoch in µs), and the keys that were not converted.

    `models` are the names that this server serves; a key that is limited to other models only is
    omitted. Raises `UnreadableConfig`.
    """
    rows = document.get("keys") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise UnreadableConfig("The keys must be the JSON response of GET /key/list?return_full_object=true")
    items = cast("list[Any]", rows)
    if len(items) > MAX_KEYS:
        raise UnreadableConfig(f"The list has {len(items):,} keys; at most {MAX_KEYS:,} can be imported")
    converted: list[ConvertedKey] = []
    omitted: list[Omission] = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise UnreadableConfig("The list contains hashes only: request it with return_full_object=true")
        row = cast("dict[str, Any]", item)
        name = str(row.get("key_alias") or row.get("key_name") or f"keys[{index}]")[:200]
        key = _key(name, row, models, now, omitted)
        if key is not None:
            converted.append(key)
    return converted, omitted


def _key(
    name: str, row: dict[str, Any], models: Collection[str], now: int, omitted: list[Omission]
) -> ConvertedKey | None:
    expires_at = _expiry(name, row.get("expires"))
    if row.get("blocked") or (expires_at is not None and expires_at <= now):
        omitted.append(Omission(name, "it is blocked" if row.get("blocked") else "it has expired"))
        return None
    allowed = [str(model) for model in row.get("models") or []]
    served = [] if _ALL_MODELS.intersection(allowed) else [model for model in allowed if model in models]
    if allowed and not served and not _ALL_MODELS.intersection(allowed):
        omitted.append(Omission(name, f"none of its models is here: {', '.join(allowed)[:200]}"))
        return None
    if missing := [model for model in allowed if served and model not in models]:
        omitted.append(Omission(name, f"models that are not here: {', '.join(missing)[:200]}"))
    day, month = _budgets(name, row, omitted)
    for field, reason in (
        ("team_id", "it has a new key of the account"),
        ("max_parallel_requests", "limit its requests per minute"),
        ("aliases", "aliases are those of the server"),
        ("guardrails", "there is no equivalent"),
    ):
        if row.get(field):
            omitted.append(Omission(f"{name}.{field}", reason))
    scope = KeyLimits(
        services=tuple(served),
        budget_day=day,
        budget_month=month,
        rpm=_rate(row.get("rpm_limit")),
        tpm=_rate(row.get("tpm_limit")),
    )
    return ConvertedKey(name, scope, expires_at)


def _budgets(name: str, row: dict[str, Any], omitted: list[Omission]) -> tuple[int | None, int | None]:
    """Return the budgets for a day and for a month in micro-dollars.

    A budget for another period is converted to the next longer period, so keys cannot spend more.
    """
    if row.get("max_budget") is None:
        return None, None
    try:
        amount = Decimal(str(row["max_budget"]))
    except DecimalException:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount <= _MAX_USD:
        raise UnreadableConfig(f"{name}.max_budget is not an amount: {str(row['max_budget'])[:50]!r}")
    micros = int(amount * money.MICROS_PER_USD)
    duration = str(row.get("budget_duration") or "")
    match = _DURATION.fullmatch(duration)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else None
    if seconds in (_DAY, _SECONDS["mo"], 31 * _DAY):
        return (micros, None) if seconds == _DAY else (None, micros)
    if seconds is not None and seconds < _SECONDS["mo"]:
        period = "day" if seconds < _DAY else "month"
        omitted.append(Omission(f"{name}.budget_duration", f"{duration}: the amount is now per {period}"))
        return (micros, None) if period == "day" else (None, micros)
    reason = f"{duration or 'in total'}: the amount is now per month, which allows more"
    omitted.append(Omission(f"{name}.budget_duration", reason))
    return None, micros


def _rate(value: Any) -> int | None:
    is_limit = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_RATE
    return value if is_limit else None


def _expiry(name: str, value: Any) -> int | None:
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise UnreadableConfig(f"{name}.expires is not a date: {str(value)[:50]!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * clock.SECOND_US
