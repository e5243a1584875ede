"""The port of the chat model, and the limits on its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sixfold.core.accounts.keys import Principal


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """The instructions and the message of one request, which has no tools; `max_tokens` bounds the reply."""

    system: str
    message: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The text of a reply, the server's model, and what the account was charged, in micro-dollars."""

    text: str
    model: str
    cost: int


class ChatModel(Protocol):
    """A chat model that the account of a principal pays for."""

    def max_cost(self, prompt: ModelPrompt) -> int:
        """Return the maximum charge of a request in micro-dollars."""
        ...

    async def ask(self, principal: Principal, prompt: ModelPrompt) -> ModelReply:
        """Return the reply after it has been charged; raise what a gateway call raises."""
        ...


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """The most that one request and the requests of an account on one UTC day may cost, in micro-dollars."""

    call: int = 100_000
    day: int = 1_000_000
