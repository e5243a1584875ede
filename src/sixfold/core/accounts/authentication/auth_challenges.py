"""Challenges of login flows that consist of two requests, such as WebAuthn and OpenID Connect.

The browser has a token in a cookie, or a session. The data for the second request is stored here under a hash
of that token, and can be used once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sixfold import errors
from sixfold.core.accounts import keys
from sixfold.core.clock import MINUTE_US
from sixfold.core.database import Query, Transaction, encode_json

LIFE_US = 10 * MINUTE_US
Content = Mapping[str, str]


def create(kind: str, token: str, content: Content) -> Transaction[None]:
    """Store `content` for the second request, replacing an earlier challenge of this kind and token."""
    stored = encode_json(content)
    yield Query(
        "auth_challenge_begin",
        {"token_hash": _hash(kind, token), "kind": kind, "content": stored, "life": LIFE_US},
    )


def consume(kind: str, token: str) -> Transaction[Content]:
    """Delete a challenge and return its content; raises `BadRequest` if it is unknown, used or expired."""
    rows = yield Query("auth_challenge_take", {"token_hash": _hash(kind, token), "kind": kind})
    if not rows:
        raise errors.BadRequest("This sign-in has expired or was started in another browser: start again")
    return msgspec.json.decode(rows[0]["content"], type=dict[str, str])


def _hash(kind: str, token: str) -> bytes:
    return keys.hash_of(f"{kind}\0{token}")
