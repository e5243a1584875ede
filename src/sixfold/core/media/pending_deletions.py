"""Stored bytes without a reference: of deleted files, refused requests and inputs of unsuccessful runs.

They are kept for a day, because another request may be about to use the same bytes. Until then, they count
against a limit of the account. Files of refunded predictions expire instead (`predictions/refunds.py`).
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.database import Database, Query, Transaction, one
from sixfold.core.media import ports

_ACCOUNT = "acct_"


class PendingDeletions:
    """The blobs of all accounts that will be deleted within a day."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, account_id: str, blob: str, size: int, quota_bytes: int) -> None:
        """Schedule a new blob for deletion in a day, unless it has another name by then.

        Raises `TooLarge` if the account already has `quota_bytes` of such blobs. Has no effect if the account
        is empty.
        """
        if account_id.startswith(_ACCOUNT):
            await self._database.write(_add(account_id, blob, size, quota_bytes), durable=False)


def _add(account_id: str, blob: str, size: int, quota_bytes: int) -> Transaction[None]:
    pending = yield from one("media_leaving", account_id=account_id)
    used = int(pending["bytes"]) if pending is not None else 0
    if used >= quota_bytes:
        raise errors.TooLarge(
            f"This account's deleted files and files of unsuccessful requests use {used:,} bytes, and the "
            f"limit is {quota_bytes:,}: they are removed after a day"
        )
    row = {"name": ports.new_name("bin"), "account_id": account_id, "blob": blob, "size": size}
    yield Query("media_leave", row)


def delete_name(name: str) -> Transaction[str | None]:
    """Delete the name of a file; return its blob if that was its last name."""
    deleted = yield Query("media_delete", {"name": name})
    if not deleted:
        return None
    yield Query("graph_files_of_media", {"media": name})
    blob = str(deleted[0]["blob"])
    names = yield Query("media_blob_names", {"blob": blob})
    return None if names else blob
