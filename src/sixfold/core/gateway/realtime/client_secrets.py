"""Client secrets: short-lived credentials for realtime sessions, which are safe to use in a browser."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sixfold import errors
from sixfold.core.secret_cipher import SecretCipher

PREFIX: Final = "ek_"
# A browser sends the secret in a header.
MAX_CHARS: Final = 16_000
_MAX_DOCUMENT: Final = 2**20
_INFO = b"sixfold realtime client secret"
_NAME = "client_secret"
_encode = msgspec.json.Encoder().encode


class ClientSecret(msgspec.Struct, frozen=True):
    """The key that created a secret, its expiry time in epoch µs, and the session's configuration."""

    key_id: str
    expires_at: int
    session: dict[str, Any] = {}


_decode = msgspec.json.Decoder(ClientSecret).decode


class ClientSecretCipher:
    """Encrypts client secrets with the server's key `master`, so that servers do not have to store them."""

    def __init__(self, master: bytes) -> None:
        self._cipher = SecretCipher(master, _INFO)

    def encrypt(self, key_id: str, expires_at: int, session: Mapping[str, Any]) -> str:
        """Return a new secret; raises `TooLarge` if the session is too large for a header."""
        document = _encode(ClientSecret(key_id, expires_at, dict(session)))
        text = base64.b64encode(zlib.compress(document, 9)).decode()
        ciphertext = base64.b64decode(self._cipher.encrypt(_NAME, text))
        value = PREFIX + base64.urlsafe_b64encode(ciphertext).rstrip(b"=").decode()
        if len(value) > MAX_CHARS:
            raise errors.TooLarge(
                f"The session of a client secret must be at most {MAX_CHARS:,} characters, the limit of a "
                "header (got "
                f"{len(value):,}): send its instructions and tools with session.update"
            )
        return value

    def decrypt(self, value: str, now_us: int) -> ClientSecret:
        """Decrypt a secret; raises `Unauthenticated` if it is invalid or expired."""
        data = value.removeprefix(PREFIX)[:MAX_CHARS]
        try:
            ciphertext = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))
            text = self._cipher.decrypt(_NAME, base64.b64encode(ciphertext).decode())
            unpacker = zlib.decompressobj()
            secret = _decode(unpacker.decompress(base64.b64decode(text), _MAX_DOCUMENT))
        except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError) as error:
            raise errors.Unauthenticated("Invalid client secret") from error
        if secret.expires_at <= now_us:
            raise errors.Unauthenticated("This client secret has expired: create another one")
        return secret
