"""Schemas of the Replicate-compatible API: predictions, models, errors and requests."""

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
from sixfold.api.hosting.public_names import PublicModel, render
from sixfold.api.hosting.schemas import RunRequest
from sixfold.core.catalog.models import Model
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.media.ports import OutputFile
from sixfold.core.pagination import InvalidCursor
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.web import openapi, predictions, responses

OWNER = "sixfold"
BASE = "/replicate/v1"
DEFAULT_WAIT, MAX_WAIT = 60, 60
_NAME_DIGITS = 16
# Clients require a date, which this server does not store for models.
_CREATED_AT = "2025-11-21T00:00:00.000Z"
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
    """The problem of one input."""

    type: str
    field: str
    description: str


class ReplicateErrorSchema(TypedDict):
    """An error in Replicate's format."""

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
    """A model in Replicate's format."""

    url: str
    owner: str
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
    """The URLs for reading, canceling and streaming a prediction; only text can be streamed."""

    get: str
    cancel: str
    stream: NotRequired[str]


class ReplicatePredictionSchema(TypedDict):
    """A prediction in Replicate's format."""

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
    """The URL of a file."""

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
    expires_at: str | None
    urls: FileUrlsSchema


class ReplicateFilesSchema(TypedDict):
    """A page of files, newest first."""

    next: str | None
    previous: str | None
    results: list[ReplicateFileSchema]


class ReplicateCollectionSchema(TypedDict):
    """The models of one task."""

    name: str
    slug: str
    description: str
    models: NotRequired[list[ReplicateModelSchema]]


class WebhookSecretSchema(TypedDict):
    """The secret that signs the webhooks of the account."""

    key: str


class SkuSchema(TypedDict):
    """One kind of hardware."""

    sku: str
    name: str


class ModelRunSchema(TypedDict, total=False):
    """The inputs and webhook of a new prediction."""

    input: dict[str, Any]
    webhook: str | None
    webhook_events_filter: list[Literal["start", "output", "logs", "completed"]]


class VersionRunSchema(ModelRunSchema):
    """The version, inputs and webhook of a new prediction."""

    version: Required[str]


def error(problem: errors.SixfoldError, _request_id: str) -> Response:
    """Return `{"detail","status","title"}`; invalid inputs have status 422 and `invalid_fields`."""
    # A cursor is not an input of the model.
    if isinstance(problem, errors.InvalidInput) and not isinstance(problem, InvalidCursor):
        title, status, problems = "Input validation failed", 422, problem.problems
    else:
        title, status, problems = http.HTTPStatus(problem.status).phrase, problem.status, ()
    body: ReplicateErrorSchema = {"detail": problem.message, "status": status, "title": title}
    if problems:
        body["invalid_fields"] = [
            {"type": item.kind, "field": f"input.{item.input}", "description": item.message}
            for item in problems
        ]
    return responses.json(body, status, responses.error_headers(problem))


def version_of(model: Model) -> str:
    """Return the id of a model's version, which changes with its inputs or engines.

    It begins with a digest of the model's name, so that the model is found without reading the others.
    """
    engines = [(engine.name, engine.version) for engine in model.engines]
    content = hashlib.sha256(msgspec.json.encode([model.name, model.inputs, engines])).hexdigest()
    start = name_digest(model.name)
    return start + content[len(start) :]


def name_digest(name: str) -> str:
    """Return the first characters of the version ids of a model."""
    return hashlib.sha256(name.encode()).hexdigest()[:_NAME_DIGITS]


def public_version(model: Model, public: PublicModel | None) -> str:
    """Return the id of the current version of a model, or of a public name that is mapped to it."""
    if public is None:
        return version_of(model)
    if public.versions:
        return public.versions[0]
    return hashlib.sha256(f"{public.name} {version_of(model)}".encode()).hexdigest()


def version(model: Model, public: PublicModel | None = None) -> ReplicateVersionSchema:
    inputs = openapi.object_of(model.inputs)
    if public is not None:
        inputs = _public_inputs(inputs, public)
    for order, item in enumerate(inputs["properties"].values()):
        item["x-order"] = order
    schemas_by_name = {"Input": {"title": "Input", **inputs}, "Output": {"title": "Output"}}
    return {
        "id": public_version(model, public),
        "created_at": _CREATED_AT,
        "cog_version": "0",
        "openapi_schema": {
            "openapi": "3.0.2",
            "info": {"title": model.title, "version": "0.1.0"},
            "paths": {},
            "components": {"schemas": schemas_by_name},
        },
    }


