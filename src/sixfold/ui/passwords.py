"""Passwords as argon2 hashes; slow on purpose, so call these off the event loop."""

from __future__ import annotations

from functools import cache

from pwdlib import PasswordHash
from pwdlib.exceptions import UnknownHashError
from pwdlib.hashers.argon2 import Argon2Hasher

_HASHES = PasswordHash((Argon2Hasher(),))


@cache
def _nobody() -> str:
    return _HASHES.hash("nobody has this password")


def make(password: str) -> str:
    """The hash to be stored."""
    return _HASHES.hash(password)


def verify(password: str, stored: str | None) -> bool:
    """Whether a password is the stored one. Without one it takes as long, so nobody learns who exists."""
    try:
        right = _HASHES.verify(password, stored or _nobody())
    except UnknownHashError:
        return False
    return right and stored is not None
