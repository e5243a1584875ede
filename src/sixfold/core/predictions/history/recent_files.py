"""The latest files of one kind of an account: outputs of its runs, and uploads."""

from __future__ import annotations

import json

import msgspec

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Database, many
from sixfold.core.predictions import queries
from sixfold.core.predictions.history.titles import text_of

# The number of latest predictions and uploads that are searched for files.
_PREDICTIONS, _UPLOADS, _MAX_FILES = 250, 100, 500
# Drawings are not read as images.
DRAWING = "image/svg"
# The prefixes of the content types of each kind of input; a `file` may have any type.
_CONTENT_TYPES = {"image": "image/", "video": "video/", "audio": "audio/", "model3d": "model/", "file": ""}


class RecentFile(msgspec.Struct, frozen=True):
    """A file, with the prompt or model that produced it, or the name of an upload. Times are in epoch µs."""

    name: str
    content_type: str
    title: str
    created_at: int


async def find(database: Database, tenant: Tenant, kind: str, limit: int) -> tuple[RecentFile, ...]:
    """Return the latest files that an input of a kind accepts, newest first; none for unknown kinds."""
    start = _CONTENT_TYPES.get(kind)
    if start is None:
        return ()
    rows = await database.read(queries.history_window(tenant, "pred_~", _PREDICTIONS), snapshot=False)
    # The parts of a workflow usually have the same files as its run.
    ids = [row["id"] for row in rows if row["parent_id"] is None]
    outputs = await database.read(
        many("history_files", ids=json.dumps(ids), limit=_MAX_FILES), snapshot=False
    )
    fitting = [row for row in outputs if _fits(row["content_type"], start)][:limit]
    titles = await _titles(database, [row["prediction_id"] for row in fitting])
    files = [
        RecentFile(row["name"], row["content_type"], titles[row["prediction_id"]], row["created_at"])
        for row in fitting
        if row["prediction_id"] in titles
    ]
    uploads = many("uploads_before", **tenant.row, bound="~", limit=_UPLOADS)
    files += [
        RecentFile(row["name"], row["content_type"], row["file_name"], row["created_at"])
        for row in await database.read(uploads, snapshot=False)
        if _fits(row["content_type"], start)
    ]
    files.sort(key=lambda file: file.created_at, reverse=True)
    return tuple(files[:limit])


def _fits(content_type: str, start: str) -> bool:
    return content_type.startswith(start) and not (start and content_type.startswith(DRAWING))


async def _titles(database: Database, ids: list[str]) -> dict[str, str]:
    """Return the text or the model of each prediction."""
    if not ids:
        return {}
    rows = await database.read(many("history_entries", ids=json.dumps(ids)), snapshot=False)
    return {row["id"]: text_of(row["inputs"]) or str(row["model"]) for row in rows}
