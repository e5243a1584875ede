"""The chat page in a real browser: streaming, reload, stop, a lost connection; layout and axe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.gateway import Gateway, running_gateway
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_page_details_browser import SHIFT
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
DONE = "#last .answer .cost"
AT_END = "document.scrollingElement.scrollHeight - scrollY - innerHeight < 5"
ANSWER = """## Plan

1. one
2. **two**

```python
def f():
    return 1
```

$$
\\frac{a}{b}
$$

| Name | Value | Note |
|---|---|---|
| a | 1 | wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww |

The end."""


@pytest.fixture
async def chatting(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str, Any]]:
    """A server with two model servers, its address, a browser."""
    async with (
        running_gateway(tmp_path) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        yield gateway, url, chromium


async def _ask(page: Any, text: str) -> None:
    await page.fill("#text", text)
    await page.keyboard.press("Enter")


async def test_answer_streams_survives_a_reload_and_can_be_stopped(
    chatting: tuple[Gateway, str, Any],
) -> None:
    gateway, url, chromium = chatting
    gateway.acme.answer = ANSWER
    async with browser.tab(chromium, gateway.app, url, TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open("/chat")
        await _ask(page, "Plan it")
        # The page of a new chat may be loaded after its answer has ended.
        await page.wait_for_selector(f"{DONE}, #messages .cost")
        assert await page.locator("#last h3, #messages h3").inner_text() == "Plan"
        assert await page.locator(".content pre .k").first.inner_text() == "def"
        assert await page.locator(".content math mfrac").count() == 1
        gateway.acme.mode, gateway.acme.answer = "trickle", "one two three four five six"
        await _ask(page, "Count")
        await page.wait_for_selector("#active [data-open]:has-text('one two')")
        await page.reload()
        await page.wait_for_selector("#active:has-text('one two')")
        gateway.acme.go_on.set()
        await page.wait_for_selector(f"{DONE}, #messages :text('four five six')")
        gateway.acme.go_on.clear()
        gateway.acme.disconnect_event.clear()
        await _ask(page, "Again")
        await page.wait_for_selector("#active [data-open]:has-text('one two')")
        await page.focus("#stop-button")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#last :text('Stopped.')")
        await gateway.acme.disconnect_event.wait()
        assert not await page.is_visible("#stop-button")
        assert await page.evaluate("document.activeElement.id") == "text"


async def test_a_lost_connection_is_named_and_recovers(chatting: tuple[Gateway, str, Any]) -> None:
    gateway, url, chromium = chatting
    async with browser.tab(chromium, gateway.app, url) as tab:
        page = tab.page
        await tab.open("/chat")
        await _ask(page, "say 1 words")
        await page.wait_for_selector("#messages .cost, #last .cost")
        await page.route("**/events", lambda route: route.abort())
        await _ask(page, "say 3 words")
        await page.wait_for_selector("[data-status]:has-text('Connection lost')")
        await page.unroute("**/events")
        await page.wait_for_selector("#last :text('word word word')")
        await page.route("**/chat/conv_*", lambda route: route.abort())
        await _ask(page, "say 4 words")
        await page.wait_for_selector("#problem:has-text('Can\\'t reach the server')")
        assert await page.input_value("#text") == "say 4 words"
        await page.unroute("**/chat/conv_*")
        await page.context.clear_cookies()
        await page.keyboard.press("Enter")
        await page.click("#problem a:has-text('Sign in')")
        await page.wait_for_url("**/signin?next=%2Fchat%2Fconv_*")
        tab.ignore("ERR_FAILED", "of 401")


async def test_button_scrolls_to_the_latest_message(chatting: tuple[Gateway, str, Any]) -> None:
    gateway, url, chromium = chatting
    async with browser.tab(chromium, gateway.app, url, TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/chat")
        await _ask(page, "say 900 words")
        await page.wait_for_selector("#messages .cost, #last .cost")
        await page.reload()
        await page.wait_for_function(f"() => {AT_END} && document.scrollingElement.scrollTop > 0")
        assert not await page.is_visible("#latest")
        await page.evaluate("scrollTo(0, 0)")
        await page.click("#latest")
        await page.wait_for_function(f"() => {AT_END} && document.getElementById('latest').hidden")
        assert await page.evaluate("document.activeElement.id") == "text"


async def test_edited_message_is_in_view_and_its_text_is_focused(
    chatting: tuple[Gateway, str, Any],
) -> None:
    gateway, url, chromium = chatting
    async with browser.tab(chromium, gateway.app, url, TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/chat")
        for text in ("say 300 words", "say 301 words"):
            await _ask(page, text)
            await page.wait_for_selector(f"#messages .question:has-text('{text}')")
            await page.wait_for_selector("#last .cost, #messages .answer:last-child .cost")
        await page.locator(".question a:text-is('Edit')").first.click()
        await page.wait_for_selector(".question:target")
        await page.wait_for_function("() => document.activeElement.id === 'text'")
        assert await page.input_value("#text") == "say 300 words"
        box = await page.locator(".question:target").bounding_box()
        assert 0 <= box["y"] <= 300


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_chat_fits_the_window_without_shifts_or_faults(
    chatting: tuple[Gateway, str, Any], width: int
) -> None:
    gateway, url, chromium = chatting
    gateway.acme.answer = ANSWER
    async with browser.tab(chromium, gateway.app, url, TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/chat")
        assert await page.evaluate(SHIFT) < 0.001
        assert await violations(page) == []
        await _ask(page, "Plan it")
        await page.wait_for_selector("#messages .cost, #last .cost")
        await page.reload()
        assert await page.evaluate(SHIFT) < 0.05
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        # Words of tables stay whole.
        assert (await page.locator(".content th").first.bounding_box())["height"] < 40
        box = await page.locator("#composer").bounding_box()
        assert box["y"] + box["height"] <= 901
