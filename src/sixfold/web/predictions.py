"""The JSON of a prediction, and the refund of one that an API cannot deliver, shared by all APIs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.prices import ListPriceSchema, list_price_field
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.engines import Quality
from sixfold.core.clock import rfc3339
from sixfold.core.media.outputs import OUTPUT_NAME
from sixfold.core.media.ports import OutputFile
from sixfold.core.money import Usd
from sixfold.core.predictions import receipt, repository
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.receipt import ReceiptStepSchema
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.states import PredictionState
from sixfold.web.responses import IgnoredInputsSchema, ignored_inputs_field
from sixfold.web.services import WebServices

PATH = "/api/containers/predictions"
_MAX_LOG_TAIL = 16_384
Url = Callable[[OutputFile], str]
Status = Literal["queued", "starting", "running", "succeeded", "failed", "canceled", "expired"]
OtherOutputs = Annotated[
    dict[str, Any], msgspec.Meta(description="The other outputs by name, where there are several")
]
_PLAIN = frozenset({int, float, str, bool, type(None)})


class MetricsSchema(TypedDict):
    """The waiting and running times of a prediction, in milliseconds."""

    queue_ms: float | None
    cold_start_ms: float
    predict_ms: float


class PredictionUrlsSchema(TypedDict):
    """The URLs to read, cancel and follow a prediction."""

    get: str
    cancel: str
    events: str


class PredictionSchema(ListPriceSchema, IgnoredInputsSchema):
    """A request to run a model, with its receipt."""

    id: str
    prediction_id: str
    model: str
    status: Status
    input: Mapping[str, Any]
    output: Any
    outputs: NotRequired[OtherOutputs]
    output_kind: str
    error: str | None
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)]
    queue_position: int | None
    eta_seconds: float | None
    logs: str
    hardware: str | None
    engine: str
    quality: Quality
    understood: list[str]
    ignored: list[str]
    attempt: int
    parent_id: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None
    metrics: MetricsSchema
    cost: Usd
    credits_charged: int
    receipt: Annotated[list[ReceiptStepSchema], msgspec.Meta(min_length=6, max_length=6)]
    urls: PredictionUrlsSchema


class PredictionStatus(msgspec.Struct, frozen=True):
    """The live state of a prediction: its progress, queue position, and estimated seconds to its end."""

    progress: float = 0.0
    position: int | None = None
    eta_seconds: float | None = None


def failure_of(
    record: Prediction, unusable: Callable[[], errors.SixfoldError], failed: errors.SixfoldError
) -> errors.SixfoldError | None:
    """Return the error for a prediction that has ended, or None if it succeeded.

    A canceled prediction is a conflict in all APIs. `unusable` returns the error for an input that cannot be
    used, and `failed` is the error for other failures.
    """
    if record.state is PredictionState.SUCCEEDED:
        return None
    if record.state is PredictionState.CANCELED:
        return errors.Conflict("The request was canceled")
    return unusable() if record.error_kind == repository.UNUSABLE else failed


@asynccontextmanager
async def refunded_on_failure(
    service: PredictionService, record: Prediction, reason: str, conflict: str = ""
) -> AsyncGenerator[None]:
    """Refund a succeeded prediction if the block, which delivers its result, raises an error.

    The reason for a `Conflict` is `conflict`, if set. Errors of a store are raised as `StoreFailed`.
    """
    try:
        yield
    except Exception as error:
        is_conflict = isinstance(error, errors.Conflict)
        await service.refund(record, conflict if is_conflict and conflict else reason)
        if isinstance(error, KeyError | OSError | errors.StoreFailed):
            raise errors.StoreFailed from error
        raise


async def cancel(service: PredictionService, prediction_id: str, tenant: Tenant) -> Prediction:
    """Cancel a prediction, and return it when its worker has stopped, at most five seconds later."""
    return await service.wait(await service.cancel(prediction_id, tenant), 5.0)


def status(record: Prediction) -> Status:
    """Return the state for callers: a prediction that is being canceled counts as running."""
    return "running" if record.state is PredictionState.CANCELING else cast("Status", str(record.state))


def urls(record: Prediction) -> PredictionUrlsSchema:
    own = f"{PATH}/{record.id}"
    return {"get": own, "cancel": f"{own}/cancel", "events": f"{own}/events"}


def prediction(record: Prediction, media_url: Url, live: PredictionStatus) -> PredictionSchema:
    durations = record.durations
    others, words = outputs(record, media_url), record.words
    serialized: PredictionSchema = {
        "id": record.id,
        "prediction_id": record.id,
        "model": record.model,
        "status": status(record),
        "input": record.inputs,
        "output": output(record, media_url),
        "output_kind": record.output_kind,
        "error": record.error,
        "progress": 1.0 if record.state is PredictionState.SUCCEEDED else live.progress,
        "queue_position": live.position,
        "eta_seconds": live.eta_seconds,
        "logs": record.logs[-_MAX_LOG_TAIL:],
        "hardware": record.hardware,
        "engine": engine_name(record.engine),
        "quality": cast("Quality", record.quality),
        "understood": list(words.understood),
        "ignored": list(words.ignored),
        **ignored_inputs_field(record.model, record.ignored_inputs),
        "attempt": record.attempt,
        "parent_id": record.parent_id,
        "created_at": rfc3339(record.created_at),
        "started_at": rfc3339(record.started_at),
        "completed_at": rfc3339(record.completed_at),
        "metrics": {
            "queue_ms": None if durations.queued is None else durations.queued / 1000,
            "cold_start_ms": durations.cold_start / 1000,
            "predict_ms": durations.run / 1000,
        },
        "cost": money.format_usd(record.cost),
        "credits_charged": record.credits if record.cost else 0,
        **list_price_field(receipt.would_cost(record)),
        "receipt": receipt.to_json(record),
        "urls": urls(record),
    }
    if others:
        serialized["outputs"] = others
    return serialized


def output(record: Prediction, media_url: Url) -> Any:
    """Return the first output: a file or value, a list of files, or an object of named files."""
    if record.output is None:
        return None
    first = record.output.first
    data = first.data
    named: dict[str, list[dict[str, Any]]] = {}
    for file in first.files:
        named.setdefault(str(file.info.get("name", "")), []).append(_file(file, media_url))
    if not named:
        return data["value"] if data.keys() == {"value"} else data
    plain = {name: files[0] if len(files) == 1 else files for name, files in named.items()}
    return plain[""] if plain.keys() == {""} else {**data, **plain}


def is_plain(values: list[Any]) -> bool:
    """Return whether a list contains only texts and numbers: vectors have up to a million of them."""
    return _PLAIN.issuperset(map(type, values))


def outputs(record: Prediction, media_url: Url) -> dict[str, Any]:
    """Return the named outputs of a model with several outputs; empty for other models."""
    serialized: dict[str, Any] = {}
    for name, value in ({} if record.output is None else record.output.named).items():
        files = [_file(file, media_url) for file in _files(value)]
        serialized[name] = (files[0] if len(files) == 1 else files) if files else value
    return serialized


def _files(value: object) -> list[OutputFile]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [file for file in items if isinstance(file, OutputFile)]


def _file(file: OutputFile, media_url: Url) -> dict[str, Any]:
    info = {key: value for key, value in file.info.items() if key not in ("name", OUTPUT_NAME)}
    return {"url": media_url(file), "content_type": file.content_type, **info}


class PredictionSerializer:
    """Serializes predictions with their live state."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def serialize_with_position(self, record: Prediction) -> PredictionSchema:
        """Return a prediction with its queue position, which is read from the database."""
        return self.serialize(record, await self.position(record))

    async def position(self, record: Prediction) -> int | None:
        """Return the number of predictions ahead in the queue, or None if `record` is not queued."""
        if record.state is not PredictionState.QUEUED:
            return None
        return await self._services.predictions.position(record)

    def serialize(self, record: Prediction, position: int | None = None) -> PredictionSchema:
        """Return a prediction without reading the database."""
        progress = self._services.predictions.bus.progress(record.id)
        live = PredictionStatus(progress, position, self._eta(record, progress, position or 0))
        return prediction(record, self._services.media_url, live)

    def until_end(self, model: str, engine: str, ahead: int) -> float:
        """Estimate the seconds until a run of `model` behind `ahead` other predictions ends."""
        workers = self._workers(engine)
        rounds = (ahead + workers.get("busy", 0)) // self._width(engine)
        seconds = self._services.durations.until_end(model, engine, rounds, cold=self.is_cold(engine))
        return round(seconds + self._switch_seconds(engine), 3)

    def _switch_seconds(self, engine: str) -> float:
        """Estimate the time to load the model again if another one has taken its place on a shared GPU."""
        spec = self._services.catalog.engines().get(engine)
        return 0.0 if spec is None else self._services.gpu.switch_seconds(spec)

    def is_cold(self, engine: str) -> bool:
        """Return whether a worker has to start first."""
        return not any(self._workers(engine).values())

    def _eta(self, record: Prediction, progress: float, ahead: int) -> float | None:
        if record.is_terminal:
            return None
        if record.started_at is not None:
            return self._services.durations.remaining(record, progress)
        return self.until_end(record.model, record.engine, ahead)

    def _workers(self, engine: str) -> Mapping[str, int]:
        return self._services.scheduler.snapshot().get(engine, {})

    def _width(self, name: str) -> int:
        """Return the number of concurrent runs of an engine, or of workers for an account's own engine."""
        # A server without workers relies on those of other servers.
        slots = max(1, self._services.settings.workers)
        engine = self._services.catalog.engines().get(name)
        if engine is None:
            return slots
        allowed = engine.concurrency or slots
        return (allowed if engine.remote else min(allowed, slots)) * engine.max_tasks
