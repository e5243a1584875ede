"""Passwords as argon2 hashes; slow on purpose, so call these off the event loop."""

from __future__ import annotations

from pwdlib import PasswordHash
from pwdlib.exceptions import UnknownHashError
from pwdlib.hashers.argon2 import Argon2Hasher

_HASHES = PasswordHash((Argon2Hasher(),))


# Of a password that nobody knows: checking it takes as long as checking anybody's.
_NOBODY = "$argon2id$v=19$m=65536,t=3,p=4$rgtzD43jSFMyHXhT0IPO0A$yWNRuI3wefqqPkF20puGoLQU9RjZUtU35k6U+IbjV4w"


def make(password: str) -> str:
    """The hash to be stored."""
    return _HASHES.hash(password)


def verify(password: str, stored: str | None) -> bool:
    """Whether a password is the stored one. Without one it takes as long, so nobody learns who exists."""
    try:
        right = _HASHES.verify(password, stored or _NOBODY)
    except UnknownHashError:
        return False
    return right and stored is not None
