"""Stored files that nothing refers to: deleted ones, and those of requests that were refused.

Their bytes stay for a day, since another request may be about to use the same ones. Until then they count
against a limit of the account.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.database import Database, Query, Transaction, one
from sixfold.core.media import ports


class LeavingFiles:
    """The files of all accounts that are about to be deleted; `most_bytes` is the limit of one account."""

    def __init__(self, database: Database, most_bytes: int) -> None:
        self._database = database
        self._most_bytes = most_bytes

    async def note(self, account_id: str, blob: str, size: int) -> None:
        """Let a blob that is about to be stored be deleted in a day, unless it has another name by then.

        Raises `TooLarge` if the account has too many such bytes already. Without an account it does nothing.
        """
        if account_id.startswith(_ACCOUNT):
            await self._database.write(self._note(account_id, blob, size), durable=False)

    def _note(self, account_id: str, blob: str, size: int) -> Transaction[None]:
        leaving = yield from one("media_leaving", account_id=account_id)
        used = int(leaving["bytes"]) if leaving is not None else 0
        if used >= self._most_bytes:
            raise errors.TooLarge(
                f"Deleted files and files of refused requests of this account take {used} bytes, at or "
                f"beyond the limit of {self._most_bytes}: they are removed after a day"
            )
        row = {"name": ports.new_name("bin"), "account_id": account_id, "blob": blob, "size": size}
        yield Query("media_leave", row)


_ACCOUNT = "acct_"
