"""Signing a manifest with the server's key, and telling ours from foreign and from forged.

A signature covers the canonical text of everything else in the manifest, its key included. Ed25519 is
deterministic: the same manifest and key give the same text. A key's public name is
`ed25519:<public key, base64url>`, so whoever holds the name can check.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from sixfold.core.provenance import manifest as provenance_manifest

_KEY = "ed25519:"


@dataclass(frozen=True, slots=True)
class Signed:
    """A manifest that was read, and what its signature is worth.

    `intact`: unchanged since the holder of `signed_by` signed it. `ours`: that key is one of those asked
    for. Anyone can sign with a key of their own, so only `valid` says that this server vouches for it.
    """

    manifest: provenance_manifest.Manifest
    signed_by: str
    intact: bool
    ours: bool

    @property
    def valid(self) -> bool:
        """Signed by a key of ours and unchanged since."""
        return self.intact and self.ours


class Signer:
    """Holds the server's Ed25519 key: `seed` is its 32 bytes; `retired` names keys it had before."""

    def __init__(self, seed: bytes, retired: Collection[str] = ()) -> None:
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        self.key = _KEY + _encoded(self._private.public_key().public_bytes(*raw))
        self._trusted = frozenset({self.key, *retired})

    def sign(self, manifest: provenance_manifest.Manifest) -> str:
        """The canonical, signed text to embed; `record.ManifestTooLarge` over 256 KiB."""
        document = {**provenance_manifest.document(manifest), "key": self.key}
        signature = self._private.sign(provenance_manifest.canonical(document).encode())
        return provenance_manifest.canonical({**document, "signature": _encoded(signature)})

    def read(self, text: str) -> Signed:
        """Parse a text and check it against this server's keys; `record.NotAManifest` if it is none."""
        return verify(text, self._trusted)


def verify(text: str, keys: Collection[str]) -> Signed:
    """Parse a text and check it against public `keys`; no private key is needed."""
    manifest, document = provenance_manifest.parse(text)
    key, signature = document.get("key"), document.pop("signature", None)
    if not isinstance(key, str):
        return Signed(manifest, "", intact=False, ours=False)
    intact = isinstance(signature, str) and _intact(text, document, key, signature)
    return Signed(manifest, key, intact=intact, ours=key in keys)


def _intact(text: str, document: dict[str, Any], key: str, signature: str) -> bool:
    """Whether `text` is, to the byte, what the key's holder wrote: its canonical form is compared too."""
    public, signed = _decoded(key.removeprefix(_KEY)), _decoded(signature)
    if not key.startswith(_KEY) or public is None or signed is None:
        return False
    try:
        if provenance_manifest.canonical({**document, "signature": signature}) != text:
            return False
        body = provenance_manifest.canonical(document).encode()
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signed, body)
    except (InvalidSignature, ValueError, TypeError, RecursionError):
        return False
    return True


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes | None:
    """Bytes of base64url without padding, or None; the spare bits of the last letter must be zero."""
    try:
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, binascii.Error):
        return None
    return data if _encoded(data) == text else None
