"""Predictions in the database, which are accepted with a hold, claimed with a lease, and charged.

Each function is one transaction. A claim increments `attempt`, and every later step specifies its attempt, so
a worker that has lost its lease cannot write results (`StaleAttempt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges, ledger, ledger_batches
from sixfold.core.accounts.ledger_batches import Capture
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import TaskRecord
from sixfold.core.catalog.metering import RunCharge
from sixfold.core.database import Query, Row, Rows, Transaction, encode_json, now, one
from sixfold.core.media import upload_paths
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import receipt, refunds, webhooks
from sixfold.core.predictions.models import Prediction, Webhook
from sixfold.core.predictions.states import TERMINAL, PredictionEvent, PredictionState, follow, sources

LOST = "lost"
UNUSABLE = "unusable_input"
# The two states from which a prediction can succeed; the guarded UPDATE contains both.
_SUCCEED_FROM = sources(PredictionEvent.SUCCEED)
_MAX_SWEEP = 500
# The length in bytes of inputs that are counted if their run is free or does not succeed.
LARGE_INPUTS = 2**16
_COLUMNS = (
    *("id", "account_id", "job_id", "request_id", "idempotency_id", "parent_id", "face", "model", "engine"),
    *("quality", "output_kind", "fingerprint", "key_id", "hardware", "priced_us", "prompt_id"),
)


class StaleAttempt(Exception):
    """This attempt has ended: its lease was lost, or the prediction has ended."""


# -- accepting -----------------------------------------------------------------------------------


class PredictionDraft(msgspec.Struct, frozen=True):
    """A validated and priced prediction that has not been accepted yet."""

    id: str
    account_id: str
    job_id: str | None
    request_id: str
    idempotency_id: str | None
    face: str
    model: str
    engine: str
    quality: str
    output_kind: str
    inputs: Mapping[str, Any]
    task: TaskRecord
    fingerprint: bytes
    price: PriceRow
    priced_us: int
    parent_id: str | None = None
    hardware: str | None = None
    webhook: Webhook | None = None
    payer: Payer | None = None
    key_id: str | None = None
    media: tuple[Mapping[str, Any], ...] = ()
    upload_path: str | None = None
    keyless: bool = False
    credential_id: str = ""
    ignored_inputs: Mapping[str, str] = {}
    prompt_id: str | None = None


def accept(draft: PredictionDraft, queue_limit: int, free_queue_limit: int = 0) -> Transaction[Prediction]:
    """Insert the prediction and its hold; raises `QueueFull`, `Conflict` or `InsufficientCredits`.

    If the draft's idempotency id was already accepted, returns that prediction without changes. A
    `free_queue_limit` other than 0 limits the unfinished free predictions of the account.
    """
    earlier = yield from _accepted_before(draft)
    if earlier is not None:
        return Prediction.from_row(earlier)
    if draft.parent_id is None:
        yield from ledger.hold_price(draft.account_id, draft.id, draft.price.micros, draft.payer)
    free_limit = free_queue_limit if not draft.price.micros and draft.parent_id is None else 0
    limits = {"queue_limit": queue_limit, "free_queue_limit": free_limit}
    inserted = yield Query("prediction_insert", {**_row(draft), **limits})
    if not inserted:
        raise (yield from _queue_full(draft, queue_limit, free_limit))
    for record in draft.media:
        yield Query("media_insert", record)
    yield from upload_paths.reserve(draft.upload_path, draft.id)
    if draft.parent_id is not None:
        yield from refunds.withhold_files(draft.id)
    return Prediction.from_row(inserted[0])


def accept_all(
    drafts: Sequence[PredictionDraft], queue_limit: int, free_queue_limit: int = 0
) -> Transaction[list[Prediction]]:
    """Accept all drafts or none; raises `QueueFull`, `Conflict` or `InsufficientCredits`."""
    accepted: list[Prediction] = []
    for draft in drafts:
        accepted.append((yield from accept(draft, queue_limit, free_queue_limit)))
    return accepted


def _queue_full(
    draft: PredictionDraft, queue_limit: int, free_queue_limit: int
) -> Transaction[errors.QueueFull]:
    if free_queue_limit:
        free = yield from one(
            "prediction_unfinished_free", account_id=draft.account_id, limit=free_queue_limit
        )
        if free is not None and free["unfinished"] >= free_queue_limit:
            return errors.QueueFull(
                f"An account can have at most {free_queue_limit} unfinished free requests: "
                "try again when some of them have ended"
            )
    return errors.QueueFull(f"The queue of {draft.model} is full ({queue_limit} requests): try again later")


def _accepted_before(draft: PredictionDraft) -> Transaction[Row | None]:
    """Return the prediction with the same idempotency key, or of the same part of the same parent."""
    if draft.idempotency_id is not None:
        earlier = yield from one("prediction_by_idempotency", idempotency_id=draft.idempotency_id)
        if earlier is not None:
            return earlier
    return (yield from _of_parent(draft)) if draft.parent_id is not None else None


def _row(draft: PredictionDraft) -> dict[str, Any]:
    inputs, task = encode_json(draft.inputs), encode_json(draft.task)
    size = sum(len(text) if text.isascii() else len(text.encode()) for text in (inputs, task))
    return {name: getattr(draft, name) for name in _COLUMNS} | {
        "inputs": inputs,
        "task": task,
        "input_bytes": size if size >= LARGE_INPUTS else 0,
        "price": draft.price.micros,
        "credits": draft.price.credits,
        "meter": draft.price.meter,
        "rate": draft.price.rate,
        "list_price": draft.price.list_micros,
        "charge": draft.price.charge,
        "webhook": None if draft.webhook is None else encode_json(draft.webhook),
        "keyless": int(draft.keyless),
        "credential_id": draft.credential_id or None,
        "ignored_inputs": encode_json(draft.ignored_inputs) if draft.ignored_inputs else "",
    }


def _of_parent(draft: PredictionDraft) -> Transaction[Row | None]:
    """Return the child if it was accepted earlier; raises `Conflict` if the parent has ended."""
    parent = yield from one("prediction_by_id", id=draft.parent_id)
    if parent is None or PredictionState(parent["state"]) in TERMINAL | {PredictionState.CANCELING}:
        raise errors.Conflict("The prediction that requested this one has ended")
    return (yield from one("prediction_by_id", id=draft.id))


def get_any(prediction_id: str) -> Transaction[Prediction]:
    """Return a prediction of any account; raises `NotFound`."""
    return Prediction.from_row((yield from any_row(prediction_id)))


def any_row(prediction_id: str) -> Transaction[Row]:
    """Return the row of a prediction of any account; raises `NotFound`."""
    if (row := (yield from one("prediction_by_id", id=prediction_id))) is None:
        raise errors.NotFound("Prediction not found")
    return row


# -- reading -------------------------------------------------------------------------------------


def get(prediction_id: str, tenant: Tenant) -> Transaction[Prediction]:
    """Return a prediction of a tenant; raises `NotFound`, also for a prediction of another tenant."""
    return Prediction.from_row((yield from visible_row(prediction_id, tenant)))


def visible_row(prediction_id: str, tenant: Tenant) -> Transaction[Row]:
    """Return the row of a prediction of a tenant; raises `NotFound`."""
    row = yield from one("prediction_by_id", id=prediction_id)
    if row is None or not tenant.sees(row["account_id"], row["credential_id"] or ""):
        raise errors.NotFound((yield from _why_not_found(prediction_id, tenant)))
    return row


def _why_not_found(prediction_id: str, tenant: Tenant) -> Transaction[str]:
    """Return a sentence that depends only on the id and the tenant's own archive."""
    last = yield from one("archive_last_of_account", account_id=tenant.account_id, kind="predictions")
    if last is None or not ids.earliest("pred", 0) < prediction_id <= last["last_id"]:
        return "Prediction not found"
    return "Prediction not found: it was archived, and only the operator can read the archive"


