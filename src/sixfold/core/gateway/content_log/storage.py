"""Storage of the requests and responses of gateway calls, for accounts that have enabled it.

Texts are encrypted with ChaCha20-Poly1305 with a key derived (HKDF-SHA256) from the server's key, and bound
to the account and the call. A row is deleted after the number of days that the account has set.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts import audit_log
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Transaction, many, one

MAX_DAYS = 365
# Maximum number of characters of a request and of a response that are stored.
MAX_CHARS = 200_000
_INFO = b"sixfold content log, version 1"
_NONCE_BYTES = 12
_BATCH = 1000


class LoggedCall(msgspec.Struct, frozen=True):
    """A call to store; `request` is the body that was sent, and `response` the returned text."""

    id: str
    account_id: str
    key_id: str | None
    endpoint: str
    model: str
    days: int
    request: str
    response: str


class ContentLog:
    """Writes, reads and deletes logged calls; `master` is the server's key."""

    def __init__(self, database: Database, master: bytes) -> None:
        self._database = database
        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), length=32, salt=None, info=_INFO).derive(master))

    async def write(self, call: LoggedCall) -> None:
        """Store a call; if the id is repeated, the first call is kept."""
        parameters = {
            "id": call.id,
            "account_id": call.account_id,
            "key_id": call.key_id,
            "face": call.endpoint,
            "model": call.model[:200],
            "request": self._encrypt(call, call.request[:MAX_CHARS]),
            "response": self._encrypt(call, call.response[:MAX_CHARS]),
            "life": call.days * DAY_US,
        }
        await self._database.write(one("content_insert", **parameters), durable=False)

    async def get(self, account_id: str, call_id: str) -> dict[str, Any]:
        """Return a call with its texts.

        Raises `NotFound`, and `NotConfigured` if the texts were encrypted with another server's key.
        """
        row = await self._database.read(one("content_get", account_id=account_id, id=call_id))
        if row is None:
            raise errors.NotFound(f"The call {call_id[:100]!r} is not in the content log")
        return self.opened(account_id, row)

    def opened(self, account_id: str, row: Row) -> dict[str, Any]:
        """Decrypt the texts of a row; raises `NotConfigured` if they were encrypted with another key."""
        texts = {name: self._decrypt(account_id, row["id"], row[name]) for name in ("request", "response")}
        return {**dict(row), **texts}

    async def sweep(self) -> None:
        """Delete the expired calls."""
        while await self._database.write(many("content_sweep", limit=_BATCH), durable=False):
            pass

    def _encrypt(self, call: LoggedCall, text: str) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = self._cipher.encrypt(nonce, text.encode("utf-8", "replace"), _bound(call.account_id, call.id))
        return base64.b64encode(nonce + data).decode("ascii")

    def _decrypt(self, account_id: str, call_id: str, ciphertext: str) -> str:
        try:
            data = base64.b64decode(ciphertext, validate=True)
            nonce, body = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, body, _bound(account_id, call_id)).decode()
        except (InvalidTag, ValueError) as error:
            raise errors.NotConfigured(
                "The content log was encrypted with a different server.key: restore that file"
            ) from error


def _bound(account_id: str, call_id: str) -> bytes:
    return f"{account_id}/{call_id}".encode()


def page(
    account_id: str, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Mapping[str, Any], ...], str | None]]:
    """Return logged calls without their texts, newest first, and the next cursor; raises `BadRequest`."""
    rows = yield from many(
        "content_page", account_id=account_id, before=pagination.id_before(cursor, "req_"), limit=limit + 1
    )
    entries = tuple(rows[:limit])
    return entries, str(entries[-1]["id"]) if len(rows) > limit else None


def days_of(account_id: str) -> Transaction[int]:
    """Return the number of days for which an account's calls are logged; 0 if the log is disabled."""
    row = yield from one("content_days", account_id=account_id)
    return 0 if row is None else int(row["days"])


def set_days(account_id: str, days: int) -> Transaction[None]:
    """Set the days for which later calls of an account are kept; 0 disables the log.

    Calls that are already logged do not change.
    """
    if not 0 <= days <= MAX_DAYS:
        raise errors.InvalidInput.of("days", f"days must be an integer from 0 (off) to {MAX_DAYS}")
    yield Query("content_days_set", {"account_id": account_id, "days": days})
    yield from audit_log.note(account_id, "content.log", f"{days} days" if days else "off")


def clear(account_id: str) -> Transaction[None]:
    """Delete all logged calls of an account."""
    yield Query("erase_content_log", {"account_id": account_id})
    yield from audit_log.note(account_id, "content.clear")
