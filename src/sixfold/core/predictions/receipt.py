"""Receipts: the time, duration and amount of each of the six steps of a prediction."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import msgspec

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import ChargeSchema, CostBreakdown
from sixfold.core.accounts.ledger import LedgerEntry
from sixfold.core.clock import rfc3339
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState


class ReceiptStepSchema(TypedDict):
    """A step of a receipt as JSON: when it was reached, its milliseconds, and its amount."""

    name: str
    at: str | None
    ms: float | None
    usd: str | None
    charge: NotRequired[ChargeSchema | None]


class ReceiptStep(msgspec.Struct, frozen=True):
    """A step of a receipt; `at` (epoch µs) and `took` (µs) are None if not reached or not measured.

    `micros` is the amount of this step, or None; `charge` itemizes it.
    """

    name: str
    at: int | None
    took: int | None
    micros: int | None
    charge: CostBreakdown | None = None

    def to_json(self) -> ReceiptStepSchema:
        """Return the step as JSON; `charge` is present if the amount is itemized."""
        result: ReceiptStepSchema = {
            "name": self.name,
            "at": rfc3339(self.at),
            "ms": None if self.took is None else self.took / 1000,
            "usd": None if self.micros is None else money.format_usd(self.micros),
        }
        if self.charge is not None:
            result["charge"] = charges.to_json(self.charge)
        return result


def steps(prediction: Prediction) -> tuple[ReceiptStep, ...]:
    """Return the six steps of a prediction; a child is held and charged with its parent."""
    durations = prediction.durations
    created, started, completed = prediction.created_at, prediction.started_at, prediction.completed_at
    succeeded = prediction.state is PredictionState.SUCCEEDED
    ran_at = started + durations.cold_start if started is not None else None
    stored_at = ran_at + durations.run if ran_at is not None and succeeded else None
    is_terminal = prediction.is_terminal
    queue_us = durations.queued
    if queue_us is None and completed is not None:
        # The prediction ended while it was queued.
        queue_us = completed - created
    return (
        ReceiptStep("priced", created - durations.priced, durations.priced, prediction.price),
        ReceiptStep("held", created, None, prediction.price if prediction.parent_id is None else 0),
        ReceiptStep("queued", created, queue_us, None),
        ReceiptStep("run", ran_at, durations.run if is_terminal and ran_at is not None else None, None),
        ReceiptStep("stored", stored_at, durations.stored if stored_at is not None else None, None),
        _captured(prediction, stored_at),
    )


def _captured(prediction: Prediction, stored_at: int | None) -> ReceiptStep:
    if stored_at is None or prediction.completed_at is None:
        released = 0 if prediction.is_terminal else None
        return ReceiptStep("captured", None, None, released)
    took = max(0, prediction.completed_at - stored_at - prediction.durations.stored)
    return ReceiptStep(
        "captured", prediction.completed_at, took, captured_amount(prediction), itemized(prediction)
    )


def captured_amount(prediction: Prediction) -> int:
    """Return the captured amount; 0 for a child, which is charged with its parent."""
    return prediction.cost if prediction.parent_id is None else 0


def itemized(prediction: Prediction) -> CostBreakdown | None:
    """Return the itemized charge; None before success and for charges from older versions."""
    charge = prediction.charge
    if charge is None or prediction.state is not PredictionState.SUCCEEDED:
        return None
    if charge.amount > prediction.cost:
        # The parent failed, so the child is free.
        return CostBreakdown(prediction.cost, charge.lines, prediction.cost)
    return charge


def would_cost(prediction: Prediction) -> int | None:
    """Return the list price in micro-dollars if less is charged; None otherwise, and after a failure."""
    failed = prediction.is_terminal and prediction.state is not PredictionState.SUCCEEDED
    return None if failed else prediction.list_price


def entry(prediction: Prediction, charge: str | None) -> LedgerEntry:
    """Return the ledger entry of a charge, with the model, and the list price if less was charged."""
    list_price, description = prediction.list_price, prediction.model
    if list_price is not None:
        description += f" (list price {money.format_usd(list_price)} USD)"
    return LedgerEntry("charge", description, prediction.request_id, charge)


def to_json(prediction: Prediction) -> list[ReceiptStepSchema]:
    return [step.to_json() for step in steps(prediction)]