def row_by_job(job_id: str) -> Transaction[Row]:
    """Return the row of a prediction by its job id, which requires no key.

    Raises `NotFound`, also while the account is suspended or closed.
    """
    row = yield from one("prediction_by_job", job_id=job_id)
    if row is None:
        raise errors.NotFound("Job not found")
    return row


# -- running -------------------------------------------------------------------------------------


class RunLease(msgspec.Struct, frozen=True):
    """The server that holds a claim, and the time in µs after which a claim without a heartbeat ends."""

    holder: str
    life_us: int


def ready(prediction_id: str, attempt: int) -> Transaction[Prediction]:
    """Mark a starting prediction as running; a prediction that is being canceled keeps its state.

    Raises `StaleAttempt`.
    """
    prediction = Prediction.from_row((yield from _active(prediction_id, attempt)))
    if prediction.state is PredictionState.CANCELING:
        return prediction
    prediction = yield from _move(prediction, follow(prediction.state, PredictionEvent.READY))
    yield from webhooks.enqueue(prediction)
    return prediction


class Trace(msgspec.Struct, frozen=True):
    """The log of a run, and the durations of its start, run and storage in µs."""

    logs: str = ""
    cold_start_us: int = 0
    run_us: int = 0
    stored_us: int = 0
    stored_bytes: int = 0


