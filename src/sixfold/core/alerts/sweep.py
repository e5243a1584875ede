"""Addition of the spending of accounts with alerts, and sending of alerts that reach their threshold.

A sweep reads only the ledger entries since the previous sweep, so calls themselves are not slowed down. An
alert is sent once for each day or month; its message is signed and retried like webhooks of predictions. Each
account's messages are sent by a separate task, so a slow receiver delays only its own account.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.webhook_secrets import WebhookSecrets, signature
from sixfold.core.clock import DAY_US, SECOND_US, rfc3339
from sixfold.core.database import Database, Query, Row, Transaction, Value, many, now, one
from sixfold.core.predictions.webhooks import RetrySchedule, WebhookSender

_LOG = logging.getLogger("sixfold.alerts")
# Entries younger than this are counted by the next sweep: a transaction may commit later than its time.
LAG_US = 10 * SECOND_US
_BATCH = 200
# Accounts whose messages are sent concurrently, and the concurrent messages of each.
_ACCOUNTS, _ACCOUNT_SHARE = 32, 4
MAX_SENDING = _ACCOUNTS * _ACCOUNT_SHARE
_LEASE_US = 60 * SECOND_US
_SEND_SECONDS = 15.0
_MAX_ERROR = 200
_GONE = 410
_encode = msgspec.json.Encoder().encode


class CostAlerts:
    """Counts spending and sends alerts; servers may run it concurrently."""

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
        # The tasks that send messages, by account.
        self._sending: dict[str, asyncio.Task[None]] = {}

    async def run(self, interval_seconds: float) -> None:
        """Sweep until canceled.

        Messages in progress are sent later by another server, when their lease has expired.
        """
        try:
            while True:
                await asyncio.sleep(interval_seconds)
                with contextlib.suppress(errors.StoreFailed):
                    await self.sweep()
        finally:
            for task in (tasks := tuple(self._sending.values())):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def sweep(self, lag_us: int = LAG_US) -> None:
        """Count the spending of all alerts, and begin to send due alerts; `sent` waits for the sending."""
        after = ""
        # If there are no alerts, a sweep is one read.
        while rows := await self._database.read(many("alerts_page", after=after, limit=_BATCH)):
            for row in rows:
                spending = await self._database.read(_counted(row, lag_us), in_thread=True)
                await self._database.write(_store(spending), durable=False)
            after = str(rows[-1]["id"])
        if not after:
            return
        await self._send_due()

    async def sent(self) -> None:
        """Wait until all messages in progress have been sent."""
        while self._sending:
            await asyncio.wait(tuple(self._sending.values()))
            # The callbacks of ended tasks run in the next iteration of the event loop.
            await asyncio.sleep(0)

    async def _send_due(self) -> None:
        """Start a task for each account with due alerts that has no task yet, up to the limit."""
        # An account whose messages are being sent can have other due alerts.
        limit = _ACCOUNTS + len(self._sending)
        rows = await self._database.read(many("alerts_due_accounts", limit=limit))
        for row in rows:
            account_id = str(row["account_id"])
            if account_id in self._sending or len(self._sending) >= _ACCOUNTS:
                continue
            sending = self._send_all(account_id, int(row["now"]))
            task = asyncio.create_task(sending, name=f"alerts {account_id}")
            self._sending[account_id] = task
            task.add_done_callback(partial(self._end_sending, account_id))

    def _end_sending(self, account_id: str, task: asyncio.Task[None]) -> None:
        del self._sending[account_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("cost alerts could not be recorded as sent; they will be sent again", exc_info=error)

    async def _send_all(self, account_id: str, moment: int) -> None:
        """Send the alerts of an account that were due at `moment`, with limited concurrency."""
        params = {"account_id": account_id, "before": moment, "lease": _LEASE_US, "limit": _ACCOUNT_SHARE}
        claim = partial(many, "alerts_claim", **params)
        while due := await self._database.write(claim()):
            await asyncio.gather(*(self._deliver(row) for row in due))

    async def _deliver(self, row: Row) -> None:
        error, final = await self._send(row)
        age = int(row["now"]) - int(row["reached_at"])
        delay = self.schedule.delay_us(int(row["attempts"]))
        final = final or age + delay > self.schedule.life_us
        due_at = None if final else int(row["now"]) + delay
        await self._database.write(one("alert_sent", id=row["id"], due_at=due_at, error=error))

    async def _send(self, row: Row) -> tuple[str | None, bool]:
        """Send one message; return the error, if any, and whether this result is final."""
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


def _counted(alert: Row, lag_us: int) -> Transaction[Mapping[str, Value]]:
    """Add the entries since the last sweep; return the new row, due if the threshold is reached."""
    moment = yield from now()
    until = moment - lag_us
    name, start = period_of(alert["period"], until)
    last = period_of(alert["period"], int(alert["counted_until"]))
    if alert["counted_for"] not in ("", name) and alert["counted_for"] == last[0]:
        # The rest of the previous period is counted first; the next sweep begins the new period.
        name, start = last
        until = _end_of(alert["period"], start)
    is_same = alert["counted_for"] == name
    since = int(alert["counted_until"]) if is_same else start
    span = {"since": since, "until": until, "start": start}
    row = yield from one("alert_spending", account_id=alert["account_id"], key_id=alert["key_id"], **span)
    amount = (int(alert["amount"]) if is_same else 0) + (0 if row is None else int(row["micros"] or 0))
    return {
        "id": alert["id"],
        "before": alert["counted_until"],
        "counted_for": name,
        "counted_until": max(since, until),
        "amount": amount,
        "message_id": ids.new("msg"),
        "is_due": int(amount >= int(alert["threshold"]) and alert["sent_for"] != name),
    }


def _store(spending: Mapping[str, Value]) -> Transaction[None]:
    # Has no effect if another server has counted the alert meanwhile.
    yield Query("alert_count", spending)


def _end_of(period: str, start: int) -> int:
    # A month has at most 31 days and begins at least 28 days after the previous one.
    return period_of(period, start + (DAY_US if period == "day" else 32 * DAY_US))[1]


def period_of(period: str, moment: int) -> tuple[str, int]:
    """Return the name of the day or month (UTC) of a time in epoch µs, and its start in epoch µs."""
    date = datetime.fromtimestamp(moment / SECOND_US, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        date = date.replace(day=1)
    return date.date().isoformat(), int(date.timestamp()) * SECOND_US
