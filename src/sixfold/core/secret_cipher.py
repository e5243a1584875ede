"""Encryption of small secrets with a key derived from the server's key, and bound to a name."""

from __future__ import annotations

import base64
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES = 12


class SecretCipher:
    """Encrypts secrets with ChaCha20-Poly1305.

    The key is derived (HKDF-SHA256) from `master` for the purpose `info`.
    """

    def __init__(self, master: bytes, info: bytes) -> None:
        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), length=32, salt=None, info=info).derive(master))

    def encrypt(self, name: str, secret: str) -> str:
        """Encrypt a secret for a name; return it as base64."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), name.encode())).decode()

    def decrypt(self, name: str, ciphertext: str) -> str:
        """Decrypt a secret; raises `ValueError` for a different name or key, or a damaged text."""
        try:
            data = base64.b64decode(ciphertext, validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode()).decode()
        except InvalidTag:
            raise ValueError("it was encrypted with a different server.key, or it is damaged") from None
