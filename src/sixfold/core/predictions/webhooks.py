"""Webhooks, whose messages are stored with a state change and sent until they are delivered.

A message is a row of the outbox, so a server that is killed before sending does not lose it. The message
contains the prediction as of that state change, so a late delivery has the same content. Messages are signed
according to Standard Webhooks with the account's secret, and sent through the guarded fetcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.webhook_secrets import WebhookSecrets, signature
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, Row, Rows, Transaction, encode_json, many, now, one
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction, Webhook
from sixfold.core.predictions.states import PredictionState

_LOG = logging.getLogger("sixfold.webhooks")
# Messages that are sent concurrently, in total and for one account.
MAX_SENDING, _ACCOUNT_SHARE = 256, 8
# Maximum number of due messages among which one claim selects, of accounts without a message in progress.
_WINDOW = 500
_SEND_SECONDS = 15.0
# Longer than the delivery of one message takes.
_LEASE_US = 60 * SECOND_US
# How often to poll for messages of other servers and for retries.
LOOK_SECONDS = 1.0
# The status with which a receiver unsubscribes.
_GONE = 410
_LAST_DELAY_SECONDS = 4 * 3600
_MAX_ERROR = 200
# The text of a message is at most a fifth longer than that of its prediction.
_MAX_BYTES = 64 * 2**20
_BUSY = "Other large webhooks are being sent"

Renderer = Callable[[Prediction, str, int], Any]
"""Renders the webhook body of a prediction, an event's name and its time (epoch µs)."""


class RetrySchedule(msgspec.Struct, frozen=True):
    """The delays before undelivered messages are sent again: `first_seconds`, then three times as long."""

    first_seconds: float = 5.0
    life_us: int = DAY_US

    def delay_us(self, attempts: int) -> int:
        """Return the delay in µs after a number of attempts."""
        seconds = min(_LAST_DELAY_SECONDS, self.first_seconds * 3 ** (attempts - 1))
        return int(seconds * SECOND_US)


class WebhookSender(Protocol):
    """The methods of the guarded fetcher that webhooks use."""

    def check_url(self, url: str) -> None:
        """Raise `FetchRefused` for a URL that is never allowed."""
        ...

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout_seconds: float,
        max_bytes: int,
    ) -> Any:
        """Send one request; the response has a `status`. Raises `FetchRefused` or `FetchFailed`."""
        ...


class _WebhookRequest(NamedTuple):
    url: str
    body: bytes


# -- writing ---------------------------------------------------------------------------------------


def enqueue(prediction: Prediction) -> Transaction[None]:
    """Insert a message for the current state of a prediction, if its webhook has subscribed to it."""
    if prediction.webhook is None:
        return
    event = "completed" if prediction.is_terminal else "started"
    if event in prediction.webhook.events:
        message = {"id": ids.new("msg"), "prediction_id": prediction.id, "event": event}
        yield Query("outbox_insert", {**message, "prediction": encode_json(prediction)})


def enqueue_replacement(prediction: Prediction) -> Transaction[None]:
    """Replace the message about an earlier end of a prediction with one about its current state."""
    yield Query("outbox_delete", {"prediction_id": prediction.id, "event": "completed"})
    yield from enqueue(prediction)


def enqueue_started(predictions: tuple[Prediction, ...]) -> Transaction[None]:
    """Insert messages for those predictions that are running."""
    for prediction in predictions:
        if prediction.state is PredictionState.RUNNING:
            yield from enqueue(prediction)


def of_prediction(prediction_id: str) -> Transaction[Rows]:
    """Return the messages of a prediction and their delivery status."""
    return (yield from many("outbox_of_prediction", prediction_id=prediction_id))


# -- delivery --------------------------------------------------------------------------------------


