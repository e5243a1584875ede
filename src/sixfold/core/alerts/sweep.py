"""Adds up the spending of accounts with alerts, and sends the alerts whose threshold is reached.

A sweep reads only the ledger's entries since the last one, and no call is looked at when it is made. An alert
is sent once for each day or month; its message is signed and retried as webhooks of predictions are.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.webhook_secrets import WebhookSecrets, signature
from sixfold.core.clock import DAY_US, SECOND_US, rfc3339
from sixfold.core.database import Database, Query, Row, Transaction, many, now, one
from sixfold.core.predictions.webhooks import RetrySchedule, WebhookSender

# Entries younger than this are counted by the next sweep: a transaction may commit later than its time.
LAG_US = 10 * SECOND_US
_BATCH = 200
# Messages that are sent at once, so that all succeed or fail before their lease ends.
_AT_ONCE, _ROUNDS = 50, 4
_LEASE_US = 60 * SECOND_US
_SEND_SECONDS = 15.0
_MAX_ERROR = 200
_GONE = 410
_encode = msgspec.json.Encoder().encode


class CostAlerts:
    """Counts spending and sends alerts; several servers may do so at once."""

    def __init__(
        self,
        database: Database,
        sender: WebhookSender,
        secrets: WebhookSecrets,
        schedule: RetrySchedule | None = None,
    ) -> None:
        self._database = database
        self._secrets = secrets
        self.sender = sender
        self.schedule = schedule or RetrySchedule()

    async def sweep(self, lag_us: int = LAG_US) -> None:
        """Count the spending of all alerts, and send the alerts that are due."""
        after = ""
        # Without any alert, a sweep is one read.
        while rows := await self._database.read(many("alerts_page", after=after, limit=_BATCH)):
            for row in rows:
                await self._database.write(_count(row, lag_us), durable=False)
            after = str(rows[-1]["id"])
        if not after:
            return
        for _ in range(_ROUNDS):
            due = await self._database.write(many("alerts_claim", lease=_LEASE_US, limit=_AT_ONCE))
            # A slow receiver does not delay the messages of other accounts.
            await asyncio.gather(*(self._deliver(row) for row in due))
            if len(due) < _AT_ONCE:
                break

    async def _deliver(self, row: Row) -> None:
        error, final = await self._send(row)
        age = int(row["now"]) - int(row["reached_at"])
        delay = self.schedule.delay_us(int(row["attempts"]))
        final = final or age + delay > self.schedule.life_us
        due_at = None if final else int(row["now"]) + delay
        await self._database.write(one("alert_sent", id=row["id"], due_at=due_at, error=error))

    async def _send(self, row: Row) -> tuple[str | None, bool]:
        """Send one message; returns the error, if any, and whether this result is final."""
        body, timestamp = _encode(message(row)), int(row["now"]) // SECOND_US
        try:
            secret = await self._secrets.of(row["account_id"])
            response = await self.sender.send(
                "POST",
                row["url"],
                headers={
                    "content-type": "application/json",
                    "webhook-id": str(row["message_id"]),
                    "webhook-timestamp": str(timestamp),
                    "webhook-signature": signature(secret, str(row["message_id"]), timestamp, body),
                },
                content=body,
                timeout_seconds=_SEND_SECONDS,
                max_bytes=0,
            )
        except errors.FetchRefused as refused:
            return refused.message[:_MAX_ERROR], True
        except errors.SixfoldError as failed:
            return failed.message[:_MAX_ERROR], False
        if 200 <= response.status < 300:
            return None, True
        return f"The receiver returned status {response.status}", response.status == _GONE


def message(row: Row) -> dict[str, Any]:
    """Return the body of an alert's webhook."""
    return {
        "type": "cost.threshold_reached",
        "alert_id": row["id"],
        "account_id": row["account_id"],
        "key_id": row["key_id"] or None,
        "period": row["period"],
        "period_start": row["sent_for"],
        "threshold_usd": money.format_usd(row["threshold"]),
        "spent_usd": money.format_usd(row["sent_amount"]),
        "reached_at": rfc3339(row["reached_at"]),
    }


def _count(alert: Row, lag_us: int) -> Transaction[None]:
    """Add the entries since the last sweep, and mark the alert as due if its threshold is reached."""
    moment = yield from now()
    until = moment - lag_us
    name, start = period_of(alert["period"], until)
    last = period_of(alert["period"], int(alert["counted_until"]))
    if alert["counted_for"] not in ("", name) and alert["counted_for"] == last[0]:
        # The rest of the last period comes first; the next sweep begins the new one.
        name, start = last
        until = _end_of(alert["period"], start)
    is_same = alert["counted_for"] == name
    since = int(alert["counted_until"]) if is_same else start
    row = yield from one(
        "alert_spending", account_id=alert["account_id"], key_id=alert["key_id"], since=since, until=until
    )
    amount = (int(alert["amount"]) if is_same else 0) + (0 if row is None else int(row["micros"] or 0))
    yield Query(
        "alert_count",
        {
            "id": alert["id"],
            "before": alert["counted_until"],
            "counted_for": name,
            "counted_until": max(since, until),
            "amount": amount,
            "message_id": ids.new("msg"),
            "is_due": int(amount >= int(alert["threshold"]) and alert["sent_for"] != name),
        },
    )


def _end_of(period: str, start: int) -> int:
    # No month has more than 31 days, and none begins less than 28 days after another.
    return period_of(period, start + (DAY_US if period == "day" else 32 * DAY_US))[1]


def period_of(period: str, moment: int) -> tuple[str, int]:
    """Return the name of the day or month (UTC) of a time in epoch µs, and its beginning."""
    date = datetime.fromtimestamp(moment / SECOND_US, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        date = date.replace(day=1)
    return date.date().isoformat(), int(date.timestamp()) * SECOND_US
