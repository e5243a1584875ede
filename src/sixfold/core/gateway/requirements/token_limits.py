"""Tokens per minute of keys, for the chats of predictions.

A prediction runs its chat without a key, so its tokens are counted here: those of the request when it is
accepted, and those of a reply without a limit when it is there. The gateway counts all other calls itself.
"""

from __future__ import annotations

import contextlib

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits.rate_limits import RateLimits
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.requirements import output_limits


async def check(rates: RateLimits, principal: Principal, chat: ChatRequest) -> None:
    """Count the tokens that a request is known to have; raises `TooManyRequests`."""
    if principal.scope.tpm is not None and principal.rate_id is not None:
        tokens = chats.estimate(chat) + (chat.max_tokens or 0)
        await rates.spend(principal.rate_id, principal.scope.tpm, tokens)


async def add_reply(rates: RateLimits, principal: Principal, chat: ChatRequest, usage: TokenUsage) -> None:
    """Count the tokens of a reply, unless `check` has counted the limit of the request."""
    if chat.max_tokens is None and principal.scope.tpm is not None and principal.rate_id is not None:
        tokens = min(usage.output, output_limits.LONGEST)
        # The reply is there, so the run does not fail because its tokens cannot be counted.
        with contextlib.suppress(errors.StoreFailed):
            await rates.add(principal.rate_id, principal.scope.tpm, tokens)
