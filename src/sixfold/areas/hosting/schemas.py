"""Area E's prediction, its events, and what a run may be asked with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sixfold import errors
from sixfold.core import money
from sixfold.core.clock import rfc3339
from sixfold.core.work import receipt
from sixfold.core.work.records import OutputFile, Prediction
from sixfold.core.work.states import State

PATH = "/api/containers/predictions"
DEFAULT_WAIT, MAX_WAIT = 60.0, 600.0
_MAX_LOG_TAIL = 16_384


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The body of a run, checked as far as this face goes."""

    model: str
    inputs: dict[str, Any]
    wait_seconds: float


def run_request(body: dict[str, Any]) -> RunRequest:
    """A run's body; raises `InvalidInput` with every problem."""
    problems: list[errors.Problem] = []
    model, given, wait = body.get("model"), body.get("input", {}), body.get("wait", DEFAULT_WAIT)
    if not isinstance(model, str) or not model:
        problems.append(errors.Problem("model", "model is required", "missing"))
    if not isinstance(given, dict):
        problems.append(errors.Problem("input", "input must be an object", "dict_type"))
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_WAIT:
        problems.append(
            errors.Problem("wait", f"wait must be from 0 to {MAX_WAIT:g} seconds", "out_of_range")
        )
    if problems:
        raise errors.InvalidInput(problems)
    return RunRequest(str(model), cast("dict[str, Any]", given), float(cast("float", wait)))


def status(prediction: Prediction) -> str:
    """The state as callers see it: canceling is still running."""
    return "running" if prediction.state is State.CANCELING else str(prediction.state)


def prediction(
    record: Prediction, media_url: Callable[[OutputFile], str], progress: float, position: int | None
) -> dict[str, Any]:
    """The whole record, with its receipt."""
    took = record.stations
    own = f"{PATH}/{record.id}"
    return {
        "id": record.id,
        "prediction_id": record.id,
        "model": record.model,
        "status": status(record),
        "input": record.inputs,
        "output": _output(record, media_url),
        "output_kind": record.output_kind,
        "error": record.error,
        "progress": 1.0 if record.state is State.SUCCEEDED else progress,
        "queue_position": position,
        "eta_seconds": None,
        "logs": record.logs[-_MAX_LOG_TAIL:],
        "hardware": None,
        "engine": record.engine,
        "quality": record.quality,
        "attempt": record.attempt,
        "parent_id": record.parent_id,
        "created_at": rfc3339(record.created_at),
        "started_at": rfc3339(record.started_at),
        "completed_at": rfc3339(record.completed_at),
        "metrics": {
            "queue_ms": None if took.queued is None else took.queued / 1000,
            "cold_start_ms": took.cold_start / 1000,
            "predict_ms": took.run / 1000,
        },
        "cost": money.format_usd(record.cost),
        "credits_charged": record.credits if record.cost else 0,
        "receipt": receipt.plain(record),
        "urls": {"get": own, "cancel": f"{own}/cancel", "events": f"{own}/events"},
    }


def _output(record: Prediction, media_url: Callable[[OutputFile], str]) -> Any:
    """The one file or value that came of it; a list of files; or an object, where they have names."""
    if record.output is None:
        return None
    data = record.output.data
    named: dict[str, list[dict[str, Any]]] = {}
    for file in record.output.files:
        info = {key: value for key, value in file.info.items() if key != "name"}
        shown = {"url": media_url(file), "content_type": file.content_type, **info}
        named.setdefault(str(file.info.get("name", "")), []).append(shown)
    if not named:
        return data["value"] if data.keys() == {"value"} else data
    plain = {name: files[0] if len(files) == 1 else files for name, files in named.items()}
    return plain[""] if plain.keys() == {""} else {**data, **plain}
