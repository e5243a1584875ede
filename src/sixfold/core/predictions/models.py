"""Records of stored predictions."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from sixfold.core.accounts import charges
from sixfold.core.accounts.prices import Meter
from sixfold.core.catalog.engines import TaskRecord
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.database import Row, to_struct
from sixfold.core.input_limits import json_decoding
from sixfold.core.media.outputs import Output, decode_output
from sixfold.core.predictions.states import TERMINAL, PredictionState

# Inputs by which a request for a stream asks for partial results.
_PARTIAL = ("partial_images", "partial_text")


class Webhook(msgspec.Struct, frozen=True):
    """The URL of a webhook, and the events (`started`, `completed`) that are sent to it."""

    url: str
    events: tuple[str, ...] = ("started", "completed")


class StepDurations(msgspec.Struct, frozen=True):
    """The duration of each step of a prediction in µs; amounts are in the prediction itself."""

    priced: int
    queued: int | None
    cold_start: int
    run: int
    stored: int
    stored_bytes: int


class Prediction(msgspec.Struct, frozen=True):
    """A prediction with its current state. Times are in epoch µs, amounts in micro-dollars.

    `output` is set after a success, `error` and `error_kind` after a failure. `charge` itemizes the price;
    `list_price` is set if it is free. `size` is the length of its stored JSON documents. A `withheld`
    prediction is a child whose parent is not paid yet. `ignored_inputs` maps unknown inputs to similar ones.
    """

    id: str
    account_id: str
    job_id: str | None
    request_id: str
    parent_id: str | None
    face: str
    model: str
    engine: str
    engine_version: str | None
    quality: str
    output_kind: str
    inputs: dict[str, Any]
    task: TaskRecord
    origin_id: str
    state: PredictionState
    attempt: int
    price: int
    credits: int
    cost: int
    output: Output | None
    error: str | None
    error_kind: str | None
    logs: str
    durations: StepDurations
    created_at: int
    started_at: int | None
    completed_at: int | None
    meter: Meter = "fixed"
    rate: int = 0
    hardware: str | None = None
    webhook: Webhook | None = None
    charge: charges.CostBreakdown | None = None
    list_price: int | None = None
    key_id: str | None = None
    keyless: bool = False
    credential_id: str = ""
    withheld: bool = False
    size: int = 0
    ignored_inputs: dict[str, str] = {}

    @property
    def is_terminal(self) -> bool:
        """Whether the prediction has ended."""
        return self.state in TERMINAL

    @property
    def shows_partial_results(self) -> bool:
        """Whether the caller receives partial results while the prediction runs."""
        # An input with one of these names from a client is in `inputs` too.
        return any(self.task.inputs.get(name) and name not in self.inputs for name in _PARTIAL)

    @property
    def words(self) -> PromptWords:
        """The words of the prompt that the engine understood and ignored."""
        return NO_WORDS if self.output is None else self.output.words

    @property
    def redacted(self) -> Prediction:
        """The prediction in the form that its account may read: without inputs and output while withheld."""
        return replace(self, inputs={}, task=TaskRecord({}), output=None) if self.withheld else self

    @staticmethod
    def stored_size(row: Row) -> int:
        """Return the length of the JSON documents and logs in a row."""
        return sum(len(row[name] or "") for name in ("inputs", "task", "output", "logs"))

    @classmethod
    def from_row(cls, row: Row, output: Output | None = None) -> Prediction:
        """Build a prediction from a row, in the form that its account may read.

        If `output` is set, it is the output of the row, which is then not decoded.
        """
        return cls.from_row_unredacted(row, output).redacted

    @classmethod
    def from_row_unredacted(cls, row: Row, output: Output | None = None) -> Prediction:
        """Build a prediction from a row including withheld fields, for its own run and its parent's."""
        started, created = row["started_at"], row["created_at"]
        if output is None and row["output"] is not None:
            output = decode_output(row["output"])
        return to_struct(
            cls,
            row,
            inputs=_decode_object(row["inputs"]),
            task=_task_of(row),
            state=PredictionState(row["state"]),
            output=output,
            durations=StepDurations(
                priced=row["priced_us"],
                queued=started - created if started is not None else None,
                cold_start=row["cold_start_us"],
                run=row["run_us"],
                stored=row["stored_us"],
                stored_bytes=row["stored_bytes"],
            ),
            webhook=_decode_webhook(row["webhook"]) if row["webhook"] is not None else None,
            charge=charges.decode(row["charge"]),
            keyless=bool(row["keyless"]),
            credential_id=row["credential_id"] or "",
            withheld=bool(row["withheld"]),
            size=cls.stored_size(row),
            ignored_inputs=_decode_object(row["ignored_inputs"]) if row["ignored_inputs"] else {},
        )


def _task_of(row: Row) -> TaskRecord:
    if len(row["task"]) <= LOOP_BYTES:
        return _decode_task(row["task"])
    return _large_tasks.get(row["id"]) or _large_tasks.setdefault(row["id"], _decode_task(row["task"]))


# The task of a prediction never changes, so the states of the prediction in memory share a large one.
_large_tasks: WeakValueDictionary[str, TaskRecord] = WeakValueDictionary()
_decode_object = msgspec.json.Decoder(dict[str, Any], float_hook=json_decoding.number).decode
_decode_task = msgspec.json.Decoder(TaskRecord, float_hook=json_decoding.number).decode
_decode_webhook = msgspec.json.Decoder(Webhook).decode
