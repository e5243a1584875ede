"""Cost alerts: a threshold per day or month (UTC) of an account or one of its keys, and a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts import audit_log
from sixfold.core.clock import rfc3339
from sixfold.core.database import Query, Row, Rows, Transaction, many, one
from sixfold.core.predictions.webhooks import WebhookSender

PERIODS = ("day", "month")
MAX_ALERTS = 100
_MAX_URL, _MAX_USD = 2000, 10**15
_FIELDS = frozenset({"key", "period", "threshold_usd", "url"})


class CostAlert:
    """The fields of a new alert; raises `InvalidInput` for an invalid field."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        unknown = sorted(set(fields) - _FIELDS)
        if unknown:
            raise errors.InvalidInput.of(
                unknown[0], f"Unknown field {unknown[0][:40]!r}: use {', '.join(sorted(_FIELDS))}"
            )
        self.key_id = _text(fields, "key", "the id of a key, or null for the account")
        self.period = _text(fields, "period", "day or month")
        if self.period not in PERIODS:
            raise errors.InvalidInput.of("period", "period must be day or month")
        self.url = _text(fields, "url", "an http or https URL")
        if not self.url.startswith(("https://", "http://")) or len(self.url) > _MAX_URL:
            raise errors.InvalidInput.of(
                "url", f"url must be an http or https URL of at most {_MAX_URL} characters"
            )
        self.threshold = _amount(fields.get("threshold_usd"))


def _text(fields: Mapping[str, Any], name: str, expected: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise errors.InvalidInput.of(name, f"{name} must be {expected}")
    return value or ""


def _amount(value: Any) -> int:
    problem = "threshold_usd must be an amount above 0 such as 25.00"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise errors.InvalidInput.of("threshold_usd", problem)
    try:
        micros = money.parse_usd(str(value))
    except ValueError as error:
        raise errors.InvalidInput.of("threshold_usd", problem) from error
    if not 0 < micros <= _MAX_USD:
        raise errors.InvalidInput.of("threshold_usd", problem)
    return micros


def create(
    account_id: str, alert: CostAlert, member_id: str | None = None, *, by_operator: bool = False
) -> Transaction[Row]:
    """Insert an alert, with the member who created it, if any, and return its row.

    The account does not see an alert by an operator, whose URL may contain a secret. Raises `NotFound` for
    another account's key, and `Conflict`.
    """
    if alert.key_id:
        key = yield from one("key_by_id", id=alert.key_id)
        if key is None or key["account_id"] != account_id:
            raise errors.NotFound(f"Key {alert.key_id[:100]} not found")
    rows = yield from of_account(account_id, with_operators=by_operator)
    if sum(row["by_operator"] == by_operator for row in rows) >= MAX_ALERTS:
        raise errors.Conflict(f"An account may have at most {MAX_ALERTS} alerts: delete one first")
    alert_id = ids.new("alert")
    yield Query(
        "alert_insert",
        {
            "id": alert_id,
            "account_id": account_id,
            "key_id": alert.key_id,
            "period": alert.period,
            "threshold": alert.threshold,
            "url": alert.url,
            "member_id": member_id,
            "by_operator": int(by_operator),
        },
    )
    yield from audit_log.note(account_id, "alert.create", alert_id)
    row = yield from one("alert_get", account_id=account_id, id=alert_id)
    assert row is not None  # noqa: S101 - it was inserted above
    return row


def check_receiver(sender: WebhookSender, url: str) -> None:
    """Raise `InvalidInput` if webhooks may not be sent to a URL."""
    try:
        sender.check_url(url)
    except errors.FetchRefused as refused:
        raise errors.InvalidInput.of("url", f"url: {refused.message}", refused.code) from refused


def of_account(account_id: str, *, with_operators: bool = False) -> Transaction[Rows]:
    """Return the alerts of an account, oldest first, optionally also those that operators created."""
    return (yield from many("alerts_of", account_id=account_id, operators=int(with_operators)))


def delete(account_id: str, alert_id: str, *, with_operators: bool = False) -> Transaction[None]:
    """Delete an alert, optionally also one that an operator created; raises `NotFound`."""
    params = {"account_id": account_id, "id": alert_id, "operators": int(with_operators)}
    if not (yield Query("alert_delete", params)):
        raise errors.NotFound(f"The alert {alert_id[:100]!r} was not found")
    yield from audit_log.note(account_id, "alert.delete", alert_id)


def to_json(row: Row) -> dict[str, Any]:
    """Return an alert as in the API; its amount is as of the last sweep."""
    return {
        "id": row["id"],
        "key": row["key_id"] or None,
        "period": row["period"],
        "threshold_usd": money.format_usd(row["threshold"]),
        "url": row["url"],
        "spent_usd": money.format_usd(row["amount"]),
        "sent_for": row["sent_for"] or None,
        "error": row["error"],
        "created_at": rfc3339(row["created_at"]),
    }
