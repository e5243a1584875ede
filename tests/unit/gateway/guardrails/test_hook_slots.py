"""Calls of hooks are limited for each account, so that a slow hook does not delay other accounts."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any, cast

import pytest

from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.guardrails.hooks import GuardrailHooks, GuardrailUnavailable
from sixfold.core.gateway.guardrails.models import HookSettings
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.net.fetch import FetchResponse

SLOW = HookSettings("https://hook.example/", timeout_seconds=30)


class HeldSender:
    """A sender whose hooks of the account `slow` answer only after `go_on`; `busy` counts them."""

    def __init__(self) -> None:
        self.busy, self.most = 0, 0
        self.full, self.go_on = asyncio.Event(), asyncio.Event()

    def check_url(self, url: str) -> None:
        """Allow every URL."""

    async def send(
        self, method: str, url: str, *, headers: Any, content: bytes, timeout_seconds: float, max_bytes: int
    ) -> FetchResponse:
        del method, url, headers, timeout_seconds, max_bytes
        if b'"account_id":"slow"' in content:
            self.busy += 1
            self.most = max(self.most, self.busy)
            if self.busy == 8:
                self.full.set()
            await self.go_on.wait()
            self.busy -= 1
        return FetchResponse(200, {}, b'{"action": "allow"}')


class Secrets:
    """Secrets without a database."""

    async def of(self, account_id: str) -> str:
        return f"whsec_{'A' * 32}{account_id and ''}"


def request(account: str) -> GatewayRequest:
    caller = Principal(account, "", "", key_id="key")
    return GatewayRequest(caller, "req_1", "chat", "chat", "small", b"{}", lambda: cast("Any", None))


async def check(hooks: GuardrailHooks, account: str, hook: HookSettings = SLOW) -> Any:
    return await hooks.check(hook, "request", request(account), ["text"], account)


async def test_slow_hook_occupies_eight_slots_without_delaying_others() -> None:
    sender = HeldSender()
    hooks = GuardrailHooks(cast("Any", None), sender, cast("Any", Secrets()))
    pending_tasks = [asyncio.create_task(check(hooks, "slow")) for _ in range(100)]
    await sender.full.wait()
    assert await check(hooks, "other") == ["text"]
    assert (sender.busy, sender.most) == (8, 8)
    sender.go_on.set()
    assert await asyncio.gather(*pending_tasks) == [["text"]] * 100
    assert sender.most == 8


async def test_call_that_waits_longer_than_its_timeout_is_blocked() -> None:
    sender = HeldSender()
    hooks = GuardrailHooks(cast("Any", None), sender, cast("Any", Secrets()))
    pending_tasks = [asyncio.create_task(check(hooks, "slow")) for _ in range(8)]
    await sender.full.wait()
    hasty = HookSettings("https://hook.example/", timeout_seconds=0.1)
    with pytest.raises(GuardrailUnavailable, match=r"it took longer than 0\.1 seconds"):
        await check(hooks, "slow", hasty)
    sender.go_on.set()
    await asyncio.gather(*pending_tasks)


async def test_answer_with_millions_of_texts_is_refused() -> None:
    texts = b'{"action": "change", "texts": [%s""]}' % (b'"ab",' * 3_300_000)

    class ManyTexts(HeldSender):
        async def send(self, *_request: Any, **_limits: Any) -> FetchResponse:
            return FetchResponse(200, {}, texts)

    tracemalloc.start()
    try:
        with pytest.raises(GuardrailUnavailable, match="at most 500,000 values"):
            await check(GuardrailHooks(cast("Any", None), ManyTexts(), cast("Any", Secrets())), "some")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20
