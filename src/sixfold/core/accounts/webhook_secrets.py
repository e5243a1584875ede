"""The secrets that sign webhooks, one for each account, sealed in the database.

The seal is ChaCha20-Poly1305 under HKDF-SHA256 of the server's key, bound to the account: a copied row opens
for no other account, and a copied database in no other data folder. A secret is made when first needed.
"""

from __future__ import annotations

import base64
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sixfold import errors
from sixfold.core.database import Database, many, one

_INFO = b"sixfold webhook secrets, version 1"
_NONCE_BYTES, _SECRET_BYTES = 12, 24
_BATCH = 500


class WebhookSecrets:
    """Seals, opens and makes them; `master` is the server's key."""

    def __init__(self, database: Database, master: bytes) -> None:
        self._database = database
        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), length=32, salt=None, info=_INFO).derive(master))

    async def of(self, account_id: str) -> str:
        """The secret of an account, `whsec_` and base64; "" where the account is erased.

        Raises `NotConfigured` for one that was sealed under another server's key.
        """
        row = await self._database.read(one("webhook_secret", id=account_id))
        if row is not None and row["webhook_sealed"] is None and row["webhook_secret"] is None:
            sealed = self._seal(account_id, new_secret())
            await self._database.write(one("webhook_secret_first", id=account_id, sealed=sealed))
            row = await self._database.read(one("webhook_secret", id=account_id))
        if row is None:
            return ""
        if row["webhook_sealed"] is None:  # a server of the version before made it
            return row["webhook_secret"] or ""
        return self._open(account_id, row["webhook_sealed"])

    async def seal_all(self) -> int:
        """Seal those that lie open, as a server of the version before left them; returns how many."""
        count = 0
        while rows := await self._database.read(many("webhook_secrets_open", limit=_BATCH)):
            for row in rows:
                sealed = self._seal(row["id"], row["webhook_secret"])
                await self._database.write(
                    one("webhook_secret_seal", id=row["id"], opened=row["webhook_secret"], sealed=sealed)
                )
            count += len(rows)
        return count

    def _seal(self, account_id: str, secret: str) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, secret.encode(), account_id.encode())
        return base64.b64encode(sealed).decode("ascii")

    def _open(self, account_id: str, text: str) -> str:
        try:
            sealed = base64.b64decode(text, validate=True)
            nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, body, account_id.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise errors.NotConfigured(
                "The webhook secret is sealed under another server.key: put that file into the data folder"
            ) from error


def new_secret() -> str:
    """A secret in the form of Standard Webhooks: `whsec_` and base64 of 24 random bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
