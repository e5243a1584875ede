"""Signatures of manifests with the server's key, and their verification.

A signature covers the canonical text of all other fields of the manifest, including the key. Ed25519 is
deterministic: the same manifest and key produce the same text. The public name of a key is `ed25519:<public
key, base64url>`, which is sufficient to verify its signatures.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from sixfold.core.provenance import manifest as provenance_manifest

_KEY = "ed25519:"


class SignedManifest(msgspec.Struct, frozen=True):
    """A parsed manifest and the result of its verification.

    `intact` means that the manifest is unchanged since the holder of `signed_by` signed it, and `trusted`
    that this key is one of the trusted keys. Anyone can sign with some key, so only `valid` means that this
    server created the file.
    """

    manifest: provenance_manifest.Manifest
    signed_by: str
    intact: bool
    trusted: bool

    @property
    def valid(self) -> bool:
        """Whether the manifest is signed by a trusted key and unchanged."""
        return self.intact and self.trusted


class Signer:
    """The server's Ed25519 key; `seed` contains its 32 bytes, and `retired` the earlier public keys."""

    def __init__(self, seed: bytes, retired: Collection[str] = ()) -> None:
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        self.key = _KEY + _encoded(self._private.public_key().public_bytes(*raw))
        self._trusted = frozenset({self.key, *retired})

    def sign(self, manifest: provenance_manifest.Manifest) -> str:
        """Return the canonical, signed text to embed; raises `ManifestTooLarge` above 256 KiB."""
        document = {**provenance_manifest.document(manifest), "key": self.key}
        signature = self._private.sign(provenance_manifest.canonical(document).encode())
        return provenance_manifest.canonical({**document, "signature": _encoded(signature)})

    def read(self, text: str) -> SignedManifest:
        """Parse a text and verify it with this server's keys; raises `NotAManifest`."""
        return verify(text, self._trusted)


def verify(text: str, keys: Collection[str]) -> SignedManifest:
    """Parse a text and verify it with the public `keys`."""
    manifest, document = provenance_manifest.parse(text)
    key, signature = document.get("key"), document.pop("signature", None)
    if not isinstance(key, str):
        return SignedManifest(manifest, "", intact=False, trusted=False)
    intact = isinstance(signature, str) and _intact(text, document, key, signature)
    return SignedManifest(manifest, key, intact=intact, trusted=key in keys)


def _intact(text: str, document: dict[str, Any], key: str, signature: str) -> bool:
    """Return whether `text` is, byte for byte, the text that the key's holder signed."""
    public, signature_bytes = _decoded(key.removeprefix(_KEY)), _decoded(signature)
    if not key.startswith(_KEY) or public is None or signature_bytes is None:
        return False
    try:
        if provenance_manifest.canonical({**document, "signature": signature}) != text:
            return False
        body = provenance_manifest.canonical(document).encode()
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature_bytes, body)
    except (InvalidSignature, ValueError, TypeError, RecursionError):
        return False
    return True


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes | None:
    """Decode unpadded base64url, or return None; the spare bits of the last character must be zero."""
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error):
        return None
    return data if _encoded(data) == text else None
