"""Reservations of paths below `/uploads/`: each is reserved before its run, as either a file or a folder.

A reservation is made in the transaction that accepts the run and ends with the run. Its row stays for an hour
after the file was stored, so that a request that checked the store before that cannot miss it.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Query, Transaction, many, now

_KEPT_US = HOUR_US
# Reservations deleted by one sweep.
_MOST = 200


def reserve(path: str | None, prediction_id: str) -> Transaction[None]:
    """Reserve `path` for one prediction; raises `Conflict` if it is taken. Does nothing for None."""
    if path is None:
        return
    made = yield Query("upload_path_reserve", {"path": path, "writer": prediction_id})
    if not made:
        raise errors.Conflict(
            f"save_path {path} is in use: it is a folder, or another request writes it. Choose another path"
        )
    if made[0]["stored"]:
        return
    above = [{"path": folder} for folder in folders(path)]
    if above:
        entered = yield Query("upload_path_enter", {}, above)
        if entered[0]["changed"] != len(above):
            raise errors.Conflict(f"save_path {path} lies below a path that is a file. Choose another path")


def stored(prediction_id: str) -> Transaction[None]:
    """Mark the file of a prediction as stored."""
    yield Query("upload_path_stored", {"writer": prediction_id})


def release(prediction_id: str) -> Transaction[None]:
    """Release the path of a prediction that stored nothing."""
    for row in (yield Query("upload_path_release", {"writer": prediction_id})):
        if not row["stored"]:
            yield from _forget(str(row["path"]))


def sweep() -> Transaction[None]:
    """Delete reservations whose file was stored, or whose run ended, more than an hour ago."""
    before = (yield from now()) - _KEPT_US
    for row in (yield from many("upload_paths_over", before=before, limit=_MOST)):
        yield from _forget(str(row["path"]))


def folders(path: str) -> list[str]:
    """Return the parent folders of a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _forget(path: str) -> Transaction[None]:
    if not (yield Query("upload_path_delete", {"path": path})):
        return
    above = [{"path": folder} for folder in folders(path)]
    if above:
        yield Query("upload_path_leave", {}, above)
        yield Query("upload_path_empty", {}, above)
