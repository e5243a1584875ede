"""The response cache: owners, expiry and size."""

from __future__ import annotations

from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.cache import ResponseCache
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import GatewayRequest


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(
    body: bytes = b"{}", account: str = "a", wire: str = "chat", key_id: str = "k", beta: str = ""
) -> GatewayRequest:
    caller = Principal(account, "", "", key_id=key_id)
    headers = {"anthropic-beta": beta}
    return GatewayRequest(caller, "req_1", wire, wire, "m", body, lambda: ChatRequest(()), headers=headers)


def test_cache_hits_need_equal_request_and_account() -> None:
    cache: ResponseCache[str] = ResponseCache(1000, 60, Clock())
    cache.put(ask(), "kept", 10)
    assert cache.get(ask()) == "kept"
    assert [cache.get(other) for other in (ask(b"{ }"), ask(account="b"), ask(wire="messages"))] == [None] * 3


def test_cache_hits_need_the_same_credential_and_headers() -> None:
    cache: ResponseCache[str] = ResponseCache(1000, 60, Clock())
    cache.put(ask(), "kept", 10)
    assert [cache.get(other) for other in (ask(), ask(key_id="other"), ask(beta="x"))] == ["kept", None, None]


def test_cached_response_expires() -> None:
    clock = Clock()
    cache: ResponseCache[str] = ResponseCache(1000, 60, clock)
    cache.put(ask(), "kept", 10)
    clock.now = 61.0
    assert cache.get(ask()) is None


def test_cache_evicts_least_recently_used_and_skips_too_large() -> None:
    cache: ResponseCache[str] = ResponseCache(30, 60, Clock())
    for name in (b"1", b"2", b"3"):
        cache.put(ask(name), name.decode(), 10)
    assert cache.get(ask(b"1")) == "1"
    cache.put(ask(b"4"), "4", 10)
    cache.put(ask(b"5"), "5", 31)
    assert [cache.get(ask(name)) for name in (b"1", b"2", b"3", b"4", b"5")] == ["1", None, "3", "4", None]
