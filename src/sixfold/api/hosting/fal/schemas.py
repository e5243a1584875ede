"""The JSON of fal's queue: statuses, results, errors, webhooks.

Sources: https://fal.ai/docs/documentation/model-apis/inference/queue, …/request-errors and
https://fal.ai/docs/errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, cast

from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting.public_names import PublicModel, render
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.predictions import repository
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.web import predictions, responses
from sixfold.web.predictions import Url

BASE = "/fal"
QUEUE = f"{BASE}/queue"
Status = Literal["IN_QUEUE", "IN_PROGRESS", "COMPLETED"]
_STATES: Mapping[PredictionState, Status] = {
    PredictionState.QUEUED: "IN_QUEUE",
    PredictionState.STARTING: "IN_PROGRESS",
    PredictionState.RUNNING: "IN_PROGRESS",
    PredictionState.CANCELING: "IN_PROGRESS",
}
# fal's error types by this server's error codes; other types follow from the status.
_ERROR_TYPES: Mapping[str, str] = {
    "generation_failed": "runner_server_error",
    "engine_unavailable": "runner_scheduling_failure",
    "canceled": "client_cancelled",
}


class FalErrorItemSchema(TypedDict):
    """The problem of one input."""

    loc: list[str]
    msg: str
    type: str


class FalErrorSchema(TypedDict):
    """An error: one sentence, or the problems of the inputs."""

    detail: str | list[FalErrorItemSchema]
    error_type: NotRequired[str]


class FalTicketSchema(TypedDict):
    """A queued request with its URLs."""

    status: Status
    request_id: str
    gateway_request_id: str
    response_url: str
    status_url: str
    cancel_url: str
    queue_position: int


class FalLogSchema(TypedDict):
    """A line of a log."""

    message: str
    level: str
    source: str
    timestamp: str


class FalStatusSchema(TypedDict):
    """The state of a request; `logs` is null unless requested."""

    status: Status
    request_id: str
    response_url: str
    status_url: str
    cancel_url: str
    logs: list[FalLogSchema] | None
    queue_position: NotRequired[int]
    metrics: NotRequired[dict[str, float]]
    error: NotRequired[str]
    error_type: NotRequired[str]


class FalCancelSchema(TypedDict):
    """Whether a request is canceled."""

    status: Literal["CANCELLATION_REQUESTED", "ALREADY_COMPLETED"]


class FalFileSchema(TypedDict):
    """The URL of a stored file."""

    access_url: str


class FalTokenSchema(TypedDict):
    """The credential of uploads, which is the key of the request."""

    token: str
    token_type: str
    base_url: str
    expires_at: str


class FalUploadSchema(TypedDict):
    """The URL to upload a file to with PUT, and the URL of the uploaded file."""

    upload_url: str
    file_url: str


class RequestCanceled(errors.SixfoldError):
    """The request was canceled."""

    status = 400
    code = "canceled"


def error_type(problem: errors.SixfoldError) -> str:
    return _ERROR_TYPES.get(problem.code, "bad_request" if problem.status < 500 else "internal_error")


def error_body(problem: errors.SixfoldError) -> FalErrorSchema:
    if not isinstance(problem, errors.InvalidInput):
        return {"detail": problem.message, "error_type": error_type(problem)}
    return {
        "detail": [
            {"loc": ["body", item.input], "msg": item.message, "type": item.kind} for item in problem.problems
        ]
    }


def error(problem: errors.SixfoldError, request_id: str) -> Response:
    """Return an error; invalid inputs have status 422 and a list."""
    headers = responses.error_headers(problem) | {"x-fal-request-id": request_id}
    if isinstance(problem, errors.InvalidInput):
        return responses.json(error_body(problem), 422, headers)
    headers["x-fal-error-type"] = error_type(problem)
    return responses.json(error_body(problem), problem.status, headers)


def failure(record: Prediction, public: PublicModel | None) -> errors.SixfoldError | None:
    """Return the reason for the failure of an ended request, or None if it succeeded."""
    if record.state is PredictionState.SUCCEEDED:
        return None
    if record.state is PredictionState.CANCELED:
        return RequestCanceled()
    if record.error_kind == repository.UNUSABLE:
        name = next(iter(record.task.files), "input")
        problem = errors.InvalidInput.of(name, record.error or f"{name} cannot be used")
        return problem if public is None else public.client_error(problem)
    return errors.EngineFailed(record.error or "")


def ticket(base_url: str, app: str, record: Prediction, position: int) -> FalTicketSchema:
    path = _path(base_url, app, record)
    return {
        "status": "IN_QUEUE",
        "request_id": record.id,
        "gateway_request_id": record.id,
        "response_url": path,
        "status_url": f"{path}/status",
        "cancel_url": f"{path}/cancel",
        "queue_position": position,
    }


def status(
    base_url: str,
    app: str,
    record: Prediction,
    position: int | None,
    public: PublicModel | None,
    *,
    logs: bool,
) -> FalStatusSchema:
    path = _path(base_url, app, record)
    body: FalStatusSchema = {
        "status": _STATES.get(record.state, "COMPLETED"),
        "request_id": record.id,
        "response_url": path,
        "status_url": f"{path}/status",
        "cancel_url": f"{path}/cancel",
        "logs": _logs(record) if logs else None,
    }
    if body["status"] == "IN_QUEUE":
        body["queue_position"] = position or 0
    if body["status"] == "COMPLETED":
        body["metrics"] = {"inference_time": record.durations.run / SECOND_US}
        problem = failure(record, public)
        if problem is not None:
            body["error"], body["error_type"] = problem.message, error_type(problem)
    return body


def result(record: Prediction, public: PublicModel | None, media_url: Url) -> Any:
    """Return the output in the format of the requested model, or else in one for the kind of output."""
    output = _with_names(predictions.output(record, media_url))
    if public is not None:
        return render(public.output, output, {**record.inputs, **record.task.inputs})
    kind = "images" if record.output_kind == "image" else record.output_kind
    if not isinstance(output, Mapping):
        return {kind if kind == "images" else "output": output}
    fields = cast("Mapping[str, Any]", output)
    if "url" not in fields:
        return fields
    return {kind: [fields] if kind == "images" else fields}


def webhook(record: Prediction, public: PublicModel | None, media_url: Url) -> dict[str, Any]:
    problem = failure(record, public)
    body: dict[str, Any] = {"request_id": record.id, "gateway_request_id": record.id}
    if problem is None:
        return {**body, "status": "OK", "payload": result(record, public, media_url)}
    return {**body, "status": "ERROR", "error": problem.message, "payload": error_body(problem)}


def _path(base_url: str, app: str, record: Prediction) -> str:
    """Return the URL of a request, in which fal names the first two parts of the model only."""
    return f"{base_url}{QUEUE}/{'/'.join(app.split('/')[:2])}/requests/{record.id}"


def _logs(record: Prediction) -> list[FalLogSchema]:
    moment = rfc3339(record.started_at or record.created_at)
    return [
        {"message": line, "level": "INFO", "source": "USER", "timestamp": moment}
        for line in record.logs.splitlines()
    ]


def _with_names(output: Any) -> Any:
    """Return an output whose files have a `file_name`."""
    if isinstance(output, list):
        items = cast("list[Any]", output)
        return items if predictions.is_plain(items) else [_with_names(item) for item in items]
    if not isinstance(output, Mapping):
        return output
    fields = cast("Mapping[str, Any]", output)
    if isinstance(fields.get("url"), str) and "content_type" in fields:
        return {**fields, "file_name": fields["url"].rpartition("/")[2]}
    return {name: _with_names(value) for name, value in fields.items()}
