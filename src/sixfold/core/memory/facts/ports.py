"""The port of the chat model, and the limits on its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from sixfold.core.accounts.keys import Principal


class ModelPrompt(msgspec.Struct, frozen=True):
    """The instructions and message of a request without tools; `max_tokens` limits the reply."""

    system: str
    message: str
    max_tokens: int


class ModelReply(msgspec.Struct, frozen=True):
    """The text of a reply, the name of the server's model, and the charge in micro-dollars."""

    text: str
    model: str
    cost: int


class FactCall(msgspec.Struct, frozen=True):
    """The id of a call, and its number among the calls of a request; the first has the number 1.

    `once` is the id of a request with an Idempotency-Key, otherwise empty.
    """

    id: str
    once: str
    number: int


class ChatModel(Protocol):
    """A chat model whose requests are charged to the account of a principal."""

    def max_cost(self, prompt: ModelPrompt) -> int:
        """Return the maximum charge of a request in micro-dollars."""
        ...

    async def ask(self, principal: Principal, call: FactCall, prompt: ModelPrompt) -> ModelReply:
        """Return the reply after it has been charged. Raises the errors of `Gateway.complete`.

        If an error is raised, the call is free, unless a guardrail of the caller has received and blocked its
        reply: the `cost` of the error is then charged.
        """
        ...

    async def refund_lost(self, once: str) -> None:
        """Refund the calls of an earlier attempt at a request, because the response was lost."""
        ...

    async def refund(self, call_ids: Sequence[str], error: str) -> None:
        """Refund calls whose replies had no effect, unless a guardrail of the caller has received them."""
        ...


class SpendingLimits(msgspec.Struct, frozen=True):
    """The maximum cost, in micro-dollars, of one request, and of an account's requests on one UTC day."""

    call: int = 100_000
    day: int = 1_000_000
