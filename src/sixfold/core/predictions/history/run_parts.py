"""The parts of a run: the runs that it started, with their costs and files."""

from __future__ import annotations

import json

import msgspec

from sixfold.core.database import Database, many
from sixfold.core.predictions.history.entries import HistoryFile

_MAX_PARTS, _MAX_FILES = 500, 2000


class RunPart(msgspec.Struct, frozen=True):
    """A part of a run; `cost` is in micro-dollars."""

    id: str
    model: str
    cost: int
    files: tuple[HistoryFile, ...]


async def find(database: Database, prediction_id: str) -> tuple[RunPart, ...]:
    """Return the succeeded parts of a run, oldest first."""
    rows = await database.read(many("run_parts", parent_id=prediction_id, limit=_MAX_PARTS))
    ids = json.dumps([row["id"] for row in rows])
    files: dict[str, list[HistoryFile]] = {}
    for row in await database.read(many("history_files", ids=ids, limit=_MAX_FILES)):
        files.setdefault(row["prediction_id"], []).append(HistoryFile(row["name"], row["content_type"]))
    return tuple(
        RunPart(row["id"], row["model"], row["cost"], tuple(files.get(row["id"], ()))) for row in rows
    )
