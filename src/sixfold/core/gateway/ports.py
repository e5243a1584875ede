"""Ports of the gateway: model servers, their protocols, requests from the API and their replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from sixfold import errors
from sixfold.core.accounts.charges import CostBreakdown
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.memory_limit import MemoryLease
from sixfold.core.gateway.capabilities import ServedModel
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gpu.arbiter import GpuAccess
from sixfold.core.input_limits import json_limits
from sixfold.core.input_limits.json_limits import JsonLimits
from sixfold.core.reachability import Outage

# A protocol of model servers into which other protocols are not translated.
TEXT_COMPLETIONS = "completions"
# The protocol of `/responses/compact`, and a protocol that servers do not have: a chat that summarizes the
# conversation.
COMPACTION, SUMMARY = "compaction", "summary"


class UpstreamFailure(Exception):
    """A server could not be reached, disconnected or timed out.

    The message completes the sentence "The model server …".
    """


class UpstreamRejection(NamedTuple):
    """A model server's reason for rejecting a request."""

    message: str
    param: str = ""
    too_long: bool = False
    # A content filter rejected the request, regardless of the status.
    filtered: bool = False

    def error(self, status: int) -> errors.UpstreamRefused:
        """Return the error to raise: `TooLong` if the context is too long, otherwise `UpstreamRefused`.

        Agents shorten their history after `TooLong`.
        """
        kind = errors.TooLong if self.too_long else errors.UpstreamRefused
        return kind(self.message, status=status, param=self.param)


class UsageScanner(Protocol):
    """Reads a response stream while it is forwarded, to count usage and to detect its end and errors."""

    @property
    def usage(self) -> TokenUsage | None:
        """The usage that the server has reported so far."""
        ...

    chars: int
    complete: bool
    error: str

    @property
    def buffered(self) -> int:
        """The bytes of the incomplete event."""
        ...

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        """Return the bytes to send now; an incomplete event may be delayed."""
        ...


class StreamParser(UsageScanner, Protocol):
    """Parses a response stream into protocol-independent events."""

    def events(self, block: bytes) -> Sequence[Event]:
        """Return the events that a block completes."""
        ...

    def end(self) -> Event:
        """Return the final event; call it only if `complete`."""
        ...


class WireProtocol(Protocol):
    """A model server's protocol: how to build requests and parse responses."""

    name: str
    path: str
    # The possible contents of a response, if it is JSON.
    response_limits: JsonLimits = json_limits.RESPONSE

    def path_of(self, model: str, *, stream: bool) -> str:
        """Return the path of a request, which contains the model in some protocols."""
        return self.path

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes: ...

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return a request of this protocol with the server's model name and a request for usage."""
        ...

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        """Parse a response; raises `ValueError` if it is invalid."""
        ...

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        """Return a response's usage and its length in characters; raises `ValueError` if it is invalid."""
        ...

    def parse_error(self, body: bytes) -> UpstreamRejection: ...

    def scanner(self) -> UsageScanner:
        """Return a scanner for a stream that is forwarded."""
        ...

    def stream_parser(self, chat: ChatRequest) -> StreamParser: ...


# The largest complete response of a model server, and the part that does not count against the memory limit.
MAX_RESPONSE_BYTES, FREE_BYTES = 64 * 2**20, 2**20


class UpstreamStream(Protocol):
    """A response that has begun."""

    status: int
    retry_after: str

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end; raises `UpstreamFailure`."""
        ...

    async def aclose(self) -> None:
        """Release the connection. Idempotent."""
        ...


async def read_all(stream: UpstreamStream, lease: MemoryLease | None = None) -> bytes:
    """Return all remaining bytes; raises `UpstreamFailure` above the limit.

    Raises `TooManyRequests` if `lease` cannot reserve the memory for a large body.
    """
    blocks: list[bytes] = []
    size = 0
    while block := await stream.read():
        blocks.append(block)
        size += len(block)
        if size > MAX_RESPONSE_BYTES:
            raise UpstreamFailure(f"returned a response of more than {MAX_RESPONSE_BYTES:,} bytes")
        if lease is not None and size > FREE_BYTES:
            await lease.resize(size)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


class Upstream(Protocol):
    """A model server."""

    name: str
    local: bool
    # Whether the server runs on this machine or in the local network.
    in_local_network: bool
    # Whether its chats accept PDF files in the server's protocol.
    reads_documents: bool
    # Whether it was discovered on a known port instead of configured.
    discovered: bool
    # The provider whose rows of the bundled price table apply; empty for the rows without a provider.
    price_table: str
    # Calls in progress on a local server, used to balance load between servers with the same model.
    in_flight: int
    # The GPU that the server shares with other programs, or None.
    gpu: GpuAccess | None

    @property
    def ready(self) -> bool:
        """Whether the server can be called: its API key is set."""
        ...

    @property
    def outage(self) -> Outage | None:
        """Since when the server does not respond, as of the last refresh; it can be called nevertheless."""
        ...

    def wire(self, protocol: str) -> WireProtocol:
        """Return the protocol in which the server serves requests of a `protocol`."""
        ...

    def serves(self, model: str) -> bool:
        """Return whether the server may have a model."""
        ...

    def models(self) -> tuple[str, ...]:
        """Return the names of the server's models, if known."""
        ...

    def listing(self) -> tuple[ServedModel, ...]:
        """Return the server's models with their capabilities, in the order of its list."""
        ...

    def describe(self, model: str) -> ServedModel:
        """Return a model's entry in the listing, or a guess from its name if the server does not list it."""
        ...

    async def refresh(self) -> None:
        """Fetch the list of models."""
        ...

    async def delete(self, path: str) -> int:
        """Send a DELETE request and return the status; raises `UpstreamFailure`."""
        ...

    def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """Send a POST request; raises `UpstreamFailure`."""
        ...