class SuccessRecord(msgspec.Struct, frozen=True):
    """The result of a stored run; `charge` is None if the price or the children's costs apply.

    `document` is the output as JSON, or None if it takes little time to encode.
    """

    output: Output
    quality: str
    engine_version: str
    trace: Trace
    media: tuple[Mapping[str, Any], ...] = msgspec.field(default=())
    upstream_cost_micros: int | None = None
    charge: RunCharge | None = None
    document: str | None = None


def succeed(prediction_id: str, attempt: int, success: SuccessRecord) -> Transaction[Prediction]:
    """Mark a prediction as succeeded, insert its media files and capture its charge.

    Raises `StaleAttempt` if the attempt has ended; then nothing is written.
    """
    charge = success.charge
    updated = yield Query(
        "prediction_succeed",
        {
            "id": prediction_id,
            "from_state": _SUCCEED_FROM[0],
            "or_state": _SUCCEED_FROM[1],
            "attempt": attempt,
            "output": success.output.encode() if success.document is None else success.document,
            "quality": success.quality,
            "engine_version": success.engine_version,
            "logs": success.trace.logs,
            "cold_start_us": success.trace.cold_start_us,
            "run_us": success.trace.run_us,
            "stored_us": success.trace.stored_us,
            "stored_bytes": success.trace.stored_bytes,
            "upstream_cost": success.upstream_cost_micros,
            "cost": None if charge is None else charge.micros,
            "credits": None if charge is None else charge.credits,
            "charge": None if charge is None else charges.encode(charge.breakdown),
            "list_price": None if charge is None else charge.list_micros,
        },
    )
    if not updated:
        raise StaleAttempt(prediction_id)
    for record in success.media:
        yield Query("media_insert", record)
    prediction = yield from refunds.settle(updated[0], success.output)
    if prediction.parent_id is None and prediction.price:
        entry = receipt.entry(prediction, updated[0]["charge"])
        if prediction.cost == prediction.price:  # Budgets do not change, so the hold need not be read.
            capture = Capture(prediction.account_id, prediction_id, prediction.price, prediction.cost, entry)
            yield from ledger_batches.capture_all([capture])
        else:
            yield from ledger.capture(prediction_id, prediction.cost, entry)
    yield from webhooks.enqueue(prediction)
    return prediction


def succeed_with_children(
    prediction_id: str, attempt: int, success: SuccessRecord
) -> Transaction[Prediction]:
    """Mark a prediction as succeeded, charging the sum of the children's costs; otherwise as `succeed`."""
    rows = yield Query("prediction_children_costs", {"id": prediction_id})
    if not rows:
        raise StaleAttempt(prediction_id)
    return (yield from succeed(prediction_id, attempt, replace(success, charge=RunCharge.of_children(rows))))