def _public_inputs(inputs: dict[str, Any], public: PublicModel) -> dict[str, Any]:
    """Return the schema of inputs with the client's names."""
    known: dict[str, Any] = inputs["properties"]
    properties = {name: dict(known[own]) for name, own in public.inputs.items() if own in known}
    if public.size:
        properties[public.size] = {"type": "string"}
    required = [name for name, own in public.inputs.items() if own in inputs.get("required", ())]
    return {**inputs, "properties": properties, "required": required}


def model(
    source: Model, base_url: str, *, own: bool, public: PublicModel | None = None
) -> ReplicateModelSchema:
    owner, _, name = (OWNER, "", source.name) if public is None else public.name.partition("/")
    return {
        "url": f"{base_url}/catalog/{source.name}",
        "owner": owner,
        "name": name,
        "description": source.description,
        "visibility": "private" if own else "public",
        "github_url": None,
        "paper_url": None,
        "license_url": None,
        "run_count": 0,
        "cover_image_url": None,
        "default_example": None,
        "latest_version": version(source, public),
    }


def prediction(
    record: Prediction,
    version_id: str,
    base_url: str,
    media_url: Callable[[OutputFile], str],
    public: PublicModel | None,
) -> ReplicatePredictionSchema:
    path = f"{base_url}{BASE}/predictions/{record.id}"
    named_outputs = predictions.outputs(record, media_url)
    body: ReplicatePredictionSchema = {
        "id": record.id,
        "model": f"{OWNER}/{record.model}" if public is None else public.name,
        "version": version_id,
        "input": record.inputs,
        "logs": record.logs,
        "output": _output(record, media_url, public),
        "data_removed": False,
        "error": record.error,
        "status": _STATES[record.state],
        "source": "api",
        "created_at": rfc3339(record.created_at),
        "started_at": rfc3339(record.started_at),
        "completed_at": rfc3339(record.completed_at),
        "metrics": _metrics(record),
        "urls": {"get": path, "cancel": f"{path}/cancel"},
    }
    if record.output_kind == "text":
        body["urls"]["stream"] = f"{path}/stream"
    if named_outputs:
        body["outputs"] = _links(named_outputs)
    if record.webhook is not None:
        body["webhook"] = record.webhook.url
    return body


def _metrics(record: Prediction) -> dict[str, float]:
    if record.completed_at is None:
        return {}
    total = (record.completed_at - record.created_at) / SECOND_US
    return {"predict_time": record.durations.run / SECOND_US, "total_time": total}


def _output(record: Prediction, media_url: Callable[[OutputFile], str], public: PublicModel | None) -> Any:
    output = predictions.output(record, media_url)
    if public is not None and output is not None:
        output = render(public.output, output, record.inputs)
    return _links(output)


def _links(output: Any) -> Any:
    """Return an output with each file replaced by its URL."""
    if isinstance(output, list):
        items = cast("list[Any]", output)
        return items if predictions.is_plain(items) else [_links(item) for item in items]
    if not isinstance(output, Mapping):
        return output
    fields = cast("Mapping[str, Any]", output)
    if "url" in fields and "content_type" in fields:
        return fields["url"]
    return {name: _links(value) for name, value in fields.items()}


def request(body: Mapping[str, Any], name: str, prefer: str) -> RunRequest:
    """Parse the body of a new prediction; raises `InvalidInput`."""
    inputs: Any = body.get("input", {})
    if not isinstance(inputs, dict):
        raise errors.InvalidInput([errors.Problem("input", "input must be an object", "dict_type")])
    events_filter = body.get("webhook_events_filter")
    names = list(_EVENTS) if events_filter is None else events_filter
    if not isinstance(names, list) or not all(item in _EVENTS for item in cast("list[Any]", names)):
        message = f"webhook_events_filter must be a list of names from {', '.join(_EVENTS)}"
        raise errors.InvalidInput([errors.Problem("webhook_events_filter", message, "enum")])
    events = tuple(event for item in cast("list[str]", names) if (event := _EVENTS[item]))
    url = body.get("webhook")
    if not isinstance(url, str | None):
        raise errors.InvalidInput([errors.Problem("webhook", "webhook must be a URL", "string_type")])
    return RunRequest(
        model=name,
        inputs=cast("dict[str, Any]", inputs),
        wait_seconds=wait_seconds(prefer),
        webhook=schemas.webhook(url, events),
    )


def wait_seconds(prefer: str) -> float:
    """Return the seconds to wait for the end, from the header `Prefer`."""
    match = _PREFER.fullmatch(prefer.strip())
    if match is None:
        return 0.0
    return float(min(MAX_WAIT, int(match[1] or DEFAULT_WAIT)))
