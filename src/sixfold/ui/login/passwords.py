"""Password hashing with argon2; slow by design, so call it outside the event loop."""

from __future__ import annotations

from pwdlib import PasswordHash
from pwdlib.exceptions import UnknownHashError
from pwdlib.hashers.argon2 import Argon2Hasher

_HASHES = PasswordHash((Argon2Hasher(),))

# A hash for accounts without a password, so that checking them takes the same time.
_NOBODY = "$argon2id$v=19$m=65536,t=3,p=4$rgtzD43jSFMyHXhT0IPO0A$yWNRuI3wefqqPkF20puGoLQU9RjZUtU35k6U+IbjV4w"


def make(password: str) -> str:
    """Return the hash of a password for storage."""
    return _HASHES.hash(password)


def verify(password: str, stored: str | None) -> bool:
    """Return whether a password matches; takes the same time without a hash, to hide which accounts exist."""
    try:
        right = _HASHES.verify(password, stored or _NOBODY)
    except UnknownHashError:
        return False
    return right and stored is not None
