"""Layout shifts of a long chat with images: while it opens, an answer streams, and the reader scrolls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts
from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.gateway import Gateway, running_gateway
from tests.harness.cases import nightly_after
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
MESSAGES, AT_ONCE, MAX_SHIFT = 120, 20, 0.05
PART = """## Part

The **lighthouse** stands on the north cape since 1893, and `lamp.py` oils its lamp.

1. one
2. two

```python
def area(width, length):
    return width * length
```

| Name | Value |
|---|---|
| a | 1 |

"""
LOADED = "() => [...document.querySelectorAll('.content img')].some((each) => each.naturalWidth)"
# Shifts that follow an input within half a second are expected by the user.
WATCH = """() => {
  window.shifts = [];
  const name = (each) => `${each.node?.nodeName}#${each.node?.id ?? ""}.${each.node?.className ?? ""}`;
  new PerformanceObserver((list) => list.getEntries().filter((entry) => !entry.hadRecentInput)
    .forEach((entry) => shifts.push([entry.value, entry.sources.map(name)])))
    .observe({ type: "layout-shift", buffered: true });
}"""
TAKE = """() => new Promise((done) => {
  const frames = () => requestAnimationFrame(() => requestAnimationFrame(() => done(shifts.splice(0))));
  setTimeout(frames, 600);
})"""


@pytest.fixture
async def chatting(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str, Any]]:
    """A server with two model servers that may pause, its address, a browser."""
    async with (
        running_gateway(tmp_path, models=app_catalog.models_document(), timeout_seconds=60) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        await gateway.app.database.write(accounts.credit("ada@example.com", 10**10))
        yield gateway, url, chromium


async def _is_still(page: Any, phase: str) -> None:
    shifts = await page.evaluate(TAKE)
    assert sum(value for value, _ in shifts) < MAX_SHIFT, (phase, shifts)


async def _fill(gateway: Gateway, chat_id: str, image: str) -> None:
    """Add messages of different heights to a chat; every fifth answer has an image."""
    items: list[dict[str, Any]] = []
    for number in range(0, MESSAGES, 2):
        answer = (image if number % 10 == 0 else "") + PART * (1 + number % 7)
        items.append({"type": "message", "role": "user", "content": "A question " * (number % 60 + 1)})
        items.append({"type": "message", "role": "assistant", "content": answer})
    for first in range(0, MESSAGES, AT_ONCE):
        url, body = f"/v1/conversations/{chat_id}/items", {"items": items[first : first + AT_ONCE]}
        response = await gateway.app.client.post(url, json=body, headers=gateway.headers)
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("width", nightly_after(1, [390, 1440]))
async def test_long_chat_does_not_shift(chatting: tuple[Gateway, str, Any], width: int) -> None:
    gateway, url, chromium = chatting
    async with browser.tab(chromium, gateway.app, url, TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/chat")
        await page.fill("#text", "draw a fox")
        await page.keyboard.press("Enter")
        image = page.locator(".content img")
        source, columns, rows = [await image.get_attribute(name) for name in ("src", "width", "height")]
        chat_id = page.url.partition("/chat/")[2].partition("?")[0]
        await _fill(gateway, chat_id, f"![a fox]({source}#{columns}x{rows})\n\n")
        images = asyncio.Event()

        async def answer_later(route: Any) -> None:
            await images.wait()
            await route.continue_()

        await page.route("**/media/**", answer_later)
        await page.goto(page.url)
        await page.evaluate(WATCH)
        await _is_still(page, "opened")
        gateway.acme.answer, gateway.acme.mode = PART * 6, "trickle"
        await page.fill("#text", "Continue")
        await page.keyboard.press("Enter")
        # The model pauses: its lines have their layout, and the rest follows.
        await page.wait_for_selector("#active pre")
        await _is_still(page, "paused")
        gateway.acme.go_on.set()
        await page.wait_for_selector("#last .answer .cost")
        await _is_still(page, "answered")
        await page.mouse.move(width / 2, 300)
        for _ in range(3):
            await page.mouse.wheel(0, -700)
        await page.evaluate("scrollTo(0, 0)")
        await _is_still(page, "at the first message")
        images.set()
        await page.wait_for_function(LOADED)
        await _is_still(page, "images loaded")
        await page.click("#earlier")
        await page.wait_for_function("() => document.querySelectorAll('#messages article').length > 50")
        await _is_still(page, "earlier messages")
        for _ in range(40):
            await page.mouse.wheel(0, 500)
        await _is_still(page, "scrolled")
