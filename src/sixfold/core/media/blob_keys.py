"""Keys of blobs: the BLAKE3 hash of their content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import blake3

_BLOBS = "blobs/"
_CONTENT_KEY = re.compile(r"blobs/[0-9a-f]{2}/[0-9a-f]{62}", re.ASCII)


def blob_key(data: bytes) -> str:
    """Return the blob key for a byte string."""
    return key_of(blake3.blake3(data).hexdigest())


def file_digest(path: Path) -> str:
    """Return the BLAKE3 hash of a file in hex, without reading the whole file into memory."""
    return blake3.blake3().update_mmap(path).hexdigest()


def key_of(digest: str) -> str:
    """Return the blob key of a BLAKE3 hash: `blobs/<2 hex>/<62 hex>`."""
    return f"{_BLOBS}{digest[:2]}/{digest[2:]}"


def digest_of(key: str) -> str:
    """Return the BLAKE3 hash, in hex, of a blob key."""
    return key.removeprefix(_BLOBS).replace("/", "")


def content_digest(key: str) -> str | None:
    """Return the BLAKE3 hash, in hex, of a blob key, or None if the key has another form."""
    return digest_of(key) if _CONTENT_KEY.fullmatch(key) else None


def hashes(path: Path) -> tuple[str, str, int]:
    """Return the blob key, the SHA-256 in hex and the size of a file."""
    fast, sha256, size = blake3.blake3(), hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            size += len(piece)
            fast.update(piece)
            sha256.update(piece)
    return key_of(fast.hexdigest()), sha256.hexdigest(), size
