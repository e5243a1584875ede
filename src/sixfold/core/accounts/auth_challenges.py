"""Ceremonies: what begins in one request of a browser and is ended, once, by a later one of the same browser.

The browser holds a token in a cookie, or is known by its session; what the ceremony is about lies here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sixfold import errors
from sixfold.core.accounts import keys
from sixfold.core.clock import MINUTE_US
from sixfold.core.database import Query, Transaction

LIFE_US = 10 * MINUTE_US
Content = Mapping[str, str]


def create(kind: str, token: str, content: Content) -> Transaction[None]:
    """Keep what the end will need; an older ceremony of this kind and token is over."""
    kept = msgspec.json.encode(content).decode()
    yield Query(
        "auth_challenge_begin",
        {"token_hash": _hash(kind, token), "kind": kind, "content": kept, "life": LIFE_US},
    )


def consume(kind: str, token: str) -> Transaction[Content]:
    """End a ceremony; raises `BadRequest` where none is under way, which is so the second time, too."""
    rows = yield Query("auth_challenge_take", {"token_hash": _hash(kind, token), "kind": kind})
    if not rows:
        raise errors.BadRequest("This took too long, or was begun elsewhere: begin anew")
    return msgspec.json.decode(rows[0]["content"], type=dict[str, str])


def _hash(kind: str, token: str) -> bytes:
    return keys.hash_of(f"{kind}\0{token}")
