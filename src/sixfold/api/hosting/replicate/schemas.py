"""Replicate's shapes: its prediction, its model, its errors, and what a prediction may be asked with."""

from __future__ import annotations

import hashlib
import http
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired, Required, TypedDict, cast

import msgspec
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting import schemas
from sixfold.api.hosting.schemas import RunRequest
from sixfold.core.catalog.models import Model
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.web import openapi, predictions, responses

OWNER = "sixfold"
BASE = "/replicate/v1"
DEFAULT_WAIT, MAX_WAIT = 60, 60
_PREFER = re.compile(r"wait(?:\s*=\s*(\d{1,4}))?", re.IGNORECASE)
_EVENTS = {"start": "started", "completed": "completed", "output": None, "logs": None}
Status = Literal["starting", "processing", "succeeded", "failed", "canceled"]
_STATES: Mapping[PredictionState, Status] = {
    PredictionState.QUEUED: "starting",
    PredictionState.STARTING: "starting",
    PredictionState.RUNNING: "processing",
    PredictionState.CANCELING: "processing",
    PredictionState.SUCCEEDED: "succeeded",
    PredictionState.FAILED: "failed",
    PredictionState.CANCELED: "canceled",
    PredictionState.EXPIRED: "failed",
}


class InvalidFieldSchema(TypedDict):
    """What is wrong with one input."""

    type: str
    field: str
    description: str


class ReplicateErrorSchema(TypedDict):
    """An error in the words of Replicate."""

    detail: str
    status: int
    title: str
    invalid_fields: NotRequired[list[InvalidFieldSchema]]


class ReplicateVersionSchema(TypedDict):
    """A version of a model, with the schema of its inputs."""

    id: str
    created_at: str
    cog_version: str
    openapi_schema: dict[str, Any]


class ReplicateModelSchema(TypedDict):
    """A model in the words of Replicate."""

    url: str
    owner: Literal["sixfold"]
    name: str
    description: str
    visibility: Literal["public", "private"]
    github_url: None
    paper_url: None
    license_url: None
    run_count: int
    cover_image_url: None
    default_example: None
    latest_version: ReplicateVersionSchema


class ReplicateUrlsSchema(TypedDict):
    """Where a prediction is read and canceled."""

    get: str
    cancel: str


class ReplicatePredictionSchema(TypedDict):
    """A prediction in the words of Replicate."""

    id: str
    model: str
    version: str
    input: Mapping[str, Any]
    logs: str
    output: Any
    outputs: NotRequired[Any]
    data_removed: bool
    error: str | None
    status: Status
    source: str
    created_at: str
    started_at: str | None
    completed_at: str | None
    metrics: dict[str, float]
    urls: ReplicateUrlsSchema
    webhook: NotRequired[str]


class FileUrlsSchema(TypedDict):
    """Where a file is read."""

    get: str


class ReplicateFileSchema(TypedDict):
    """An uploaded file."""

    id: str
    name: str
    content_type: str
    size: int
    etag: str
    checksums: dict[str, str]
    metadata: dict[str, Any]
    created_at: str
    expires_at: str
    urls: FileUrlsSchema


class SkuSchema(TypedDict):
    """One kind of hardware."""

    sku: str
    name: str


class ModelRunSchema(TypedDict, total=False):
    """What a prediction is made with."""

    input: dict[str, Any]
    webhook: str | None
    webhook_events_filter: list[Literal["start", "output", "logs", "completed"]]


class VersionRunSchema(ModelRunSchema):
    """The version that makes a prediction, and what it is made with."""

    version: Required[str]


def error(problem: errors.SixfoldError, _request_id: str) -> Response:
    """`{"detail","status","title"}`; refused inputs are 422, each in `invalid_fields`."""
    status = 422 if isinstance(problem, errors.InvalidInput) else problem.status
    body: ReplicateErrorSchema = {
        "detail": problem.message,
        "status": status,
        "title": http.HTTPStatus(status).phrase,
    }
    if isinstance(problem, errors.InvalidInput):
        body["title"] = "Input validation failed"
        body["invalid_fields"] = [
            {"type": item.kind, "field": f"input.{item.input}", "description": item.message}
            for item in problem.problems
        ]
    return responses.json(body, status, responses.error_headers(problem))


