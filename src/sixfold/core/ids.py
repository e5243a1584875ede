"""Prefixed ids that sort by time: 48 bits of milliseconds, 128 random bits, in base32."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets

from sixfold.core.clock import steady_clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS = tuple(range(170, -10, -10))  # 36 characters, 180 bits: 4 spare, 48 of time, 128 random
_DIGITS = (_ALPHABET * 8).encode()  # by byte: a random one is a random digit
# By the last two bits of a moment and a random digit: the digit of both, three bits of the latter.
_MIDDLE = tuple(
    {digit: _ALPHABET[late << 3 | place & 7] for place, digit in enumerate(_ALPHABET)} for late in range(4)
)
_RANDOM, _AHEAD = 26, 64  # digits of an id that are random, and for how many ids they are drawn together
_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)
_now = steady_clock()  # a machine whose clock is set back makes no ids that sort before older ones


def new(prefix: str) -> str:
    """A fresh id such as `pred_06g…`; ids of one prefix sort by the millisecond they were made in."""
    epoch_ms, random = _now() // 1000, _random()
    return f"{prefix}_{_first_digits(epoch_ms >> 2)}{_MIDDLE[epoch_ms & 3][random[0]]}{random[1:]}"


def derived(parent: str, key: str) -> str:
    """The id of the part `key` of what has the id `parent`: always the same, and as long as any other."""
    prefix, _, digits = parent.partition("_")
    mixed = int.from_bytes(hashlib.blake2b(key.encode(), key=parent.encode(), digest_size=16).digest())
    return f"{prefix}_{digits[:10]}{_encode(mixed)[10:]}"


def draw(below: int, key: str = "") -> int:
    """A whole number below another: for a key always the same, without one by chance."""
    if not key:
        return secrets.randbelow(below)
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest()) % below


def earliest(prefix: str, epoch_us: int) -> str:
    """What no id of a prefix that was made at a moment or later sorts before."""
    return f"{prefix}_{_encode(epoch_us // 1000 << 128)}"


def secret(prefix: str) -> str:
    """A fresh secret: `prefix` and 256 random bits as 43 base64url characters."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def _random() -> str:
    """Random digits that nobody else gets, in no thread and no child; the system is asked once for many."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            digits = os.urandom(_RANDOM * _AHEAD).translate(_DIGITS).decode()
            _drawn.extend([digits[start : start + _RANDOM] for start in range(0, len(digits), _RANDOM)])


@functools.lru_cache(maxsize=4)
def _first_digits(value: int) -> str:
    """The ten digits that hold all of a moment but its last two bits, which share one with random bits."""
    return _encode(value << 130)[:10]


def _encode(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])
