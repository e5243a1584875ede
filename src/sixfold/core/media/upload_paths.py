"""Reservations of paths below `/uploads/`: each is reserved before its run, as either a file or a folder.

A reservation is created in the transaction that accepts the run, and ends with the run. Its row is kept for
an hour after the file was stored, so that a request that checked the store earlier still finds it.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Query, Transaction, many, now

_RETENTION_US = HOUR_US
# Maximum number of reservations that one sweep deletes.
_BATCH = 200


def reserve(path: str | None, prediction_id: str) -> Transaction[None]:
    """Reserve `path` for one prediction; raises `Conflict` if it is taken. Has no effect for None."""
    if path is None:
        return
    reserved = yield Query("upload_path_reserve", {"path": path, "writer": prediction_id})
    if not reserved:
        raise errors.Conflict("save_path is in use as a folder or by another request: choose another path")
    if reserved[0]["stored"]:
        return
    parents = [{"path": folder} for folder in folders(path)]
    if parents:
        entered = yield Query("upload_path_enter", {}, parents)
        if entered[0]["changed"] != len(parents):
            raise errors.Conflict("save_path is below a path that is a file: choose another path")


def mark_stored(prediction_id: str) -> Transaction[None]:
    yield Query("upload_path_stored", {"writer": prediction_id})


def release(prediction_id: str) -> Transaction[None]:
    """Release the path of a prediction that did not store a file."""
    for row in (yield Query("upload_path_release", {"writer": prediction_id})):
        if not row["stored"]:
            yield from _delete(str(row["path"]))


def sweep() -> Transaction[None]:
    """Delete reservations whose file was stored, or whose run ended, more than an hour ago."""
    before = (yield from now()) - _RETENTION_US
    for row in (yield from many("upload_paths_over", before=before, limit=_BATCH)):
        yield from _delete(str(row["path"]))


def folders(path: str) -> list[str]:
    """Return the parent folders of a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _delete(path: str) -> Transaction[None]:
    if not (yield Query("upload_path_delete", {"path": path})):
        return
    parents = [{"path": folder} for folder in folders(path)]
    if parents:
        yield Query("upload_path_leave", {}, parents)
        yield Query("upload_path_empty", {}, parents)
