"""The response cache: owners, expiry, size, and refunded calls."""

from __future__ import annotations

from typing import Any, cast

from sixfold.core.accounts import charges
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Database, Transaction
from sixfold.core.gateway.cache import ResponseCache
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.core.gateway.pricing.usage import NOTHING

# More than an entry needs besides its response.
ENTRY_BYTES = 2_000


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CallLog:
    """A database of calls that have all `succeeded`, or were all refunded."""

    def __init__(self) -> None:
        self.succeeded = True

    async def read(self, transaction: Transaction[Any], **_options: Any) -> bool:
        transaction.close()
        return self.succeeded


def ask(
    body: bytes = b"{}", account: str = "a", wire: str = "chat", key_id: str = "k", beta: str = ""
) -> GatewayRequest:
    caller = Principal(account, "", "", key_id=key_id)
    headers = {"anthropic-beta": beta}
    return GatewayRequest(caller, "req_1", wire, wire, "m", body, lambda: ChatRequest(()), headers=headers)


def reply(text: str, size: int = 0) -> GatewayReply:
    raw = text.encode() + bytes(size)
    return GatewayReply("acme/m", "m", NOTHING, 1, charges.calculate(()), raw=raw)


def new_cache(clock: Clock, max_bytes: int = 10 * ENTRY_BYTES, log: CallLog | None = None) -> ResponseCache:
    return ResponseCache(cast("Database", log or CallLog()), max_bytes, 60, clock)


async def found(cache: ResponseCache, *requests: GatewayRequest) -> list[str | None]:
    """Return the texts of the cached responses."""
    replies = [await cache.get(request) for request in requests]
    return [None if each is None else (each.raw or b"").rstrip(b"\0").decode() for each in replies]


async def test_cache_hits_need_equal_request_and_account() -> None:
    cache = new_cache(Clock())
    cache.put(ask(), reply("kept"))
    others = ask(b"{ }"), ask(account="b"), ask(wire="messages")
    assert await found(cache, ask(), *others) == ["kept", None, None, None]


async def test_cache_hits_need_the_same_credential_and_headers() -> None:
    cache = new_cache(Clock())
    cache.put(ask(), reply("kept"))
    assert await found(cache, ask(), ask(key_id="other"), ask(beta="x")) == ["kept", None, None]


async def test_cached_response_expires() -> None:
    clock = Clock()
    cache = new_cache(clock)
    cache.put(ask(), reply("kept"))
    clock.now = 61.0
    assert await found(cache, ask()) == [None]


async def test_response_of_a_refunded_call_is_not_found() -> None:
    log = CallLog()
    cache = new_cache(Clock(), log=log)
    cache.put(ask(), reply("kept"))
    log.succeeded = False
    assert await found(cache, ask()) == [None]


async def test_cache_evicts_least_recently_used_and_skips_too_large() -> None:
    cache = new_cache(Clock(), 3 * ENTRY_BYTES)
    size = ENTRY_BYTES // 4
    for name in (b"1", b"2", b"3"):
        cache.put(ask(name), reply(name.decode(), size))
    assert await found(cache, ask(b"1")) == ["1"]
    cache.put(ask(b"4"), reply("4", size))
    cache.put(ask(b"5"), reply("5", 3 * ENTRY_BYTES))
    requests = [ask(name) for name in (b"1", b"2", b"3", b"4", b"5")]
    assert await found(cache, *requests) == ["1", None, "3", "4", None]