class FailureRecord(msgspec.Struct, frozen=True):
    """The failure of a run: a message for the account, and a kind for clients."""

    message: str
    kind: str
    trace: Trace = Trace()


def fail(prediction_id: str, attempt: int, failure: FailureRecord) -> Transaction[Prediction]:
    """End an attempt without a result and release its hold; raises `StaleAttempt`."""
    row, state = yield from _transition(prediction_id, attempt, PredictionEvent.FAIL)
    return (yield from _end(row, state, failure))


def stop(prediction_id: str, attempt: int, trace: Trace) -> Transaction[Prediction]:
    """End a canceling prediction whose worker has stopped; raises `StaleAttempt`."""
    row, state = yield from _transition(prediction_id, attempt, PredictionEvent.STOP)
    return (yield from _end(row, state, FailureRecord("Canceled", "canceled", trace)))


def cancel(prediction_id: str, tenant: Tenant) -> Transaction[Prediction]:
    """Cancel a queued prediction, or request that the worker of a running one stop.

    A prediction that has ended, or may have shown partial results (charged with the result), stays unchanged.
    """
    row = yield from visible_row(prediction_id, tenant)
    current = PredictionState(row["state"])
    if current in TERMINAL or current is PredictionState.CANCELING:
        return Prediction.from_row(row)
    has_run = row["attempt"] > (current is PredictionState.STARTING)
    if has_run and (prediction := Prediction.from_row(row)).shows_partial_results:
        return prediction
    state = follow(current, PredictionEvent.CANCEL)
    if state is PredictionState.CANCELED:
        return (yield from _end(row, state, FailureRecord("Canceled", "canceled")))
    return (yield from _move(Prediction.from_row(row), state))


# -- leases --------------------------------------------------------------------------------------


def heartbeat(lease: RunLease, prediction_ids: Sequence[str]) -> Transaction[int]:
    """Extend the leases of the predictions that a server runs, not of unknown claims; return their number."""
    held = {"holder": lease.holder, "lease": lease.life_us, "ids": encode_json(prediction_ids)}
    return len((yield Query("prediction_heartbeat", held)))


def lose(prediction_id: str, attempt: int, max_attempts: int, reason: str) -> Transaction[Prediction]:
    """Requeue a prediction whose worker was lost, or fail it after the last attempt."""
    row, _ = yield from _transition(prediction_id, attempt, PredictionEvent.LOSE)
    return (yield from _lose(row, max_attempts, reason))


def put_back(prediction_id: str, attempt: int, holder: str) -> Transaction[Prediction]:
    """Requeue a prediction that `holder` has claimed and not started, without counting an attempt.

    Raises `StaleAttempt`, also if another server has claimed it since then as the same attempt.
    """
    row, state = yield from _transition(prediction_id, attempt, PredictionEvent.PUT_BACK)
    if state is PredictionState.CANCELED:
        return (yield from _end(row, state, FailureRecord("Canceled", "canceled")))
    requeued = yield Query("prediction_put_back", {"id": prediction_id, "attempt": attempt, "holder": holder})
    if not requeued:
        raise StaleAttempt(prediction_id)
    return Prediction.from_row(requeued[0])


def recover(holder: str, max_attempts: int) -> Transaction[tuple[Prediction, ...]]:
    """Requeue predictions claimed by servers that have ended; called at startup."""
    rows = yield Query("prediction_orphans", {"holder": holder, "limit": _MAX_SWEEP})
    return (yield from _lose_all(rows, max_attempts, "the server stopped"))


def lapse(max_attempts: int) -> Transaction[tuple[Prediction, ...]]:
    """Requeue predictions whose lease has expired."""
    rows = yield Query("prediction_lapsed", {"limit": _MAX_SWEEP})
    return (yield from _lose_all(rows, max_attempts, "its lease expired"))


