"""Secrets that sign webhooks, one per account, encrypted in the database.

Secrets are encrypted with ChaCha20-Poly1305 with a key derived (HKDF-SHA256) from the server's key, and bound
to the account: a copied row cannot be decrypted for another account, and a copied database cannot be
decrypted without the server's key. A secret is created when first needed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from sixfold import errors
from sixfold.core.accounts import audit_log
from sixfold.core.database import Database, Query, Transaction, many, one
from sixfold.core.secret_cipher import SecretCipher

_INFO = b"sixfold webhook secrets, version 1"
_SECRET_BYTES = 24
_BATCH = 500


class WebhookSecrets:
    """Creates, encrypts and decrypts webhook secrets; `master` is the server's key."""

    def __init__(self, database: Database, master: bytes) -> None:
        self.database = database
        self._cipher = SecretCipher(master, _INFO)

    async def of(self, account_id: str) -> str:
        """Return an account's secret, `whsec_` and base64; empty if the account is deleted.

        Raises `NotConfigured` if the secret was encrypted with another server's key.
        """
        row = await self.database.read(one("webhook_secret", id=account_id), snapshot=False)
        if row is not None and row["webhook_sealed"] is None and row["webhook_secret"] is None:
            ciphertext = self._cipher.encrypt(account_id, new_secret())
            await self.database.write(one("webhook_secret_first", id=account_id, sealed=ciphertext))
            row = await self.database.read(one("webhook_secret", id=account_id), snapshot=False)
        if row is None:
            return ""
        if row["webhook_sealed"] is None:
            # A server of the previous version created it.
            return row["webhook_secret"] or ""
        return self._decrypt(account_id, row["webhook_sealed"])

    async def replace(self, account_id: str) -> str:
        """Replace an account's secret at once and return the new one: messages have one signature."""
        secret = new_secret()
        await self.database.write(_replace(account_id, self._cipher.encrypt(account_id, secret)))
        return secret

    async def encrypt_all(self) -> int:
        """Encrypt the plaintext secrets that the previous version stored; return their number."""
        count = 0
        while rows := await self.database.read(many("webhook_secrets_open", limit=_BATCH)):
            for row in rows:
                ciphertext = self._cipher.encrypt(row["id"], row["webhook_secret"])
                await self.database.write(
                    one("webhook_secret_seal", id=row["id"], opened=row["webhook_secret"], sealed=ciphertext)
                )
            count += len(rows)
        return count

    def _decrypt(self, account_id: str, text: str) -> str:
        try:
            return self._cipher.decrypt(account_id, text)
        except ValueError as error:
            raise errors.NotConfigured(
                "The webhook secret was encrypted with a different server.key: restore that file"
            ) from error


def _replace(account_id: str, ciphertext: str) -> Transaction[None]:
    yield Query("webhook_secret_replace", {"id": account_id, "sealed": ciphertext})
    yield from audit_log.note(account_id, "webhook_secret.replace")


def new_secret() -> str:
    """Return a new secret in the format of Standard Webhooks: `whsec_` and base64 of 24 random bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the `webhook-signature` header; `secret` is `whsec_` and base64."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