def version_of(model: Model) -> str:
    """The id of a model's version: another one whenever its inputs or its engines change."""
    engines = [(engine.name, engine.version) for engine in model.engines]
    return hashlib.sha256(msgspec.json.encode([model.name, model.inputs, engines])).hexdigest()


def version(found: Model, since: str) -> ReplicateVersionSchema:
    """One version, with the schema of its inputs."""
    inputs = openapi.object_of(found.inputs)
    for order, item in enumerate(inputs["properties"].values()):
        item["x-order"] = order
    described = {"Input": {"title": "Input", **inputs}, "Output": {"title": "Output"}}
    return {
        "id": version_of(found),
        "created_at": since,
        "cog_version": "0",
        "openapi_schema": {
            "openapi": "3.0.2",
            "info": {"title": found.title, "version": "0.1.0"},
            "paths": {},
            "components": {"schemas": described},
        },
    }


def model(found: Model, base_url: str, since: str, *, own: bool) -> ReplicateModelSchema:
    """One model."""
    return {
        "url": f"{base_url}/catalog/{found.name}",
        "owner": OWNER,
        "name": found.name,
        "description": found.description,
        "visibility": "private" if own else "public",
        "github_url": None,
        "paper_url": None,
        "license_url": None,
        "run_count": 0,
        "cover_image_url": None,
        "default_example": None,
        "latest_version": version(found, since),
    }


def prediction(
    record: Prediction, version_id: str, base_url: str, media_url: Callable[[OutputFile], str]
) -> ReplicatePredictionSchema:
    """One prediction."""
    own = f"{base_url}{BASE}/predictions/{record.id}"
    others = predictions.outputs(record, media_url)
    shown: ReplicatePredictionSchema = {
        "id": record.id,
        "model": f"{OWNER}/{record.model}",
        "version": version_id,
        "input": record.inputs,
        "logs": record.logs,
        "output": _links(predictions.output(record, media_url)),
        "data_removed": False,
        "error": record.error,
        "status": _STATES[record.state],
        "source": "api",
        "created_at": rfc3339(record.created_at),
        "started_at": rfc3339(record.started_at),
        "completed_at": rfc3339(record.completed_at),
        "metrics": _metrics(record),
        "urls": {"get": own, "cancel": f"{own}/cancel"},
    }
    if others:
        shown["outputs"] = _links(others)
    if record.webhook is not None:
        shown["webhook"] = record.webhook.url
    return shown


def _metrics(record: Prediction) -> dict[str, float]:
    if record.completed_at is None:
        return {}
    total = (record.completed_at - record.created_at) / SECOND_US
    return {"predict_time": record.stations.run / SECOND_US, "total_time": total}


def _links(output: Any) -> Any:
    """An output with a URL in the place of each file's facts."""
    if isinstance(output, list):
        return [_links(item) for item in cast("list[Any]", output)]
    if not isinstance(output, Mapping):
        return output
    told = cast("Mapping[str, Any]", output)
    if "url" in told and "content_type" in told:
        return told["url"]
    return {name: _links(value) for name, value in told.items()}


def request(body: Mapping[str, Any], name: str, prefer: str) -> RunRequest:
    """A prediction's body, for a model; raises `InvalidInput`."""
    given: Any = body.get("input", {})
    if not isinstance(given, dict):
        raise errors.InvalidInput([errors.Problem("input", "input must be an object", "dict_type")])
    wanted = body.get("webhook_events_filter")
    names = list(_EVENTS) if wanted is None else wanted
    if not isinstance(names, list) or not all(item in _EVENTS for item in cast("list[Any]", names)):
        sentence = f"webhook_events_filter is a list of {', '.join(_EVENTS)}"
        raise errors.InvalidInput([errors.Problem("webhook_events_filter", sentence, "enum")])
    events = tuple(event for item in cast("list[str]", names) if (event := _EVENTS[item]))
    url = body.get("webhook")
    if not isinstance(url, str | None):
        raise errors.InvalidInput([errors.Problem("webhook", "webhook must be a URL", "string_type")])
    return RunRequest(
        model=name,
        inputs=cast("dict[str, Any]", given),
        wait_seconds=wait_seconds(prefer),
        webhook=schemas.webhook(url, events),
    )


def wait_seconds(prefer: str) -> float:
    """How long to wait for the end, by the header `Prefer`."""
    found = _PREFER.fullmatch(prefer.strip())
    if found is None:
        return 0.0
    return float(min(MAX_WAIT, int(found[1] or DEFAULT_WAIT)))