def expire(before: int) -> Transaction[tuple[Prediction, ...]]:
    """End predictions that have been queued since before `before` (epoch µs)."""
    rows = yield Query("prediction_stale", {"before": before, "limit": _MAX_SWEEP})
    updated: list[Prediction] = []
    for row in rows:
        state = follow(PredictionState(row["state"]), PredictionEvent.EXPIRE)
        failure = FailureRecord("The prediction could not run before it expired", "expired")
        updated.append((yield from _end(row, state, failure)))
    return tuple(updated)


def has_expirable(life_us: int) -> Transaction[bool]:
    """Return whether a prediction has been queued for longer than `life_us`."""
    before = (yield from now()) - life_us
    return bool((yield Query("prediction_stale", {"before": before, "limit": 1})))


def expire_older(life_us: int) -> Transaction[tuple[Prediction, ...]]:
    """End predictions that have been queued for longer than `life_us`."""
    before = (yield from now()) - life_us
    return (yield from expire(before))


def _lose_all(rows: Rows, max_attempts: int, reason: str) -> Transaction[tuple[Prediction, ...]]:
    predictions: list[Prediction] = []
    for row in rows:
        predictions.append((yield from _lose(row, max_attempts, reason)))
    return tuple(predictions)


def _lose(row: Row, max_attempts: int, reason: str) -> Transaction[Prediction]:
    current = PredictionState(row["state"])
    state = follow(current, PredictionEvent.LOSE)
    if state is PredictionState.CANCELED:
        return (yield from _end(row, state, FailureRecord("Canceled", "canceled")))
    if row["attempt"] >= max_attempts:
        message = f"The worker was lost {row['attempt']} times ({reason})"
        return (yield from _end(row, follow(current, PredictionEvent.FAIL), FailureRecord(message, LOST)))
    requeued = yield Query(
        "prediction_requeue", {"id": row["id"], "from_state": current, "attempt": row["attempt"]}
    )
    if not requeued:
        raise StaleAttempt(row["id"])
    return Prediction.from_row(requeued[0])


# -- guarded transitions -------------------------------------------------------------------------


def _active(prediction_id: str, attempt: int) -> Transaction[Row]:
    row = yield from one("prediction_by_id", id=prediction_id)
    if (
        row is None
        or row["attempt"] != attempt
        or PredictionState(row["state"]) in TERMINAL | {PredictionState.QUEUED}
    ):
        raise StaleAttempt(prediction_id)
    return row


def _transition(
    prediction_id: str, attempt: int, event: PredictionEvent
) -> Transaction[tuple[Row, PredictionState]]:
    row = yield from _active(prediction_id, attempt)
    return row, follow(PredictionState(row["state"]), event)


def _move(prediction: Prediction, state: PredictionState) -> Transaction[Prediction]:
    change = {"id": prediction.id, "from_state": prediction.state, "attempt": prediction.attempt}
    if not (yield Query("prediction_move", {**change, "to_state": state})):
        raise StaleAttempt(prediction.id)
    return replace(prediction, state=state)


def _end(row: Row, state: PredictionState, failure: FailureRecord) -> Transaction[Prediction]:
    updated = yield Query(
        "prediction_end",
        {
            "id": row["id"],
            "from_state": row["state"],
            "to_state": state,
            "attempt": row["attempt"],
            "error": failure.message,
            "error_kind": failure.kind,
            "logs": failure.trace.logs,
            "cold_start_us": failure.trace.cold_start_us,
            "run_us": failure.trace.run_us,
        },
    )
    if not updated:
        raise StaleAttempt(row["id"])
    if row["price"] and row["parent_id"] is None:
        yield from ledger.release(str(row["id"]))
    yield from refunds.end(row)
    # Otherwise runs that are canceled for free could fill the disk.
    yield Query("media_inputs_leave", {"prediction_id": row["id"]})
    prediction = Prediction.from_row(updated[0])
    yield from webhooks.enqueue(prediction)
    return prediction
