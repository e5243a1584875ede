"""Headers with the rate limits of a key, under the names that clients of OpenAI and Anthropic read."""

from __future__ import annotations

import datetime
import time
from typing import NamedTuple

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits.rate_limits import RateLeft, RateLimits
from sixfold.web.raw_asgi import Header

# Rendered for each response of a limited key.
_NAMES = {
    kind: tuple(f"x-ratelimit-{name}-{kind}".encode() for name in ("limit", "remaining", "reset"))
    for kind in ("requests", "tokens")
}


def is_limited(principal: Principal) -> bool:
    """Return whether the key of a principal has a limit of requests or tokens per minute."""
    scope = principal.scope
    return (scope.rpm is not None or scope.tpm is not None) and principal.rate_id is not None


class RateHeaders(NamedTuple):
    """The limits of requests and tokens per minute of one key; `for_anthropic` selects the names."""

    principal: Principal
    requests: RateLimits
    tokens: RateLimits
    for_anthropic: bool

    async def headers(self) -> list[Header]:
        """Return the headers of each limit: its amount, what remains, and when all of it is available."""
        scope, rate_id = self.principal.scope, self.principal.rate_id or ""
        render = _anthropic if self.for_anthropic else _openai
        result: list[Header] = []
        for kind, limit, rates in (
            ("requests", scope.rpm, self.requests),
            ("tokens", scope.tpm, self.tokens),
        ):
            if limit is None:
                continue
            try:
                left = await rates.left(rate_id, limit)
            except errors.StoreFailed:
                # The response itself is complete.
                continue
            result += render(kind, limit, left)
        return result


def _openai(kind: str, limit: int, left: RateLeft) -> tuple[Header, ...]:
    limit_name, remaining_name, reset_name = _NAMES[kind]
    seconds = round(left.reset_seconds, 3)
    reset = b"%gs" % seconds if seconds < 60 else b"%dm%gs" % divmod(seconds, 60)
    return (limit_name, b"%d" % limit), (remaining_name, b"%d" % left.amount), (reset_name, reset)


def _anthropic(kind: str, limit: int, left: RateLeft) -> tuple[Header, ...]:
    end = datetime.datetime.fromtimestamp(time.time() + left.reset_seconds, datetime.UTC)
    reset = end.isoformat(timespec="seconds").replace("+00:00", "Z")
    rows = (("limit", str(limit)), ("remaining", str(left.amount)), ("reset", reset))
    return tuple((f"anthropic-ratelimit-{kind}-{name}".encode(), value.encode()) for name, value in rows)
