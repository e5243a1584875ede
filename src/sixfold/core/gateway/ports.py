"""What the relay needs of those who speak a model server's protocol, and of those who speak to callers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.capabilities import ServedModel
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.usage import TokenUsage


class UpstreamFailure(Exception):
    """A server could not be reached, broke off, or said nothing in time; the text says which."""


class UpstreamRejection(NamedTuple):
    """What a server says is wrong with a request."""

    message: str
    param: str = ""
    too_long: bool = False

    def error(self, status: int) -> errors.UpstreamRefused:
        """The error of it, by which agents know that they must shorten what they remember."""
        kind = errors.TooLong if self.too_long else errors.UpstreamRefused
        return kind(self.message, status=status, param=self.param)


class UsageScanner(Protocol):
    """Reads a stream as it passes: what it used, how much it said, whether it came to its end."""

    @property
    def usage(self) -> TokenUsage | None:
        """What the server said so far."""
        ...

    chars: int
    complete: bool
    error: str

    def pass_on(self, block: bytes, *, keep_usage: bool) -> bytes:
        """The bytes to pass on now, of which a part of an event may be kept back until it is whole."""
        ...


class StreamParser(UsageScanner, Protocol):
    """Reads a stream into events of no dialect."""

    def events(self, block: bytes) -> Sequence[Event]:
        """What a block of the stream says."""
        ...

    def end(self) -> Event:
        """How it ended; only where `complete`."""
        ...


class WireProtocol(Protocol):
    """One protocol: how it is asked, what it answers."""

    name: str
    path: str

    def ask(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """A conversation as a request."""
        ...

    def pass_on(self, body: bytes, model: str) -> bytes:
        """A request in this very protocol, for the server's own name of the model, asking for usage."""
        ...

    def read(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        """An answer; raises `ValueError` for what is none."""
        ...

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        """What an answer used, and how many characters it has; raises `ValueError` for what is none."""
        ...

    def refusal(self, body: bytes) -> UpstreamRejection:
        """What an answer of failure says."""
        ...

    def scan(self) -> UsageScanner:
        """For a stream that is passed on."""
        ...

    def listen(self, chat: ChatRequest) -> StreamParser:
        """For a stream that is translated."""
        ...


class UpstreamStream(Protocol):
    """An answer that has begun."""

    status: int
    retry_after: str

    async def read(self) -> bytes:
        """The next bytes; none at the end. Raises `UpstreamFailure`."""
        ...

    async def whole(self) -> bytes:
        """All that is left. Raises `UpstreamFailure`."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection. Idempotent."""
        ...


class Upstream(Protocol):
    """One model server."""

    name: str
    local: bool
    near: bool  # it stands on this machine or in its network
    discovered: bool  # it was found on a known port, rather than configured

    @property
    def ready(self) -> bool:
        """Whether it can be asked: its key is there."""
        ...

    def wire(self, asked: str) -> WireProtocol:
        """The protocol that it speaks for a request in the protocol `asked`."""
        ...

    def serves(self, model: str) -> bool:
        """Whether it has a model, as far as is known."""
        ...

    def models(self) -> tuple[str, ...]:
        """What it has, as far as is known."""
        ...

    def listing(self) -> tuple[ServedModel, ...]:
        """Return the same models with their capabilities, in the server's order."""
        ...

    async def refresh(self) -> None:
        """Ask it what it has."""
        ...

    def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST a body; raises `UpstreamFailure`."""
        ...


class GatewayRequest(msgspec.Struct, frozen=True):
    """What a caller wants: `body` in the protocol `wire`, and how to read it where it must be translated.

    `limited_to` are the services of a limited key, one of which has to be the model or among `services`.
    """

    account_id: str
    request_id: str
    face: str
    wire: str
    model: str
    body: bytes
    parse: Callable[[], ChatRequest]
    stream: bool = False
    max_tokens: int | None = None
    most: TokenUsage | None = None  # what it is expected to use, where that is no conversation's
    keep_usage: bool = True
    services: tuple[str, ...] = ()
    limited_to: tuple[str, ...] = ()
    below_zero: bool = False
    recalled: int = 0  # tokens that `body` leaves out, as the server remembers them
    held: int | None = None  # what a run that pays for it holds: nothing is held or charged here
    tpm: int | None = None
    key_id: str | None = None
    credential_id: str = ""
    headers: Mapping[str, str] = {}

    @property
    def tenant(self) -> Tenant:
        """Whose files it may show."""
        return Tenant(self.account_id, credential_id=self.credential_id)
