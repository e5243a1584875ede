"""Prefixed ids that sort by time: 48 bits of milliseconds and 128 random bits in base32."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets

from sixfold.core.clock import steady_clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
# 36 characters are 180 bits: 4 unused, 48 of time, 128 random.
_SHIFTS = tuple(range(170, -10, -10))
# Translates random bytes to random digits.
_DIGITS = (_ALPHABET * 8).encode()
# By the last two bits of the time and a random digit: the digit of these bits and three random ones.
_MIDDLE = tuple(
    {digit: _ALPHABET[late << 3 | place & 7] for place, digit in enumerate(_ALPHABET)} for late in range(4)
)
# Random digits of an id, and the number of ids for which they are drawn together.
_RANDOM, _AHEAD = 26, 64
_drawn: list[str] = []
# Windows, where only clients run, does not support forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
# A steady clock, so that setting the clock back does not create ids that sort before older ids.
now_us = steady_clock()


def new(prefix: str) -> str:
    """Return a new id such as `pred_06g…`; ids with the same prefix sort by the millisecond of creation."""
    epoch_ms, random = now_us() // 1000, _random()
    return f"{prefix}_{_first_digits(epoch_ms >> 2)}{_MIDDLE[epoch_ms & 3][random[0]]}{random[1:]}"


def derived(parent: str, key: str) -> str:
    """Return the id of the part `key` of `parent`, which is always the same and as long as any other id."""
    prefix, _, digits = parent.partition("_")
    mixed = int.from_bytes(hashlib.blake2b(key.encode(), key=parent.encode(), digest_size=16).digest())
    return f"{prefix}_{digits[:10]}{_encode(mixed)[10:]}"


def draw(below: int, key: str = "") -> int:
    """Return an integer from 0 to `below` - 1, derived from `key`, or random if `key` is empty."""
    if not key:
        return secrets.randbelow(below)
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest()) % below


def earliest(prefix: str, epoch_us: int) -> str:
    """Return a lower bound for all ids with a prefix created at `epoch_us` or later."""
    return f"{prefix}_{_encode(epoch_us // 1000 << 128)}"


def secret(prefix: str) -> str:
    """Return a new secret: `prefix` and 256 random bits as 43 base64url characters."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def _random() -> str:
    """Return random digits, unique across threads and forks; requested from the system in batches."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            digits = os.urandom(_RANDOM * _AHEAD).translate(_DIGITS).decode()
            _drawn.extend([digits[start : start + _RANDOM] for start in range(0, len(digits), _RANDOM)])


@functools.lru_cache(maxsize=4)
def _first_digits(value: int) -> str:
    """Return the ten digits of the time except its last two bits, which share a digit with random bits."""
    return _encode(value << 130)[:10]


def _encode(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])
