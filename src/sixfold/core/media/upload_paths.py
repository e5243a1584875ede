"""Paths below `/uploads/` that requests write: each is reserved before its run, and is a file or a folder.

A reservation is made in the transaction that accepts the run and ends with the run. A row stays for an hour
after its file was stored, so that a request that looked at the store before then cannot miss it.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.clock import HOUR_US
from sixfold.core.database import Query, Transaction, many, now

_KEPT_US = HOUR_US
_MOST = 200  # of one sweep


def reserve(path: str | None, prediction_id: str) -> Transaction[None]:
    """Let one prediction write a file at `path`, if it has one; raises `Conflict` where it is taken."""
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
    """The file of a prediction lies at its path."""
    yield Query("upload_path_stored", {"writer": prediction_id})


def release(prediction_id: str) -> Transaction[None]:
    """Give the path of a prediction that wrote nothing to others."""
    for row in (yield Query("upload_path_release", {"writer": prediction_id})):
        if not row["stored"]:
            yield from _forget(str(row["path"]))


def sweep() -> Transaction[None]:
    """Forget paths whose file was stored an hour ago, and those whose run ended as long ago."""
    before = (yield from now()) - _KEPT_US
    for row in (yield from many("upload_paths_over", before=before, limit=_MOST)):
        yield from _forget(str(row["path"]))


def folders(path: str) -> list[str]:
    """The folders in which a path lies, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _forget(path: str) -> Transaction[None]:
    if not (yield Query("upload_path_delete", {"path": path})):
        return
    above = [{"path": folder} for folder in folders(path)]
    if above:
        yield Query("upload_path_leave", {}, above)
        yield Query("upload_path_empty", {}, above)