class WebhookOutbox:
    """Sends the messages of the outbox; `renderers` format predictions as the webhook bodies of APIs."""

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
        self._wake = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._messages = 0
        self._memory = MemoryLimit(_MAX_BYTES, _BUSY)
        self.renderers: dict[str, Renderer] = {}

    def validate(self, webhook: Webhook | None) -> None:
        """Raise `InvalidInput` if the webhook's URL is not allowed."""
        if webhook is None:
            return
        try:
            self.sender.check_url(webhook.url)
        except errors.FetchRefused as refused:
            raise errors.InvalidInput.of("webhook", f"webhook: {refused.message}", refused.code) from refused

    def on_event(self, _prediction_id: str, event: Event) -> None:
        """Wake the sender after a state change of a prediction with a webhook."""
        if isinstance(event, StateChanged) and event.prediction.webhook is not None:
            self._wake.set()

    async def run(self) -> None:
        """Send messages until canceled."""
        try:
            while True:
                self._wake.clear()
                try:
                    while await self._send_due():
                        pass
                except errors.StoreFailed:
                    _LOG.exception("the webhook outbox could not be read; retrying")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
        finally:
            for task in (tasks := tuple(self._sending.values())):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_due(self) -> int:
        """Begin to send the messages that are due; return their number.

        A slow receiver delays only the messages of its account: each account's messages are sent by a
        separate task, and its next messages are claimed when that task has ended.
        """
        free = MAX_SENDING - self._messages
        if free <= 0 or await self._database.read(one("outbox_due"), snapshot=False) is None:
            return 0
        busy = encode_json(tuple(self._sending))
        claim = many(
            "outbox_claim", lease=_LEASE_US, busy=busy, window=_WINDOW, share=_ACCOUNT_SHARE, limit=free
        )
        rows = await self._database.write(claim)
        accounts: defaultdict[str, list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: (row["created_at"], row["id"])):
            accounts[row["account_id"]].append(row)
        for account_id, messages in accounts.items():
            task = asyncio.create_task(self._send_all(messages))
            self._sending[account_id] = task
            self._messages += len(messages)
            task.add_done_callback(partial(self._end_sending, account_id, len(messages)))
        return len(rows)

    def _end_sending(self, account_id: str, count: int, task: asyncio.Task[None]) -> None:
        del self._sending[account_id]
        self._messages -= count
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("webhooks could not be recorded as sent; they will be sent again", exc_info=error)

    async def _send_all(self, rows: Sequence[Row]) -> None:
        """Send messages of one account; messages of the same prediction are sent in order."""
        groups: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row["prediction_id"]].append(row)
        try:
            await asyncio.gather(*(self._send_in_order(group) for group in groups.values()))
        except asyncio.CancelledError:
            # Release the messages, so that the next server need not wait for the lease.
            with contextlib.suppress(errors.StoreFailed):
                for row in rows:
                    await self._database.write(one("outbox_again", id=row["id"], delay=0, error=None))
            raise

    async def sweep(self) -> None:
        """Delete messages whose retention has expired."""
        moment = await self._database.read(now(), snapshot=False)
        await self._database.write(one("outbox_sweep", before=moment - self.schedule.life_us), durable=False)

    async def _send_in_order(self, messages: list[Row]) -> None:
        for message in messages:
            error, final = await self._send(message)
            age = int(message["now"]) - int(message["created_at"])
            delay = self.schedule.delay_us(int(message["attempts"]))
            if final or age + delay > self.schedule.life_us:
                await self._database.write(one("outbox_end", id=message["id"], error=error))
            else:
                await self._database.write(one("outbox_again", id=message["id"], delay=delay, error=error))

    async def _send(self, message: Row) -> tuple[str | None, bool]:
        """Send one message; return the error, if any, and whether this result is final."""
        try:
            async with self._memory.lease(str(message["account_id"])) as lease:
                await lease.resize(int(message["size"]))
                return await self._send_stored(message)
        except errors.TooManyRequests as busy:
            return busy.message, False

    async def _send_stored(self, message: Row) -> tuple[str | None, bool]:
        row = await self._database.read(one("outbox_prediction", id=message["id"]), snapshot=False)
        if row is not None and row["is_ended"]:
            return "The member or program that requested this webhook has no access any more", True
        if row is not None and row["is_closed"]:
            # The account may be kept within the day of retries.
            return "The account is closed", False
        if row is not None and row["webhook"] is not None and row["prediction"] is None:
            # An older version wrote the message.
            row = await self._database.read(one("prediction_by_id", id=message["prediction_id"]))
        if row is None or row["webhook"] is None:
            return "The prediction was deleted", True
        # Decoding and encoding the numbers of an output of 4 MB takes a tenth of a second.
        size = Prediction.stored_size(row) if "state" in row else len(row["prediction"])
        request = await PARSER.run_large(size, self._request, row, message)
        if request is None:
            return "This server cannot render the message", False
        secret = await self._secrets.of(str(message["account_id"]))
        headers = await PARSER.run_large(size, _headers, secret, message, request.body)
        try:
            response = await self.sender.send(
                "POST",
                request.url,
                headers=headers,
                content=request.body,
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

    def _request(self, row: Row, message: Row) -> _WebhookRequest | None:
        """Return the request of a message, or None if no API of this server renders it."""
        stored = "state" not in row
        prediction = (
            msgspec.json.decode(row["prediction"], type=Prediction) if stored else Prediction.from_row(row)
        )
        # The API name may be followed by the public name with which the model was requested.
        face = prediction.face.partition(":")[0]
        renderer = self.renderers.get(face) or next(iter(self.renderers.values()), None)
        if renderer is None or prediction.webhook is None:
            return None
        document = renderer(prediction, message["event"], message["created_at"])
        return _WebhookRequest(prediction.webhook.url, msgspec.json.encode(document))


def _headers(secret: str, message: Row, body: bytes) -> dict[str, str]:
    timestamp = int(message["now"]) // SECOND_US
    return {
        "content-type": "application/json",
        "webhook-id": str(message["id"]),
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, str(message["id"]), timestamp, body),
    }