class PredictionPayment(msgspec.Struct, frozen=True):
    """The prediction that pays for a call, if any, and its hold in micro-dollars.

    `is_priced` is set if the reply is charged, and `is_part` if the prompt may contain results of other parts
    of a charged workflow.
    """

    prediction_id: str = ""
    hold: int = 0
    is_priced: bool = False
    is_part: bool = False

    @property
    def unpaid(self) -> tuple[str, ...]:
        """The stages whose texts are not paid yet."""
        return ("request", "response") if self.is_part else ("response",) if self.is_priced else ()


class GatewayRequest(msgspec.Struct, frozen=True):
    """A request of `caller`: `body` in the protocol `wire`, and `parse` for servers with another protocol.

    The services of a limited key must include the model or one of `services`.
    """

    caller: Principal
    request_id: str
    endpoint: str
    wire: str
    model: str
    body: bytes
    parse: Callable[[], ChatRequest]
    stream: bool = False
    # Maximum output tokens of one answer, and the number of answers.
    max_tokens: int | None = None
    answers: int = 1
    # The expected usage of a request that is not a chat, and the maximum usage if that is higher.
    expected_usage: TokenUsage | None = None
    max_usage: TokenUsage | None = None
    # The dimensions of embeddings that the caller requests.
    dimensions: int | None = None
    keep_usage: bool = True
    services: tuple[str, ...] = ()
    # Input tokens that `body` omits because the server stores them.
    stored_tokens: int = 0
    # The hold of the prediction that pays for this call, which is not held or charged separately.
    prepaid_hold: int | None = None
    # That prediction; empty if the call is the repetition of one that was charged.
    prediction_id: str = ""
    # The stages whose texts are not paid yet, so that hooks of the caller must not receive them.
    unpaid: tuple[str, ...] = ()
    # Whether a hook of the caller receives the response, which is then not refunded.
    shared: bool = False
    headers: Mapping[str, str] = {}
    # The caller's label of the purpose of the call.
    tag: str = ""
    # The number of days for which the request and its response are logged; 0 disables the log.
    content_days: int = 0
    # Parses another body of the same protocol, for a guardrail that changes the body.
    reparse: Callable[[bytes], ChatRequest] | None = None
    # Identifies the repetitions of a request with an Idempotency-Key; empty without a key.
    once: str = ""
    # The approximate bytes of a chat without a `body`.
    chat_bytes: int = 0

    @property
    def account_id(self) -> str:
        return self.caller.account_id

    @property
    def key_id(self) -> str | None:
        return self.caller.key_id

    @property
    def size(self) -> int:
        """The approximate size in bytes; a large request is processed in a thread."""
        return len(self.body) or self.chat_bytes

    @property
    def is_forwarded(self) -> bool:
        """Whether only servers with the request's protocol can serve it."""
        return self.expected_usage is not None or self.wire == TEXT_COMPLETIONS

    @property
    def tenant(self) -> Tenant:
        """The tenant whose files the request may use."""
        return Tenant(self.account_id, credential_id=self.caller.credential_id)


class GatewayReply(msgspec.Struct, frozen=True):
    """A complete response: `raw` if the server uses the caller's protocol, otherwise `answer`.

    The lines of `charge` add up to `cost` (micro-dollars). `rounds` are the ids of the further calls of a
    response with tools.
    """

    target: str
    model: str
    usage: TokenUsage
    cost: int
    charge: CostBreakdown
    raw: bytes | None = None
    answer: ChatResponse | None = None
    cached: bool = False
    list_price: int | None = None
    rounds: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of `answer`; empty for a response in `raw`."""
        return "" if self.answer is None else self.answer.text


class StreamFilter(Protocol):
    """Changes a stream before it is forwarded."""

    def blocks(self, source: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Yield the bytes to send."""
        ...

    def events(self, source: AsyncGenerator[Event]) -> AsyncGenerator[Event]: ...


class FilterableStream(Protocol):
    """A streamed response that a filter may change: bytes if it is `raw`, otherwise events."""

    raw: bool
    filter: StreamFilter | None

    def blocks(self) -> AsyncGenerator[bytes]: ...

    def events(self) -> AsyncGenerator[Event]: ...
