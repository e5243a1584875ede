"""`predictions`: list predictions, show one with its receipt, or cancel one."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sixfold.cli import run as runs
from sixfold.cli.client import Document, ServerClient, local_time
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.humanize import duration

_MAX_LISTED = 200


def predictions(arguments: argparse.Namespace) -> int:
    """Run `predictions`, `predictions ID` or `predictions cancel ID`; return 1 for a failed prediction."""
    client = ServerClient.of(arguments)
    match arguments.words:
        case []:
            return _list(client, arguments)
        case ["cancel"]:
            raise CommandError("The ID is missing: use `sixfold predictions cancel ID`")
        case [prediction_id]:
            return _show(client, prediction_id, as_json=arguments.json)
        case ["cancel", prediction_id]:
            return _cancel(client, prediction_id, as_json=arguments.json)
        case _:
            raise CommandError("Usage: `sixfold predictions [ID]` or `sixfold predictions cancel ID`")


def _list(client: ServerClient, arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= _MAX_LISTED:
        raise CommandError(f"--limit must be from 1 to {_MAX_LISTED} (got {arguments.limit})")
    document = client.get(f"/api/containers/predictions?limit={arguments.limit}")
    if arguments.json:
        put_json(document)
        return 0
    paint = TerminalStyle()
    rows = [_row(prediction) for prediction in document["predictions"]]
    if rows:
        paint.table(("created", "model", "status", "queued", "run", "USD", "id"), rows)
    else:
        paint.line("  No predictions yet: `sixfold run --list` shows the models")
    return 0


def _row(prediction: Document) -> tuple[str, ...]:
    metrics: dict[str, Any] = prediction.get("metrics") or {}
    return (
        _format_time(local_time(prediction, "created_at")),
        str(prediction["model"]),
        str(prediction["status"]),
        _took(metrics.get("queue_ms")),
        _took(metrics.get("predict_ms") or None),
        "in workflow" if prediction.get("parent_id") else str(prediction.get("cost", "")),
        str(prediction["id"]),
    )


def _took(ms: float | None) -> str:
    return "" if ms is None else duration(float(ms))


def _format_time(moment: datetime) -> str:
    """Return a local time, without the date if it is today."""
    today = moment.date() == datetime.now(UTC).astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M")


def _show(client: ServerClient, prediction_id: str, *, as_json: bool) -> int:
    prediction = client.prediction(quote(prediction_id, safe=""))
    if not as_json and sys.stderr.isatty():
        prediction = runs.follow(client, prediction, time.monotonic())
    if as_json:
        put_json(prediction)
    else:
        paint = TerminalStyle()
        runs.show(paint, prediction)
        for file in runs.outputs([prediction.get("output"), prediction.get("outputs")]):
            paint.line(f"  {file['url']}")
    return 1 if prediction["status"] in {"failed", "canceled", "expired"} else 0


def _cancel(client: ServerClient, prediction_id: str, *, as_json: bool) -> int:
    prediction = client.post(f"/api/containers/predictions/{quote(prediction_id, safe='')}/cancel")
    if as_json:
        put_json(prediction)
    elif prediction["status"] in {"succeeded", "failed", "expired"}:
        TerminalStyle().line(f"  {prediction['id']} has already {prediction['status']}")
    else:
        TerminalStyle().line(f"  {prediction['id']} is {prediction['status']} and will not be charged")
    return 0
